import Base
import Control
import Glibc
import TestSupport
import Testing

/// What users say of files, folders and patterns, on real mounts.
@Suite struct RuleTests {
  private static let size: Int64 = 3 << 20

  /// An origin with these files, and the list of them.
  private func list(_ origin: Origin, _ names: [String], size: Int64 = Self.size) -> String {
    names.map { name in
      origin.add("/\(name)", size: size)
      return origin.url("/\(name)") + "\n"
    }.joined()
  }

  private func says(
    _ journey: Journey, _ arguments: String..., sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> String {
    try journey.succeed([try Programs.path("mediafs")] + arguments, sourceLocation: sourceLocation)
  }

  @Test func rulesHoldOverRestarts() throws {
    try withJourney { journey in
      try withOrigin { origin in
        try journey.mount(list(origin, ["a.mkv", "b.mkv", "c.srt", "d.mkv"]), "--continue", "always")
        #expect(try says(journey, "online", journey.at("d.mkv")).contains("nothing more of 1 file"))
        let kept = try says(journey, "keep", journey.mountpoint + "/*.mkv")
        #expect(
          kept.contains("keeps 2 files") && kept.contains("1 file has a rule that goes before this one: online d.mkv"))
        try journey.wait(for: "complete", "a.mkv")
        try journey.wait(for: "complete", "b.mkv")
        _ = try says(journey, "pause", journey.mountpoint)
        try journey.unmount()
        #expect(try journey.status().file("b.mkv").rule?.text == "keep /*.mkv", "without a server")
        try journey.mount(nil, "--continue", "always")
        let files = try journey.status()
        #expect(try files.file("a.mkv").rule?.text == "keep /*.mkv")
        #expect(try files.file("d.mkv").rule?.text == "online d.mkv")
        #expect(try files.file("c.srt").rule == nil && files.file("c.srt").downloads?.word == "pause")
        let text = try says(journey, "status", journey.at("d.mkv"))
        #expect(
          text.contains("rule: online (for d.mkv)") && text.contains("rules: online d.mkv, keep ./*.mkv"), "\(text)")
        #expect(text.contains("next: what programs read of it: its downloads are paused"), "\(text)")
        // Readers read, and nothing of an online file is stored.
        origin.log.reset()
        try journey.succeed(["cat", journey.at("d.mkv")])
        #expect(try journey.status().file("d.mkv").stored == 0)
        #expect(origin.log.bytesSent(of: "/d.mkv") >= Self.size)
        try journey.succeed(["head", "-c", "100000", journey.at("c.srt")])
        _ = try says(journey, "fetch", journey.at("c.srt"))
        sleep(seconds: 1)
        let paused = try journey.status().file("c.srt")
        #expect(paused.waitsFor == "resume" && paused.state == "partial", "\(paused)")
        _ = try says(journey, "resume", journey.mountpoint)
        try journey.wait(for: "complete", "c.srt")
      }
    }
  }

  @Test func whatDoesNotExist() throws {
    try withJourney { journey in
      try journey.mount("http://127.0.0.1:1/a [1].mkv\n")
      let wrong = try journey.mediafs("keep", journey.at("a [1].mkv"), journey.at("b.mkv"))
      #expect(wrong.status == 1 && wrong.errors.contains("the mount has no b.mkv") && wrong.errors.contains("'b.mkv*'"))
      #expect(try journey.status().file("a [1].mkv").rule == nil, "one of two rules was stored")
      #expect(try says(journey, "pause", journey.at("x*")).contains("./x* is for no file yet"))
      _ = try says(journey, "online", journey.at("a [1].mkv"))
      #expect(try journey.status().file("a [1].mkv").rule?.text == "online a \\[1].mkv")
      #expect(try journey.mediafs("keep").status == 2)
      let classes = try journey.mediafs("keep", journey.at("[[:digit:]]*"))
      #expect(classes.status == 1 && classes.errors.contains("[a-z]"))
      // The line leaves the list: its rule can still be ended.
      try journey.unmount()
      try journey.mount("http://127.0.0.1:1/c.mkv\n")
      _ = try says(journey, "auto", journey.at("a \\[1].mkv"))
      #expect(try !says(journey, "status", journey.mountpoint).contains("online"))
    }
  }

  @Test func whereAPatternIsSaidIsWhereItIsFor() throws {
    try withJourney { journey in
      try journey.mount("http://127.0.0.1:1/a.mkv\nhttp://127.0.0.1:1/b.mkv\n  out=x/b.mkv\n")
      #expect(try says(journey, "online", journey.at("*.mkv")).contains("nothing more of 1 file"))
      #expect(try says(journey, "keep", "*.mkv").contains("keeps 2 files"))
      #expect(try says(journey, "status", journey.mountpoint).contains("online ./*.mkv, keep *.mkv"))
      // As 'status' prints them.
      _ = try says(journey, "auto", "./*.mkv", "*.mkv")
      #expect(try !says(journey, "status", journey.mountpoint).contains("online"))
    }
  }

  @Test func twoClientsAtOnceLoseNothing() throws {
    try withJourney { journey in
      try journey.mount("http://127.0.0.1:1/a.mkv\n")
      let program = try Programs.path("mediafs")
      let words = ["keep", "online", "pause"]
      let running = try (0..<12).map { number in
        try journey.start([program, words[number % 3], journey.at("\(number)*")])
      }
      for one in running { #expect(one.wait(timeout: 60)?.status == 0) }
      let rules = try says(journey, "status", journey.mountpoint)
      #expect(rules.count { $0 == "*" } == 8 && rules.contains("and 4 more"), "\(rules)")
    }
  }

  @Test func cancelEndsAFetch() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.configure { $0.lineRate = 2e6 }
        try journey.mount(list(origin, ["a.mkv", "b.mkv"], size: 64 << 20), "--continue", "never")
        _ = try says(journey, "fetch", journey.at("a.mkv"))
        try journey.wait(forStored: 1 << 20, "a.mkv")
        #expect(try says(journey, "cancel", journey.at("*.mkv")).contains("ended 1 download"))
        let stored = try journey.storedAtRest(origin, "a.mkv")
        #expect(stored >= 1 << 20 && stored < 64 << 20)
        sleep(seconds: 1)
        #expect(try journey.status().file("a.mkv").stored == stored)
        #expect(try journey.status().file("a.mkv").waitsFor == "reader")
        #expect(try says(journey, "cancel", journey.mountpoint).contains("ended 0 downloads"))
      }
    }
  }

  @Test func whatIsActiveTellsItsRules() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.configure { $0.lineRate = 2e6 }
        try journey.mount(list(origin, ["a.mkv"], size: 64 << 20), "--continue", "never")
        _ = try says(journey, "keep", journey.at("a.mkv"))
        try journey.wait(forStored: 1, "a.mkv")
        var query = StatusQuery()
        query.active = true
        let files = try ControlClient.connect(store: journey.store).page(query).files
        #expect(files.map(\.path) == ["a.mkv"] && files.map(\.rule?.word) == ["keep"], "\(files)")
      }
    }
  }

  @Test func clearKeepsWhatARuleKeeps() throws {
    try withJourney { journey in
      try withOrigin { origin in
        try journey.mount(list(origin, ["a.mkv", "b.mkv"]))
        _ = try says(journey, "keep", journey.at("a.mkv"))
        try journey.wait(for: "complete", "a.mkv")
        let cleared = try journey.mediafs("clear", "--force", journey.at("a.mkv"))
        #expect(cleared.status == 1 && cleared.errors.contains("the rule to keep a.mkv"), "\(cleared)")
        #expect(try journey.status().file("a.mkv").state == "complete")
        _ = try says(journey, "auto", journey.at("a.mkv"))
        _ = try says(journey, "clear", journey.at("a.mkv"))
        #expect(try journey.status().file("a.mkv").state == "remote")
      }
    }
  }

  @Test func rootSteersTheMountsOfOthers() throws {
    let place = try MountPlace()
    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "-o", "user=nobody,store=\(place.storeOfNobody)")
    try #require(mounted.status == 0, "\(mounted)")
    for command in [["keep"], ["pause"], ["cancel"], ["resume"], ["fetch"]] {
      let said = try place.wait(place.start([place.mediafs] + command + [place.mountpoint + "/a.mp4"]))
      #expect(said.status == 0, "\(command): \(said)")
    }
    let set = try place.run("set", place.mountpoint, "limit-rate=1M")
    #expect(set.status == 0 && set.text.contains("limit-rate"), "\(set)")
    #expect(try place.run("status", place.mountpoint).text.contains("rule: keep"))
    let forgotten = try place.run("forget", place.mountpoint)
    #expect(forgotten.status == 1 && forgotten.text.contains("is mounted"), "\(forgotten)")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }
}

extension MountStatus.File.Rule {
  /// Its word and its pattern.
  fileprivate var text: String { "\(word) \(pattern)" }
}
