import Base
import Glibc
import TestSupport
import Testing

/// What goes on when the player is gone.
@Suite struct ContinuationTests {
  private static let size = Int64(24 << 20) + 4567

  @Test(arguments: Traveller.all) func playSeekCloseComplete(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withFilm(journey, lineRate: 3e6) { origin in
        try journey.mount(origin.url("/film.bin") + "\n")
        try journey.python(reader, journey.at("film.bin"), "0:9000000", "18000001:1000000", "3000000:5")
        try journey.freeze(origin, "film.bin")
        let atClose = try journey.status().file("film.bin")
        #expect(atClose.state == "partial" && atClose.stored >= 10_000_000 && atClose.stored < Self.size)
        thaw(origin)
        try journey.wait(for: "complete", "film.bin")
        try journey.succeed(["cmp", journey.kept("film.bin"), journey.folder.file("originals/film.bin")])
        try journey.expectSentOnce(origin, "/film.bin")
        let sent = origin.log.bytesSent(of: "/film.bin")
        print("play, seek, close, complete: \(sent) bytes sent of \(Self.size), \(Double(sent) / Double(Self.size))")
      }
    }
  }

  @Test func itGoesOnAtTheNextMount() throws {
    try withJourney { journey in
      try withFilm(journey, lineRate: 3e6) { origin in
        try journey.mount(origin.url("/film.bin") + "\n")
        try journey.python(reader, journey.at("film.bin"), "0:9000000", "18000001:1000000")
        try journey.freeze(origin, "film.bin")
        try journey.unmount()
        #expect(eventually(timeout: 30) { origin.log.totals.openRequests == 0 })
        let between = try journey.status()
        let file = try between.file("film.bin")
        #expect(!between.running && file.state == "partial" && file.stored >= 10_000_000)
        let before = origin.log.coverage(of: "/film.bin")
        // Nothing that came is lost, and nothing is asked for a second time.
        #expect(Double(before.bytesSent - file.stored) <= Double(Self.size) * 0.01)
        thaw(origin)
        try journey.mount()
        try journey.wait(for: "complete", "film.bin")
        try journey.succeed(["cmp", journey.kept("film.bin"), journey.folder.file("originals/film.bin")])
        try journey.expectSentOnce(origin, "/film.bin")
      }
    }
  }

  @Test func aFetchedFileGoesOnAtTheNextMountWhateverThePolicy() throws {
    try withJourney { journey in
      try withFilm(journey, lineRate: 3e6) { origin in
        try journey.mount(origin.url("/film.bin") + "\n", "--continue", "never")
        #expect(try journey.mediafs("fetch", journey.at("film.bin")).status == 0)
        try journey.wait(forStored: 2 << 20, "film.bin")
        try journey.freeze(origin, "film.bin")
        try journey.unmount()
        #expect(try journey.status().file("film.bin").state == "partial")
        thaw(origin)
        try journey.mount(nil, "--continue", "never")
        try journey.wait(for: "complete", "film.bin")
        try journey.succeed(["cmp", journey.kept("film.bin"), journey.folder.file("originals/film.bin")])
        try journey.expectSentOnce(origin, "/film.bin")
      }
    }
  }

  @Test func theLogNamesTheFileWhoseBytesAreGone() throws {
    try withJourney { journey in
      try withFilm(journey, lineRate: 3e6) { origin in
        try journey.mount(origin.url("/film.bin") + "\n", "--continue", "never")
        #expect(try journey.mediafs("fetch", journey.at("film.bin")).status == 0)
        try journey.wait(forStored: 2 << 20, "film.bin")
        try journey.unmount()
        try journey.succeed(["find", journey.store + "/partial", "-type", "f", "-delete"])
        try journey.mount(nil, "--continue", "never")
        try journey.succeed(["head", "-c", "1000", journey.at("film.bin")])
        #expect(journey.log.contains("film.bin: its partial file is missing; "), "\(journey.log)")
      }
    }
  }

  @Test(arguments: ["never", "playing", "open", "always"]) func followsThePolicy(_ policy: String) throws {
    try withJourney { journey in
      try withFilm(journey, lineRate: 12e6) { origin in
        try journey.mount(origin.url("/film.bin") + "\n", "--continue", policy)
        // A look: an open and a little read from the front.
        try journey.python(reader, journey.at("film.bin"), "0:100000")
        if policy == "always" {
          try journey.wait(for: "complete", "film.bin")
          try journey.expectSentOnce(origin, "/film.bin")
          return
        }
        #expect(try journey.storedAtRest(origin, "film.bin") <= 1 << 20, "a look is not a play")

        // Played, and left open.
        let player = try journey.start(["/usr/bin/python3", "-u", "-c", holder, journey.at("film.bin"), "9000000"])
        defer { player.terminate() }
        try #require(player.waitForOutput("holding", timeout: 100))
        // What goes on while the file is open is not to be over before the player is ended.
        if policy == "open" { origin.configure { $0.lineRate = 2e6 } }
        switch policy {
        case "never": break
        default: try journey.wait(forStored: 12_000_000, "film.bin")
        }
        player.terminate()
        switch policy {
        case "playing":
          try journey.wait(for: "complete", "film.bin")
          try journey.expectSentOnce(origin, "/film.bin")
        default:
          let stored = try journey.storedAtRest(origin, "film.bin")
          #expect(stored >= 9_000_000 && stored < Self.size, "\(policy): \(stored)")
        }
        origin.configure { $0.lineRate = nil }
        // What a policy keeps from going on by itself can still be fetched.
        #expect(try journey.mediafs("fetch", "--wait", journey.at("film.bin")).status == 0)
        try journey.succeed(["cmp", journey.at("film.bin"), journey.folder.file("originals/film.bin")])
      }
    }
  }

  @Test func aLookIsCheap() throws {
    try withJourney { journey in
      try withFilm(journey, lineRate: nil) { origin in
        try journey.mount(origin.url("/film.bin") + "\n")
        #expect(try journey.succeed(["stat", "-c", "%s", journey.at("film.bin")]) == "\(Self.size)\n")
        _ = try journey.storedAtRest(origin, "film.bin")
        #expect(origin.log.totals.requests == 1 && origin.log.totals.bytesSent <= 256 << 10)
        // What the stat brought is what the first read needs.
        try journey.succeed(["head", "-c", "4096", journey.at("film.bin")])
        #expect(try journey.storedAtRest(origin, "film.bin") <= 1 << 20)
        #expect(origin.log.coverage(of: "/film.bin").bytesSentAgain == 0)
      }
    }
  }

  /// The network is back, and faster.
  private func thaw(_ origin: Origin) {
    origin.configure { settings in
      settings.isFrozen = false
      settings.lineRate = 12e6
    }
  }

  private func withFilm(_ journey: Journey, lineRate: Double?, _ body: (Origin) throws -> Void) throws {
    var settings = OriginSettings()
    settings.latency = 0.02
    settings.lineRate = lineRate
    try withOrigin(settings) { origin in
      origin.add("/film.bin", size: Self.size)
      try journey.original("film.bin", size: Self.size)
      try body(origin)
    }
  }
}

