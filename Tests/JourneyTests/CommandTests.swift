import Base
import Glibc
import TestSupport
import Testing

/// What is stored can be seen and steered.
@Suite struct CommandTests {
  @Test(arguments: Traveller.all) func statusFetchAndClear(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        let size = Int64(6 << 20) + 1
        for name in ["a.mp4", "b.mp4", "c.mp4"] { origin.add("/\(name)", size: size) }
        let urls = ["a.mp4", "b.mp4", "c.mp4", "gone.mp4"].map { origin.url("/\($0)") }
        try journey.mount("\(urls[0])\n\(urls[1])\n  dir=folder\n\(urls[2])\n\(urls[3])\n", "--continue", "never")

        #expect(try journey.mediafs("fetch", "--wait", journey.at("a.mp4")).status == 0)
        try journey.python(reader, journey.at("folder/b.mp4"), "1000000:500000")
        let stored = try journey.storedAtRest(origin, "folder/b.mp4")
        try journey.succeed(["cmp", journey.at("a.mp4"), try journey.original("a.mp4", size: size)])

        // A file that is not there: the exit status tells, and what to do about it is said.
        let failed = try journey.mediafs("fetch", "--wait", journey.at("gone.mp4"), journey.at("a.mp4"))
        #expect(failed.status == 1, "\(failed.output)\(failed.errors)")

        let status = try journey.status()
        #expect(status.running && status.pid != nil && status.mountpoint == journey.mountpoint)
        #expect(status.files.map(\.path).sorted() == ["a.mp4", "c.mp4", "folder/b.mp4", "gone.mp4"])
        #expect(status.totals.files == 4 && status.totals.complete == 1 && status.totals.partial == 1)
        let (a, b, c) = (try status.file("a.mp4"), try status.file("folder/b.mp4"), try status.file("c.mp4"))
        #expect(a.state == "complete" && a.size == size && a.stored == size)
        #expect(b.state == "partial" && b.size == size && b.stored == stored)
        #expect(b.ranges.reduce(0) { $0 + $1[1] - $1[0] } == stored)
        #expect(b.ranges.contains { $0[0] <= 1_000_000 && $0[1] >= 1_500_000 })
        #expect(c.state == "remote" && c.stored == 0 && c.ranges.isEmpty)
        let gone = try status.file("gone.mp4")
        #expect(gone.state == "failed" && gone.error?.contains("404") == true && gone.advice != nil, "\(gone)")

        let text = try journey.mediafs("status", journey.mountpoint).output
        #expect(text.contains("4 files: 1 complete, 1 partial, 1 remote, 1 failed"), "\(text)")
        #expect(text.contains("mounted, served by process") && text.contains("to do:"))
        for (what, place) in [
          ("store", journey.store), ("library", journey.library), ("list", journey.manifest),
          ("log", journey.store + "/mediafs.log"), ("limits", "--max-size "),
        ] {
          let row = "  \(what):" + String(repeating: " ", count: 8 - what.count) + place
          #expect(text.contains(row), "\(row) is not in \(text)")
        }
        #expect(text.contains("--continue never") && text.contains("  line:    http://127.0.0.1:"), "\(text)")
        let one = try journey.mediafs("status", journey.mountpoint, "folder").output
        #expect(one.contains("b.mp4") && !one.contains("a.mp4"), "\(one)")
        #expect(one.contains("from: http://127.0.0.1:") && one.contains("line 2 of the list"), "\(one)")
        #expect(one.contains("serves ranges") && one.contains(" for readers; "), "\(one)")
        #expect(one.contains("lies in: \(journey.store)/partial/") && one.contains("next: what programs"), "\(one)")
        let whole = try journey.mediafs("status", journey.at("a.mp4")).output
        #expect(whole.contains("lies in: \(journey.kept("a.mp4"))") && whole.contains("next: nothing"), "\(whole)")
        #expect(whole.contains(" in the background; "), "\(whole)")
        let story = try journey.python(Self.story, try Programs.path("mediafs"), journey.at("folder/b.mp4"))
        #expect(story == "b.mp4 2 1 True None\n", "\(story)")
        // The log names the command that explains an error.
        #expect(journey.log.contains("; more: mediafs status \(journey.at("gone.mp4"))"), "\(journey.log)")

        // Without a server the catalog answers the same.
        try journey.unmount()
        let offline = try journey.status()
        #expect(!offline.running && offline.files.map(\.state) == status.files.map(\.state))
        #expect(offline.files.map(\.stored) == status.files.map(\.stored))
        #expect(try journey.mediafs("status", journey.mountpoint).output.contains("not mounted"))
        #expect(try journey.mediafs("fetch", journey.at("c.mp4")).status == 1, "nobody is there to fetch")
        try journey.mount(nil, "--continue", "never")

        #expect(try journey.mediafs("clear", journey.at("folder/b.mp4")).status == 0)
        #expect(try journey.status().file("folder/b.mp4").state == "remote")
        #expect(try journey.status().file("a.mp4").state == "complete")
        try journey.python(reader, journey.at("folder/b.mp4"), "1000000:5")
        #expect(try journey.mediafs("clear", "--all", journey.mountpoint).status == 0)
        let after = try journey.status()
        #expect(after.totals.stored == 0 && after.files.allSatisfy { $0.ranges.isEmpty }, "\(after)")
        #expect(access(journey.kept("a.mp4"), F_OK) != 0, "a completed copy goes too, when it is told to")
        try journey.succeed(["cmp", journey.at("a.mp4"), journey.folder.file("originals/a.mp4")])
        #expect(try journey.mediafs("status", "--no-such-option").status == 2)
      }
    }
  }

  /// What the JSON says of a file: its line of the list, how many origins, whether they serve ranges, its copy.
  private static let story = #"""
    import json, subprocess, sys
    status = json.loads(subprocess.check_output([sys.argv[1], 'status', '--json', sys.argv[2]]))
    assert status['totals']['mount']['store'].endswith('/store'), status['totals']
    file = status['files'][0]
    story = file['story']
    fetched = story['fetched']
    assert fetched['reader'] > 0 and fetched['sources'][0]['bytes'] == fetched['reader'], story
    name = file['path'].split('/')[-1]
    print(name, story['line'], len(story['origins']), story['servesRanges'], story['copy'])
    """#

  @Test func waitingGoesOnWithTheNextServer() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.configure { $0.lineRate = 4e6 }
        origin.add("/a.bin", size: 12 << 20)
        try journey.mount(origin.url("/a.bin") + "\n")
        let waiting = try journey.start([try Programs.path("mediafs"), "fetch", "--wait", journey.at("a.bin")])
        defer { waiting.terminate(grace: 1) }
        try journey.wait(forStored: 1 << 20, "a.bin")
        kill(try #require(try journey.status().pid), SIGKILL)
        let end = try #require(waiting.wait(timeout: 60))
        #expect(end.status == 0 && end.output.contains("1 file complete and verified"), "\(end)")
        #expect(try journey.status().file("a.bin").state == "complete")
      }
    }
  }

  @Test func waitingForAnOriginThatIsAwayEnds() throws {
    try withJourney { journey in
      let port = try freePort()
      try journey.mount("http://127.0.0.1:\(port)/away.bin\n")
      let ended = try journey.mediafs("fetch", "--wait", "--timeout", "2", journey.at("away.bin"))
      #expect(ended.status == 1)
      #expect("\(ended)".contains("away.bin"), "\(ended)")
    }
  }

  @Test func theLeastRecentlyUsedPartsGoFirst() throws {
    try withJourney { journey in
      try withOrigin { origin in
        let size = Int64(6 << 20)
        for name in ["whole", "old", "middle", "new"] { origin.add("/\(name).bin", size: size) }
        // Of each the end, which play-ahead does not go beyond. Beside the whole file two have room, three have not.
        try journey.mount(
          ["whole", "old", "middle", "new"].map { origin.url("/\($0).bin") + "\n" }.joined(), "--continue", "never",
          "--max-size", "20M")
        #expect(try journey.mediafs("fetch", "--wait", journey.at("whole.bin")).status == 0)
        for name in ["old", "middle", "new"] {
          try journey.python(reader, journey.at("\(name).bin"), "1048576:\(5 << 20)")
          let stored = try journey.storedAtRest(origin, "\(name).bin")
          #expect((5 << 20)..<size ~= stored, "\(name): \(stored)")
          sleep(seconds: 1.1)  // when a file was used is kept in whole seconds
        }
        try waitUntil(timeout: 60, "the oldest part to go") { try journey.status().file("old.bin").stored < 4 << 20 }
        let status = try journey.status()
        #expect(try status.file("old.bin").stored >= 1 << 20, "the end of a file goes after all bodies")
        #expect(try status.file("middle.bin").stored >= 5 << 20, "\(status.files)")
        #expect(try status.file("new.bin").stored >= 5 << 20, "\(status.files)")
        #expect(try status.file("whole.bin").state == "complete", "completed copies never go by themselves")
        try journey.succeed(["cmp", journey.at("old.bin"), try journey.original("old.bin", size: size)])
      }
    }
  }

  @Test func aDiskThatIsTooFullStopsWhatNobodyReads() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.configure { $0.lineRate = 12e6 }
        let size = Int64(30 << 20)
        origin.add("/film.bin", size: size)
        try journey.mount(origin.url("/film.bin") + "\n", "--min-free", "1000000G")
        try journey.python(reader, journey.at("film.bin"), "0:12000000")
        let stored = try journey.storedAtRest(origin, "film.bin")
        #expect(stored < size, "nothing goes on by itself")
        // Whoever reads is served all the same.
        try journey.succeed(["cmp", journey.at("film.bin"), try journey.original("film.bin", size: size)])
      }
    }
  }
}
