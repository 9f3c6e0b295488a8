import Base
import Glibc
import TestSupport
import Testing

/// A day of a feed: played while it is edited, with links that expire.
@Suite struct DayTests {
  /// A feed's episodes, and an origin that serves each link for five seconds.
  private final class Show {
    let journey: Journey
    let origin: Origin
    let media: String
    let size: Int64
    let asks: String

    init(_ journey: Journey, _ origin: Origin) throws {
      (self.journey, self.origin) = (journey, origin)
      media = try MediaFactory.file(.mp3)
      size = Int64(try MediaFactory.bytes(.mp3).count)
      asks = journey.folder.file("asks")
      for number in 0..<10 {
        origin.set("/\(number).mp3", OriginResource(file: media, type: "audio/mpeg"))
      }
      // Slower than a link lives: each episode outlives one.
      origin.configure { $0.lineRate = Double(size) / 3 }
      origin.decide { request in
        let until = request.target.split(separator: "=").last.flatMap { Int($0) } ?? 0
        return until < time(nil) ? [.status(403)] : []
      }
    }

    /// Gives the resolver of the feed: a link that ends in five seconds.
    func resolver() throws -> String {
      try journey.folder.write(
        #"""
        #!/bin/sh
        while read -r ask; do
          echo "$ask" >>"$1"
          key=$(printf '%s' "$ask" | sed 's/.*"key":"\([^"]*\)".*/\1/')
          source=$(printf '%s' "$ask" | sed 's/.*"source":"\([^"]*\)".*/\1/')
          until=$(($(date +%s) + 5))
          printf '{"key":"%s","url":"%s?until=%s","expires":%s}\n' "$key" "$source" "$until" "$until"
        done

        """#, to: "resolver", mode: 0o755)
    }

    /// The feed of some episodes. It does not know their sizes, but says that it does.
    func feed(_ numbers: some Sequence<Int>) -> String {
      let items = numbers.map { number in
        """
        <item><title>Episode \(number)</title><pubDate>Tue, \(10 + number) Nov 2026 08:00:00 +0000</pubDate>
        <enclosure url="\(origin.url("/\(number).mp3"))" length="\(1000 * (number + 1))" type="audio/mpeg"/></item>
        """
      }
      return "<rss version=\"2.0\"><channel><title>A show</title>\(items.joined(separator: "\n"))</channel></rss>\n"
    }

    func name(_ number: Int) -> String { "2026-11-\(10 + number) Episode \(number).mp3" }
    func path(_ number: Int) -> String { journey.at("A show/\(name(number))") }

    /// Plays an episode, four times as fast as it is.
    func play(_ number: Int) throws -> BackgroundProcess {
      try journey.start(
        [
          "mpv", "--no-config", "--vo=null", "--ao=null", "--really-quiet", "--no-terminal", "--speed=4", path(number),
        ])
    }

    func hasNames(_ numbers: some Sequence<Int>) -> Bool {
      eventually { (try? journey.succeed(["ls", journey.at("A show")])) == numbers.map { name($0) + "\n" }.joined() }
    }
  }

  @Test("Ten episodes play while their feed is edited, cut, broken and mended, and their links expire")
  func aDay() throws {
    try withJourney { journey in
      try withOrigin { origin in
        let show = try Show(journey, origin)
        let resolver = try show.resolver()
        try journey.mount(
          show.feed(0..<8), "--resolver", "links=\(resolver) \(show.asks)", "--resolve", "links", "--timeout", "60")
        let watcher = try journey.start([
          "inotifywait", "-m", "-e", "create,delete,attrib,move", "--format", "%e %f", journey.at("A show"),
        ])
        defer { watcher.terminate() }
        try #require(watcher.waitForOutput("Watches established"))
        for number in 0..<10 {
          if number == 4 || number == 6 { sleep(seconds: 1) }
          let player = try show.play(number)
          switch number {
          case 2:
            try journey.list(show.feed(0..<10))
            #expect(show.hasNames(0..<10))
          case 4:
            // Removed under its player.
            try journey.wait(forStored: 64 << 10, "A show/\(show.name(4))")
            try journey.list(show.feed((0..<10).filter { $0 != 4 }))
            #expect(show.hasNames((0..<10).filter { $0 != 4 }))
          case 6:
            try journey.list("<rss><channel><title>A sh")
            let told = eventually {
              (try? journey.mediafs("status", journey.mountpoint).output.contains("the mount stays as it was")) == true
            }
            #expect(told, "\(journey.log.suffix(2000))")
            #expect(show.hasNames((0..<10).filter { $0 != 4 }))
          case 7:
            try journey.list(show.feed(0..<10))
            #expect(show.hasNames(0..<10))
          default: break
          }
          let ended = player.wait(timeout: 60)
          #expect(ended != nil, "\(number): \(journey.log.suffix(2000))")
          if number != 4 { #expect(ended?.status == 0, "\(number)") }
        }
        for number in 0..<10 {
          try journey.succeed(["cmp", show.path(number), show.media])
          let sent = origin.log.bytesSent(of: "/\(number).mp3")
          // What was on its way when the line went is lost.
          if number == 4 {
            #expect(Double(sent) <= 1.2 * Double(show.size), "\(sent)")
          } else {
            #expect(origin.log.sentMoreThanOnce(of: "/\(number).mp3").isEmpty, "\(number)")
            #expect(sent == show.size, "\(number)")
          }
        }
        let told = [("CREATE", 8), ("CREATE", 9), ("DELETE", 4), ("CREATE", 4)].map { "\($0) \(show.name($1))\n" }
        #expect(watcher.standardOutputSoFar == told.joined(), "each name that came or went, once")
        let asks = readText(show.asks).split(separator: "\n").count
        #expect(asks > 10, "\(asks) links for ten episodes")
      }
    }
  }
}
