import Base
import Glibc
import TestSupport
import Testing

/// Films that mpv plays beside others, and over lines that change. mpv says itself whether it stalls.
@Suite struct StallTests {
  /// The copies are there first, and take all that comes.
  @Test func besideCopies() throws {
    try withFilm(shareOfLine: 0.6, latency: 0.08) { journey, origin, mount in
      let copies = (0..<3).map { "copy\($0).bin" }
      for name in copies { origin.add("/\(name)", size: 1 << 30) }
      try mount(copies, ["--continue", "never"])
      let running = try copies.map { try journey.start(["dd", "bs=128K", "of=/dev/null", "if=" + journey.at($0)]) }
      defer { for copy in running { copy.signal(SIGKILL) } }
      sleep(seconds: 10)  // their credit is used up
      let said = try journey.play(journey.at("film.mkv"), plays)
      #expect(running.allSatisfy { $0.isRunning }, "nothing was copied beside it")
      return said
    }
  }

  /// The scanners go from file to file, and could take more than the line brings. The player jumps.
  @Test func besideScanners() throws {
    try withFilm(shareOfLine: 0.3, latency: 0.04) { journey, origin, mount in
      let clips = (0..<8).map { scanner in (0..<160).map { "clip\(scanner)-\($0).bin" } }
      for name in clips.joined() { origin.add("/\(name)", size: 16 << 20) }
      try mount(Array(clips.joined()), [])
      let running = try clips.map { names in
        try journey.start(["/usr/bin/python3", "-c", scans] + names.map { journey.at($0) })
      }
      defer { for scanner in running { scanner.signal(SIGKILL) } }
      sleep(seconds: 2)
      let said = try journey.play(journey.at("film.mkv"), plays, "6", "16")
      #expect(running.contains { $0.isRunning }, "nothing was scanned beside it")
      return said
    }
  }

  /// The line is as good as away for two seconds, its connections end, and it is halved for six seconds.
  @Test func overALineThatChanges() throws {
    try withFilm(shareOfLine: 0.5, latency: 0.08) { journey, origin, mount in
      try mount([], [])
      let line = try #require(origin.settings.lineRate)
      let player = try journey.start(journey.playing(journey.at("film.mkv"), plays))
      defer { player.terminate() }
      #expect(player.waitForOutput("began"))
      for (seconds, share) in [(4.0, 0.01), (2, 1), (2, 0.5), (6, 1)] {
        sleep(seconds: seconds)
        origin.configure { $0.lineRate = line * share }
        if share == 0.5 { origin.dropConnections() }
      }
      let result = try #require(player.wait(timeout: 60))
      return result.output + result.errors
    }
  }

  /// A film of 30 seconds, at an origin whose line brings it at 1 / `share` of its pace. `body` mounts it with others,
  /// and returns what the player said. A machine that is short of processor time stalls a player too, now and then. A
  /// line that is shared wrongly stalls it each time: one play in three has to get through.
  private func withFilm(
    shareOfLine share: Double, latency: Double,
    _ body: (_ journey: Journey, _ origin: Origin, _ mount: (_ others: [String], _ options: [String]) throws -> Void)
      throws -> String
  ) throws {
    var said: [String] = []
    while said.count < 3, said.last != "began\nplayed through\n" {
      said.append(try played(shareOfLine: share, latency: latency, body))
    }
    #expect(said.last == "began\nplayed through\n", "\(said)")
  }

  private func played(
    shareOfLine share: Double, latency: Double,
    _ body: (_ journey: Journey, _ origin: Origin, _ mount: (_ others: [String], _ options: [String]) throws -> Void)
      throws -> String
  ) throws -> String {
    var said = ""
    try withJourney { journey in
      try withOrigin { origin in
        let film = journey.folder.file("film.mkv")
        let picture = "testsrc2=s=640x360:r=25:d=30,noise=alls=30:allf=t"
        try Command.succeed(
          [
            "ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", picture, "-c:v", "libx264", "-preset",
            "ultrafast", "-b:v", "8M", "-maxrate", "8M", "-bufsize", "4M", "-pix_fmt", "yuv420p", "-g", "50", film,
          ], timeout: 120)
        let rate = Double(try #require(sizeOfFile(film))) / 30
        origin.configure {
          $0.latency = latency
          $0.lineRate = rate / share
        }
        origin.set("/film.mkv", OriginResource(file: film))
        said = try body(journey, origin) { others, options in
          try journey.list((["film.mkv"] + others).map { origin.url("/\($0)") + "\n" }.joined())
          try journey.succeed(try journey.mountCommand(options))
        }
      }
    }
    return said
  }
}

/// Plays to the end with a cache of two seconds; at the second of its first argument it jumps to that of its second.
private let plays = """
  with Player('--cache=yes', '--cache-secs=2', '--demuxer-readahead-secs=2', '--keep-open=yes') as player:
      player.begin()
      print('began', flush=True)
      print('stalled' if player.stalls(*map(float, arguments)) else 'played through')
  """

/// Reads the head and the tail of one file after the other.
private let scans = """
  import os, sys
  for path in sys.argv[1:]:
      file = os.open(path, os.O_RDONLY)
      os.pread(file, 65536, 0)
      os.pread(file, 65536, os.fstat(file).st_size - 65536)
      os.close(file)
  """
