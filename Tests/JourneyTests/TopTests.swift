import Base
import Glibc
import TestSupport
import Testing

@testable import mediafs

/// `mediafs top` in a real terminal, on a real mount.
@Suite struct TopTests {
  /// Reads a file slowly until it is told to end.
  private static let reader = """
    import os, sys, time
    file = os.open(sys.argv[1], os.O_RDONLY)
    for piece in range(100000):
      os.pread(file, 65536, piece * 65536)
      time.sleep(0.2)
    """

  private func top(_ journey: Journey, _ variables: String = "LC_ALL=C.UTF-8") throws -> String {
    "env -u NO_COLOR \(variables) \(try Programs.path("mediafs")) top \(journey.mountpoint) --delay 0.2"
  }

  /// The terminal is the shell's again: it echoes, has its cursor, and the screen from before.
  private func expectRestored(
    _ terminal: TmuxTerminal, _ status: String, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    try terminal.wait("the end", sourceLocation: sourceLocation) { _ in try !terminal.isTaken }
    try terminal.command("echo ended $?")
    try terminal.wait(for: status, sourceLocation: sourceLocation)
    #expect(try !terminal.isTaken && terminal.hasCursor, sourceLocation: sourceLocation)
    try terminal.command("clear; stty -a | tr ' ' '\\n' | tr -d ';' | grep -xE '.?(icanon|echo|isig)' | tr '\\n' ' '")
    try terminal.wait("the modes of a shell", sourceLocation: sourceLocation) { screen in
      ["isig", "icanon", "echo"].allSatisfy { screen.split { " \n".contains($0) }.contains(Substring($0)) }
    }
    try terminal.command("clear")
  }