extension Journey {
  /// Lets the origin send no more, and waits until what it has sent of the file is stored.
  fileprivate func freeze(_ origin: Origin, _ path: String) throws {
    origin.configure { $0.isFrozen = true }
    var (last, same): (Int64, Int) = (-1, 0)
    try waitUntil(timeout: 60, interval: 0.2, "what was sent of \(path) to be stored") {
      let stored = try status().file(path).stored
      // Of a response that was broken off, what was on its way never comes.
      same = stored == last ? same + 1 : 0
      last = stored
      return stored >= origin.log.coverage(of: "/" + path).distinctBytes || same == 5
    }
  }

  /// Waits until nothing has been under way at the origin for a second, and gives what is stored of the file then.
  func storedAtRest(_ origin: Origin, _ path: String) throws -> Int64 {
    let end = Instant.now.adding(seconds: 60)
    var quietSince = Instant.now
    var requests = origin.log.totals.requests
    while Instant.now < end {
      let totals = origin.log.totals
      if totals.openRequests > 0 || totals.requests != requests { quietSince = .now }
      requests = totals.requests
      if Instant.now.seconds(since: quietSince) > 1 { return try status().file(path).stored }
      sleep(seconds: 0.02)
    }
    Issue.record("the origin never has a rest")
    return 0
  }
}

/// Reads parts (OFFSET:COUNT) through one descriptor, in order, in pieces of 64 KiB.
let reader = """
  import os, sys
  file = os.open(sys.argv[1], os.O_RDONLY)
  for part in sys.argv[2:]:
      offset, count = map(int, part.split(':'))
      while count:
          piece = os.pread(file, min(count, 65536), offset)
          assert piece, f'nothing at {offset}'
          offset, count = offset + len(piece), count - len(piece)
  """

/// Reads so many bytes and keeps the file open until it is ended.
private let holder = """
  import os, sys, time
  file, left = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2])
  while left: left -= len(os.read(file, min(left, 65536)))
  print('holding')
  time.sleep(1000)
  """
