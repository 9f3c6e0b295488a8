import Base
import Glibc
import TestSupport
import Testing

/// What is downloaded of the files that follow one that is being played.
@Suite struct NextTests {
  private static let size = Int64(24 << 20)
  private static let pace = 300_000
  /// The head, and 20 seconds at the player's pace, less an eighth: the pace is measured.
  private static let beginning = Int64(256 << 10) + Int64(pace * 20 * 7 / 8)

  @Test func theNextFilesStartAtOnce() throws {
    try withJourney { journey in
      try withFolder(journey) { origin in
        // Not in the order of the names: the list's counts.
        try journey.mount(["b", "a", "d", "c"].map { origin.url("/\($0).bin") + "\n" }.joined())
        let player = try journey.start(["/usr/bin/python3", "-u", "-c", paced, journey.at("b.bin"), "\(Self.pace)"])
        defer { player.terminate() }
        try journey.wait(forStored: Self.beginning, "a.bin")
        try journey.wait(forStored: Self.beginning, "d.bin")
        player.terminate()
        _ = try journey.storedAtRest(origin, "a.bin")
        let requests = origin.log.entries(of: "/a.bin").count
        #expect(requests > 0 && origin.log.entries(of: "/c.bin").isEmpty)
        #expect(origin.log.bytesSent(of: "/a.bin") < Self.size / 2)
        // Readers get what is stored. One that goes on gets more ahead of itself, and nothing again.
        try journey.python(reader, journey.at("a.bin"), "0:2000000")
        try journey.python(reader, journey.at("a.bin"), "2000000:3000000")
        // The origin notes a request's range when it answers.
        _ = try journey.storedAtRest(origin, "a.bin")
        let later = origin.log.entries(of: "/a.bin").dropFirst(requests).map { $0.request.range?.start ?? 0 }
        #expect(later.allSatisfy { $0 >= Self.beginning }, "\(later)")
        #expect(origin.log.coverage(of: "/a.bin").bytesSentAgain == 0)
      }
    }
  }

  @Test func nothingForScansAndCopiesAndWhenTurnedOff() throws {
    try withJourney { journey in
      try withFolder(journey) { origin in
        let film = try MediaFactory.file(.mp4IndexFirst)
        for number in 1...6 { origin.set("/\(number).mp4", OriginResource(file: film)) }
        let list = (1...6).map { origin.url("/\($0).mp4") } + ["a", "b", "c"].map { origin.url("/\($0).bin") }
        try journey.mount(list.joined(separator: "\n") + "\n")
        for number in 1...3 {
          try journey.succeed(["ffprobe", "-v", "error", "-show_streams", journey.at("\(number).mp4")])
          try journey.succeed(["file", journey.at("\(number).mp4")])
        }
        try journey.succeed(["cp", journey.at("a.bin"), journey.folder.file("copy")])
        sleep(seconds: 6)
        for path in ["/4.mp4", "/5.mp4", "/6.mp4", "/b.bin", "/c.bin"] {
          // A stat asks for the sizes of the names beside it too.
          #expect(origin.log.bytesSent(of: path) <= 4096, "\(path)")
        }
        try journey.unmount()
        try journey.mount(nil, "--next", "0")
        let player = try journey.start(["/usr/bin/python3", "-u", "-c", paced, journey.at("b.bin"), "\(Self.pace)"])
        defer { player.terminate() }
        try journey.wait(for: "complete", "b.bin")
        sleep(seconds: 6)
        #expect(origin.log.bytesSent(of: "/c.bin") <= 4096)
      }
    }
  }

  private func withFolder(_ journey: Journey, _ body: (Origin) throws -> Void) throws {
    var settings = OriginSettings()
    settings.latency = 0.02
    settings.lineRate = 8e6
    try withOrigin(settings) { origin in
      for name in ["a", "b", "c", "d"] { origin.add("/\(name).bin", size: Self.size) }
      try body(origin)
    }
  }
}

/// Reads a file at so many bytes a second, as a player with a small cache does.
private let paced = """
  import os, sys, time
  file, pace, count, begun = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2]), 0, time.monotonic()
  while piece := os.read(file, 65536):
      count += len(piece)
      time.sleep(max(0, begun + count / pace - time.monotonic()))
  time.sleep(1000)
  """
