import Base
import Glibc
import TestSupport
import Testing

/// What `fetch` and `status` say of files that do not come.
@Suite struct FetchTests {
  /// Asks for the file, and waits until its status is so: a `fetch --wait` then finds what it is to tell.
  private func ask(
    _ journey: Journey, _ name: String, until isSo: (Journey.Status.File) -> Bool
  ) throws {
    _ = try journey.mediafs("fetch", journey.at(name))
    try waitUntil(interval: 0.1, "the status of \(name)") { isSo(try journey.status().file(name)) }
  }

  @Test func aHostThatDoesNotResolveIsNoCompleteFile() throws {
    try withJourney { journey in
      try journey.mount("http://no-such-host.invalid/away.bin\n")
      try ask(journey, "away.bin") { $0.error != nil }
      let ended = try journey.mediafs("fetch", "--wait", "--timeout", "2", journey.at("away.bin"))
      #expect(ended.status == 1)
      #expect(!ended.output.contains("verified") && !ended.errors.contains("verified"), "\(ended)")
      #expect(ended.errors.contains("0 of 1 file complete"), "\(ended)")
      #expect(ended.errors.contains("away.bin") && ended.errors.contains("cannot be resolved"), "\(ended)")
      #expect(!ended.output.contains("resolved"), "an error on standard output: \(ended.output)")
    }
  }

  @Test func aFileThatIsGoneIsToldOnStandardErrorAlone() throws {
    try withJourney { journey in
      try withOrigin { origin in
        try journey.mount(origin.url("/gone.bin") + "\n")
        let ended = try journey.mediafs("fetch", "--wait", journey.at("gone.bin"))
        #expect(ended.status == 1 && ended.errors.contains("gone.bin") && ended.errors.contains("404"), "\(ended)")
        #expect(ended.output.isEmpty, "\(ended.output)")
      }
    }
  }

  @Test(arguments: [(407, "the proxy needs a login"), (403, "the proxy refuses connections to this host")])
  func aProxyThatRefusesIsTold(_ status: Int, _ words: String) throws {
    try withJourney { journey in
      try withOrigin { proxy in
        proxy.fault(.status(status))
        try journey.list("https://film.invalid/film.bin\n")
        try journey.succeed(["env", "https_proxy=\(proxy.url())", "no_proxy="] + journey.mountCommand())
        let ended = try journey.mediafs("fetch", "--wait", "--timeout", "20", journey.at("film.bin"))
        #expect(ended.status == 1 && ended.errors.contains(words), "\(ended)")
        #expect(try journey.status().file("film.bin").state == "failed")
      }
    }
  }

  @Test func waitingAtAFullStoreEndsAndSaysSo() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.add("/film.bin", size: 4 << 20)
        try journey.mount(origin.url("/film.bin") + "\n", "--min-free", "1000000G")
        try ask(journey, "film.bin") { $0.waitsFor == "space" }
        let ended = try journey.run(
          [try Programs.path("mediafs"), "fetch", "--wait", "--timeout", "3", journey.at("film.bin")], timeout: 60)
        #expect(ended.status == 1, "\(ended)")
        #expect(ended.errors.contains("film.bin: it waits for disk space"), "\(ended)")
        let file = try journey.status().file("film.bin")
        #expect(file.waitsFor == "space" && file.advice?.contains("--min-free") == true, "\(file)")
        #expect(try journey.mediafs("status", journey.mountpoint).output.contains("waits for: disk space"))
      }
    }
  }

  @Test func aTimeThatTheOriginNamesIsTold() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.add("/film.bin", size: 4 << 20)
        origin.fault(.status(503, retryAfter: .seconds(900)), path: "/film.bin")
        try journey.mount(origin.url("/film.bin") + "\n")
        let before = Int64(time(nil))
        try ask(journey, "film.bin") { $0.waitsFor == "origin" }
        let ended = try journey.mediafs("fetch", "--wait", "--timeout", "2", journey.at("film.bin"))
        #expect(ended.status == 1 && ended.errors.contains("it waits for the origin, until"), "\(ended)")
        let file = try journey.status().file("film.bin")
        #expect(file.waitsFor == "origin", "\(file)")
        let until = try #require(file.waitsUntil)
        #expect((before + 890)...(Int64(time(nil)) + 901) ~= until, "\(until - before)")
      }
    }
  }

  @Test func statusRemembersAnErrorAndItsAge() throws {
    try withJourney { journey in
      try journey.mount("http://127.0.0.1:\(try freePort())/away.bin\n", "--timeout", "3", "--continue", "never")
      #expect(try !journey.run(["head", "-c", "1", journey.at("away.bin")]).succeeded)
      // A file that nobody uses is put away within ten seconds.
      sleep(seconds: 11)
      let file = try journey.status().file("away.bin")
      #expect(file.error?.contains("cannot connect") == true, "\(file)")
      #expect(try #require(file.errorAge) >= 8, "\(file)")
      #expect(file.waitsFor == "reader")
      let text = try journey.mediafs("status", journey.mountpoint).output
      #expect(text.contains("ago)") && text.contains("waits for: a reader"), "\(text)")
    }
  }

  @Test func aMountThatRunsIsNotToBeMounted() throws {
    try withJourney { journey in
      try withOrigin { origin in
        try journey.mount(origin.url("/gone.bin") + "\n", "--continue", "never")
        #expect(try journey.mediafs("fetch", "--wait", journey.at("gone.bin")).status == 1)
        sleep(seconds: 11)  // put away: only the catalog and what the server remembers know it
        let file = try journey.status().file("gone.bin")
        #expect(file.state == "failed" && file.error?.contains("404") == true && file.errorAge != nil, "\(file)")
        #expect(file.advice?.contains("mount") == false, "\(file)")
        try journey.unmount()
        let offline = try journey.status().file("gone.bin")
        #expect(offline.state == "failed" && offline.error == file.error, "\(offline)")
        #expect(offline.advice?.contains("mount") == true, "\(offline)")
      }
    }
  }
}