  @Test("Three sizes, resized live; keys filter, sort, fetch, clear; a server that is killed; an end by q")
  func sizesAndKeys() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.add("/film.mkv", size: 256 << 20)
        for number in 0..<30 { origin.add("/song\(number).flac", size: 1 << 20) }
        let list = [origin.url("/film.mkv")] + (0..<30).map { origin.url("/song\($0).flac") }
        try journey.mount(list.joined(separator: "\n") + "\n", "--continue", "open", "--limit-rate", "3M")
        let reader = try journey.start(["/usr/bin/python3", "-c", Self.reader, journey.at("film.mkv")])
        defer { reader.terminate(grace: 0) }
        let host = origin.url()
        try withTerminal(journey) { terminal in
          try terminal.command(try top(journey))
          for (columns, rows) in [(80, 24), (120, 40), (300, 100), (80, 24)] {
            try terminal.resize(columns: columns, rows: rows)
            try terminal.wait("the screen of \(columns)x\(rows)") { screen in
              let lines = screen.split(separator: "\n", omittingEmptySubsequences: false)
              // The title is as wide as the terminal, the keys stand in its last line.
              return screen.contains("python3") && screen.contains(host) && screen.contains("●")
                && lines.prefix(rows).count == rows && lines[rows - 1].hasPrefix(" f fetch")
                && lines[rows - 1].hasSuffix("q quit")
                && lines[0].count >= columns - 2 && lines[0].count <= columns
            }
          }
          #expect(try terminal.isTaken && !terminal.hasCursor)
          let screen = try terminal.screen
          let row = try #require(screen.split(separator: "\n").first { $0.hasPrefix("▸ film.mkv") })
          #expect(row.contains("●") && (row.contains("MiB/s") || row.contains("KiB/s")), "\(row)")
          #expect(screen.contains("31 files") && screen.contains("1 reader"), "\(screen)")
          #expect(screen.contains("python3 (\(reader.processID))"), "\(screen)")

          // All files, filtered; one of them is fetched and cleared.
          try journey.succeed(["cat", journey.at("song7.flac")])
          try journey.succeed(["cat", journey.at("song8.flac")])
          try terminal.type("a", "/")
          try terminal.write("song7")
          try terminal.wait("the filter") { $0.contains("song7.flac") && !$0.contains("film.mkv") }
          try terminal.type("Enter", "c")
          try terminal.wait(for: "stored of song7.flac? y/n")
          try terminal.type("y")
          try terminal.wait(for: "cleared 1.00 MiB of 1 file")
          #expect(try journey.status().file("song7.flac").stored == 0)
          try terminal.type("Escape", "/")
          try terminal.write("song8")
          try terminal.type("Enter", "f")
          try terminal.wait(for: "fetching song8.flac")
          try terminal.type("k")
          try terminal.wait(for: "song8.flac is kept from now on")
          #expect(try journey.status().file("song8.flac").rule?.word == "keep")
          try terminal.type("Escape", "h")
          try terminal.wait(for: "Any key goes back.")
          try terminal.type("x", "Home")
          try terminal.wait(for: "▸ film.mkv")

          // The next server goes on, and so does the view.
          let before = try #require(try serverProcess(journey))
          try #require(kill(before, SIGKILL) == 0)
          try terminal.wait("the next server") { $0.contains("another server goes on") }
          try terminal.wait(for: "python3")
          try terminal.type("q")
          try expectRestored(terminal, "ended 0")
        }
      }
    }
  }

  /// The process that serves, as status tells it.
  private func serverProcess(_ journey: Journey) throws -> pid_t? {
    let text = try journey.succeed([try Programs.path("mediafs"), "status", journey.mountpoint])
    return text.firstRange(of: "process ").flatMap { pid_t(text[$0.upperBound...].prefix { $0.isNumber }) }
  }

  @Test("No color and no UTF-8 where the user wants none; ^Z, SIGTERM, a crash and the mount's end leave the terminal")
  func endsAndPlainTerminals() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.add("/film.mkv", size: 256 << 20)
        try journey.mount(origin.url("/film.mkv") + "\n", "--continue", "open", "--limit-rate", "3M")
        let reader = try journey.start(["/usr/bin/python3", "-c", Self.reader, journey.at("film.mkv")])
        defer { reader.terminate(grace: 0) }
        try withTerminal(journey) { terminal in
          // Colors 1 to 7 are set by 30 to 37.
          let color = #/\u{1B}\[[0-9;]*3[1-7][;m]/#
          try terminal.command(try top(journey))
          try terminal.wait(for: "python3")
          let colored = try terminal.colored
          #expect(colored.contains(color), "\(colored.debugDescription)")

          // Stopped and continued.
          try terminal.type("C-z")
          try terminal.wait(for: "Stopped")
          #expect(try !terminal.isTaken && terminal.hasCursor)
          try terminal.command("clear; fg")
          try terminal.wait("the screen again") { $0.contains("mediafs top") && $0.contains("python3 (") }
          try terminal.type("C-c")
          try expectRestored(terminal, "ended 130")

          try terminal.command(try top(journey, "LC_ALL=C NO_COLOR=1"))
          try terminal.wait(for: "python3")
          let plain = try terminal.screen
          #expect(plain.utf8.allSatisfy { $0 < 0x80 }, "\(plain)")
          #expect(plain.contains("@.") && plain.contains("> film.mkv"), "\(plain)")
          #expect(try !terminal.colored.contains(color))
          for (signal, status) in [(SIGTERM, "ended 143"), (SIGSEGV, "ended 139")] {
            if signal != SIGTERM {
              try terminal.command(try top(journey))
              try terminal.wait(for: "python3 (")
            }
            let process = try journey.succeed(["pgrep", "-f", "^[^ ]*mediafs top \(journey.mountpoint)"])
            let number = try #require(pid_t(process.split(separator: "\n").first ?? ""))
            try #require(kill(number, signal) == 0)
            try expectRestored(terminal, status)
          }

          try terminal.command("TERM=dumb \(try top(journey))")
          try terminal.wait(for: "top needs a terminal")

          try terminal.command(try top(journey))
          try terminal.wait(for: "python3 (")
          reader.terminate(grace: 0)
          try journey.unmount()
          try terminal.wait(for: "was unmounted.")
          try expectRestored(terminal, "ended 0")
        }
        try journey.mount()
        let piped = try journey.mediafs("top", journey.mountpoint)
        #expect(piped.status == 1 && piped.errors.contains("mediafs status"), "\(piped)")
        #expect(try journey.mediafs("top", "--delay", "0").status == 2)
        try journey.unmount()
      }
    }
  }
}
