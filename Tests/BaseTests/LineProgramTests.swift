import Base
import Glibc
import TestSupport
import Testing

@Suite("The line with real TCP", .enabled(if: TestLine.isPossible, "\(TestLine.reason)"))
struct LineProgramTests {
  /// Bounds from below only, which a loaded machine cannot break.
  @Test func delaysAndShapes() throws {
    try withTemporaryFolder(open: true) { folder in
      let bytes = Pattern.bytes(name: "a", offset: 0, count: 400_000)
      try folder.write(bytes, to: "root/a")
      try withLine(roundTrip: 0.1, rate: 1e5, queue: 100_000) { line in
        var settings = NginxSettings(.folder(folder.file("root")))
        settings.line = line
        try withNginx(settings) { nginx in
          let before = Instant.now
          let copy = try Command.run(line.inClient + ["curl", "-sS", "--max-time", "30", nginx.url("/a")])
          // Two round trips for the handshake and the request, then the bytes.
          #expect(Instant.now.seconds(since: before) >= 0.2 + 4)
          #expect(copy.succeeded && copy.standardOutput == bytes, "\(copy.status) \(copy.errors)")
          #expect(try Command.run(["curl", "-s", "--max-time", "1", nginx.url("/a")]).status != 0, "by the line alone")
        }
      }
    }
  }

  @Test func endsWithItsInput() throws {
    let result = try Command.run(
      [builtProduct("test-line"), "0", "1e6", "10000"], input: Array("\n".utf8), timeout: 20)
    #expect(result.status == 0 && result.output.contains("queued 0 most 0 passed"), "\(result.output)\(result.errors)")
  }

  @Test func endsWithItsParent() throws {
    try withTemporaryFolder { folder in
      let parent = #""$1" 0 1e6 10000 </dev/null >"$2" 2>&1 & until [ -s "$2" ]; do sleep 0.02; done"#
      try Command.succeed(["sh", "-c", parent, "sh", builtProduct("test-line"), folder.file("ready")])
      let words = try Command.succeed(["cat", folder.file("ready")]).split(whereSeparator: \.isWhitespace)
      try #require(words.count == 3 && words[0] == "ready", "\(words)")
      #expect(eventually { access(String(words[1]), F_OK) != 0 }, "it runs on, and keeps its namespaces")
    }
  }
}
