import Base
import Glibc
import TestSupport
import Testing

/// Whether a file plays without a stall, as the program says it, and as it is.
@Suite struct ReadyTests {
  @Test func itAnswersByItsExitStatus() throws {
    try withJourney { journey in
      try withOrigin { origin in
        let film = "index-first.mp4"
        origin.set("/\(film)", OriginResource(file: try MediaFactory.file(.mp4IndexFirst)))
        origin.add("/data.bin", size: 1 << 20)
        try journey.mount("\(origin.url("/\(film)"))\n\(origin.url("/data.bin"))\n", "--continue", "never")
        func ready(_ arguments: String...) throws -> (status: Int32, text: String) {
          let result = try journey.run([try Programs.path("mediafs"), "ready"] + arguments)
          return (result.status, result.output + result.errors)
        }

        // Nothing is stored: nobody knows, and no byte is fetched to find out.
        let unknown = try ready(journey.at(film))
        #expect(unknown.status == 1 && unknown.text.contains("its length in time is unknown"), "\(unknown)")
        #expect(origin.log.bytesSent(of: "/\(film)") == 0)

        // The head says when what plays.
        try journey.python(reader, journey.at(film), "0:4096")
        let stored = try journey.storedAtRest(origin, film)
        let stalls = try ready(journey.at(film))
        #expect(stalls.status == 1 && stalls.text.contains("would stall at 0:0"), "\(stalls)")
        #expect(stalls.text.contains("nothing downloads it now"), "\(stalls)")
        #expect(try ready("--wait", journey.at(film)) == stalls, "waiting does not help")
        let text = try journey.mediafs("status", journey.at(film)).output
        #expect(text.contains("film: 0:12 long, holds to 0:0"), "\(text)")
        let duration = try journey.succeed(
          ["getfattr", "--only-values", "-n", "user.mediafs.duration", journey.at(film)])
        #expect(abs((Double(duration) ?? 0) - Double(MediaFactory.seconds)) < 0.2, "\(duration)")
        let names = try journey.succeed(["getfattr", "-d", "-m", "-", journey.at(film)])
        #expect(names.contains("user.mediafs.holds_to="), "\(names)")
        #expect(try journey.storedAtRest(origin, film) == stored, "bytes were fetched to answer")

        // Complete, it plays from everywhere; so does a file that is no film.
        #expect(try journey.mediafs("fetch", "--wait", journey.at(film), journey.at("data.bin")).status == 0)
        for arguments in [[], ["--from", "0:05"], ["--wait"]] {
          let plays = try journey.run(
            [try Programs.path("mediafs"), "ready"] + arguments + [journey.at(film), journey.at("data.bin")])
          #expect(plays.status == 0, "\(plays)")
          #expect(plays.output.split(separator: "\n").count == 2 && plays.output.contains("plays through"), "\(plays)")
        }
        let file = try journey.status().file(film)
        #expect(file.state == "complete")

        // An error is not the same as a stall.
        for arguments in [
          ["--from", "1:00:00", journey.at(film)], ["--from", "soon", journey.at(film)], [journey.at("none.mp4")], [],
        ] {
          let wrong = try journey.run([try Programs.path("mediafs"), "ready"] + arguments)
          #expect(wrong.status == 2 && !wrong.errors.isEmpty, "\(arguments): \(wrong)")
        }
        try journey.unmount()
        #expect(try ready(journey.at(film)).status == 2, "no server runs")
      }
    }
  }

  @Test func itWaitsForAsMuchAsIsNeeded() throws {
    try withJourney { journey in
      try withOrigin { origin in
        let film = try MediaFactory.file(.mp4IndexFirst)
        let size = try #require(sizeOfFile(film))
        origin.set("/film.mp4", OriginResource(file: film))
        // The line brings 40 % of what the film plays: it plays through from some 18 s on.
        origin.configure { $0.lineRate = 0.4 * Double(size) / Double(MediaFactory.seconds) }
        try journey.mount(origin.url("/film.mp4") + "\n")
        #expect(try journey.mediafs("fetch", journey.at("film.mp4")).status == 0)
        try journey.python(reader, journey.at("film.mp4"), "0:65536")
        let now = try journey.run([try Programs.path("mediafs"), "ready", journey.at("film.mp4")])
        #expect(now.status == 1 && now.output.contains("would stall"), "\(now)")
        let waited = try journey.run([try Programs.path("mediafs"), "ready", "--wait", journey.at("film.mp4")])
        let file = try journey.status().file("film.mp4")
        #expect(waited.status == 0 && waited.output.contains("plays through"), "\(waited)")
        #expect(file.state != "complete", "it waited for all of the file")
      }
    }
  }

  /// A line that brings 40 % of what the film plays, and a film whose index is stored.
  private func withSlowFilm(_ body: (Journey, _ film: String) throws -> Void) throws {
    try withJourney { journey in
      try withOrigin { origin in
        let film = try MediaFactory.file(.mp4IndexFirst)
        let size = try #require(sizeOfFile(film))
        origin.set("/film.mp4", OriginResource(file: film))
        origin.configure { $0.lineRate = 0.4 * Double(size) / Double(MediaFactory.seconds) }
        try journey.mount(origin.url("/film.mp4") + "\n", "--continue", "never")
        try journey.python(reader, journey.at("film.mp4"), "0:65536")
        try body(journey, journey.at("film.mp4"))
      }
    }
  }

  @Test func itWaitsForADownloadThatIsAskedForLaterAndForTheNextServer() throws {
    try withSlowFilm { journey, film in
      let waiting = try journey.start([try Programs.path("mediafs"), "ready", "--wait", film])
      usleep(1_500_000)  // it has asked, and nothing downloads the file
      #expect(waiting.isRunning, "\(waiting.standardErrorSoFar)\(waiting.standardOutputSoFar)")
      #expect(try journey.mediafs("fetch", film).status == 0)
      kill(try #require(try journey.status().pid), SIGKILL)
      let waited = try #require(waiting.wait(timeout: 120))
      #expect(waited.status == 0 && waited.output.contains("plays through"), "\(waited)")
    }
  }

  @Test func aPlaceBehindTheEndIsAnErrorAtOnce() throws {
    try withSlowFilm { journey, film in
      #expect(try journey.mediafs("fetch", film).status == 0)
      let wrong = try journey.run([try Programs.path("mediafs"), "ready", "--wait", "--from", "1:00:00", film])
      #expect(wrong.status == 2 && wrong.errors.contains("behind its end"), "\(wrong)")
      #expect(try journey.status().file("film.mp4").state != "complete", "it waited")
    }
  }

  @Test func itIsKnownAgainAfterARestart() throws {
    try withJourney { journey in
      try withOrigin { origin in
        let film = "film.mkv"
        origin.set("/\(film)", OriginResource(file: try MediaFactory.file(.matroska)))
        try journey.mount("\(origin.url("/\(film)"))\n", "--continue", "never")
        let size = try #require(sizeOfFile(MediaFactory.file(.matroska)))
        try journey.python(reader, journey.at(film), "0:400000", "\(size - 4096):4096")
        _ = try journey.storedAtRest(origin, film)
        func attributes() throws -> [String] {
          try ["duration", "holds_to"].map { name in
            try journey.succeed(["getfattr", "--only-values", "-n", "user.mediafs.\(name)", journey.at(film)])
          }
        }
        let before = try attributes()
        #expect(abs((Double(before[0]) ?? 0) - Double(MediaFactory.seconds)) < 0.2, "\(before)")
        try journey.unmount()
        let sent = origin.log.bytesSent(of: "/\(film)")
        try journey.mount(nil, "--continue", "never")
        #expect(try attributes() == before)
        #expect(origin.log.bytesSent(of: "/\(film)") == sent, "bytes were fetched to answer")
      }
    }
  }

  /// mpv, with a cache of two seconds, on a line that is slower than the film, and on one that is faster.
  @Test(arguments: [0.6, 1.7]) func whatIsSaidOfAPlayHolds(share: Double) throws {
    try withJourney { journey in
      try withOrigin { origin in
        // Twelve seconds, three times.
        let film = journey.folder.file("long.mp4")
        try Command.succeed(
          [
            "ffmpeg", "-nostdin", "-v", "error", "-stream_loop", "2", "-i", try MediaFactory.file(.mp4IndexFirst), "-c",
            "copy", "-movflags", "+faststart", film,
          ], timeout: 60)
        let rate = Double(try #require(sizeOfFile(film))) / Double(3 * MediaFactory.seconds)
        origin.configure {
          $0.latency = 0.03
          $0.lineRate = share * rate
        }
        origin.set("/long.mp4", OriginResource(file: film))
        try journey.mount(origin.url("/long.mp4") + "\n")
        let said = try journey.play(journey.at("long.mp4"), predicted, try Programs.path("mediafs"))
        #expect(said == (share < 1 ? "1 stalled\n" : "0 played through\n"), "\(said)")
      }
    }
  }
}

/// Ten seconds after the film began to play, asks `mediafs ready`; then looks for a stall until it is over.
private let predicted = """
  with Player('--cache=yes', '--cache-secs=2', '--demuxer-readahead-secs=2', '--keep-open=yes') as player:
      player.begin()
      time.sleep(10)
      said = subprocess.run([arguments[0], 'ready', path], stdout=subprocess.PIPE)
      print(said.returncode, 'stalled' if player.stalls() else 'played through')
  """
