import TestSupport
import Testing

/// Lists as people write them.
@Suite struct ManifestTests {
  @Test func playlistsAndStandardInput() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.add("/first.mp3", size: 1000)
        origin.add("/second", size: 2000)
        let playlist = """
          #EXTM3U
          #EXTINF:123 tvg-id="x",An artist - The first
          \(origin.url("/first.mp3"))
          #EXTINF:-1,What / is this?
          \(origin.url("/second"))

          """
        try journey.folder.write(playlist, to: "list.m3u8")
        let command = try journey.mountCommand()
        let listed = { try journey.succeed(["ls", journey.mountpoint]) }
        try journey.succeed(command.map { $0 == journey.manifest ? journey.folder.file("list.m3u8") : $0 })
        #expect(try listed() == "An artist - The first.mp3\nWhat _ is this?\n")
        #expect(try journey.succeed(["wc", "-c", journey.at("An artist - The first.mp3")]).hasPrefix("1000 "))
        try journey.unmount()

        try journey.succeed(command.map { $0 == journey.manifest ? "-" : $0 }, input: Array(playlist.utf8))
        #expect(try listed() == "An artist - The first.mp3\nWhat _ is this?\n")
        #expect(try journey.succeed(["cat", journey.at("What _ is this?")]).utf8.count > 0)
        try journey.unmount()

        try journey.succeed(
          command.map { $0 == journey.manifest ? "-" : $0 }, input: Array((origin.url("/x.mp4") + "\n").utf8))
        #expect(try listed() == "x.mp4\n")
      }
    }
  }

  @Test func relativePlaylistsNeedABase() throws {
    try withJourney { journey in
      try withOrigin { origin in
        for path in ["/music/disc/one.mp3", "/music/two.mp3", "/three.mp3"] { origin.add(path, size: 1000) }
        let titles = [("One", "disc/one.mp3"), ("Two", "./two.mp3?x=1"), ("Three", "/three.mp3")]
        let playlist = "#EXTM3U\n" + titles.map { "#EXTINF:1,\($0)\n\($1)\n" }.joined()
        let list = try journey.folder.write(playlist, to: "list.m3u8")
        let command = try journey.mountCommand().map { $0 == journey.manifest ? list : $0 }
        let without = try journey.run(command)
        #expect(without.status != 0 && without.errors.contains("--base-url"), "\(without.errors)")

        let base = ["--base-url", origin.url("/music/list.m3u8")]
        try journey.succeed(command + base)
        #expect(try journey.succeed(["ls", journey.mountpoint]) == "One.mp3\nThree.mp3\nTwo.mp3\n")
        for (name, path) in [
          ("One.mp3", "/music/disc/one.mp3"), ("Two.mp3", "/music/two.mp3"), ("Three.mp3", "/three.mp3"),
        ] {
          try journey.folder.write(Pattern.bytes(name: path, offset: 0, count: 1000), to: "expected")
          try journey.succeed(["cmp", journey.at(name), journey.folder.file("expected")])
        }
        #expect(origin.log.entries(of: "/music/two.mp3").first?.request.target == "/music/two.mp3?x=1")
        try journey.unmount()
        let checked = try journey.run([try Programs.path("mediafs"), "check", list] + base)
        #expect(checked.status == 0 && checked.output.contains("Three.mp3"), "\(checked.output)\(checked.errors)")
      }
    }
  }

  @Test func otherFormats() throws {
    try withJourney { journey in
      try withOrigin { origin in
        for path in ["/get", "/film.mkv"] { origin.add(path, size: 1000) }
        let feed = """
          <rss version="2.0"><channel><title>Show</title><item><title>Words</title></item>
          <item><title>One</title><pubDate>Mon, 23 Nov 2026 18:00:00 +0100</pubDate>
          <enclosure url="\(origin.url("/get"))" length="1000" type="audio/mpeg"/></item></channel></rss>
          """
        let list = try journey.folder.write(feed, to: "feed.xml")
        let command = try journey.mountCommand()
        let mounted = try journey.run(command.map { $0 == journey.manifest ? list : $0 })
        #expect(mounted.succeeded && mounted.errors.contains("items without an enclosure (1) (feed)"), "\(mounted)")
        #expect(try journey.succeed(["ls", journey.at("Show")]) == "2026-11-23 One.mp3\n")
        #expect(try journey.succeed(["wc", "-c", journey.at("Show/2026-11-23 One.mp3")]).hasPrefix("1000 "))
        try journey.unmount()

        let checked = try journey.mediafs("check", list)
        #expect(checked.status == 0 && checked.output.contains("2026-11-23 One.mp3"), "\(checked.errors)")
        #expect(checked.output.hasSuffix("feed: 1 file, 1 folder, 0 errors, 1 warning\n"), "\(checked.output)")
        #expect(
          checked.errors.contains(":1: warning: left out: items without an enclosure (1) (feed)\n"), "\(checked.errors)"
        )
        let forced = try journey.mediafs("check", "--format=pls", list)
        #expect(forced.status == 1 && !forced.output.contains("One.mp3"))
        #expect(forced.errors.contains("manifest \(list): this PLS playlist has no usable line"), "\(forced.errors)")
        #expect(try journey.mediafs("check", "--format=rar", list).status == 2)
        let other = try journey.run(command.map { $0 == journey.manifest ? list : $0 } + ["--format=metalink"])
        #expect(other.status == 1 && other.errors.contains("Metalink"), "\(other.errors)")

        try journey.folder.write(origin.url("/film.mkv"), to: "films/A film.strm")
        try journey.succeed(command.map { $0 == journey.manifest ? journey.folder.file("films") : $0 })
        #expect(try journey.succeed(["ls", journey.mountpoint]) == "A film.mkv\n")
      }
    }
  }

  /// The file of cookies lies beside the list, wherever the command runs.
  @Test func cookiesAndPasswordsAreSent() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.add("/a.mp4", size: 1000)
        try journey.folder.write("127.0.0.1\tFALSE\t/\tFALSE\t0\tsession\tgeheim\n", to: "cookies.txt")
        try journey.mount("\(origin.url("/a.mp4"))\n load-cookies=cookies.txt\n http-user=a\n http-passwd=b\n")
        try journey.succeed(["cat", journey.at("a.mp4")])
        let request = try #require(origin.log.entries.first).request
        #expect(request.header("cookie") == "session=geheim" && request.header("authorization") == "Basic YTpi")
        let checked = try journey.mediafs("check", journey.manifest)
        #expect(checked.status == 0 && checked.errors.isEmpty, "\(checked.errors)")
      }
    }
  }

  @Test func badLinesAreReportedAndSkipped() throws {
    try withJourney { journey in
      let text = "http://127.0.0.1:9/good.mp4\r\nftp://127.0.0.1/bad.mp4\n# fine\n\n  what=is this\nhttp://[half/\n"
      try journey.list(text)
      let mounted = try journey.run(try journey.mountCommand())
      #expect(mounted.status == 0, "\(mounted.errors)")
      #expect(mounted.errors.contains("2") && mounted.errors.contains("6"), "\(mounted.errors)")
      #expect(try journey.succeed(["ls", journey.mountpoint]) == "good.mp4\n")
      try journey.unmount()

      let strict = try journey.run(try journey.mountCommand(["--strict"]))
      #expect(strict.status == 1 && strict.errors.contains("2"), "\(strict.errors)")
      #expect(!Mounts.isMounted(journey.mountpoint))

      let checked = try journey.mediafs("check", journey.manifest)
      #expect(checked.status == 1 && checked.output.contains("good.mp4"), "\(checked.output)\(checked.errors)")
      for line in ["2", "6"] { #expect(checked.errors.contains(":\(line):"), "\(checked.errors)") }
    }
  }

  /// Who needs a resolver is told of it once: by a check, and by a mount whose options define none.
  @Test func aResolverThatIsMissingIsTold() throws {
    try withJourney { journey in
      let pages = (1...3).map {
        #"{"_type": "url", "id": "\#($0)", "title": "T\#($0)", "url": "http://127.0.0.1:9/\#($0)"}"#
      }
      try journey.list(pages.joined(separator: "\n") + "\n")
      let words =
        ":1: note: a resolver gives the links of entries, the first here: mount with --resolver ytdlp=mediafs-"
      let checked = try journey.mediafs("check", journey.manifest)
      #expect(checked.status == 0 && checked.output.hasSuffix("3 files, 0 folders, 0 errors, 0 warnings\n"))
      #expect(checked.errors.components(separatedBy: words).count == 2, "\(checked.errors)")
      let told = ":1: a resolver gives the links of entries"
      let mounted = try journey.run(try journey.mountCommand())
      #expect(mounted.succeeded && mounted.errors.components(separatedBy: told).count == 2, "\(mounted.errors)")
      try journey.unmount()
      let defined = try journey.run(try journey.mountCommand(["--resolver", "ytdlp=cat", "--strict"]))
      #expect(defined.succeeded && !defined.errors.contains(told), "\(defined.errors)")
      try journey.unmount()
      // Also of a list that shows in a folder of its own, and for the entries that --resolve is for.
      try journey.list("http://127.0.0.1:9/a.mp4\nhttp://127.0.0.1:9/b.mp4\n  resolver=other\n")
      let manifest = "A=\(journey.manifest)"
      let command = try journey.mountCommand().map { $0 == journey.manifest ? manifest : $0 }
      let several = try journey.run(command + ["--resolver", "one=cat", "--resolve", "one"])
      let warned = several.errors.split(separator: "\n").filter { $0.contains("a resolver gives the links") }
      #expect(several.succeeded && warned.count == 1, "\(several.errors)")
      #expect(warned[0].contains(":2: ") && warned[0].hasSuffix("--resolver other=PROGRAM"), "\(warned)")
    }
  }

  /// A list of which every line is bad takes no more memory than its first problems.
  @Test func problemsHaveALimit() throws {
    try withJourney { journey in
      try journey.list("http://127.0.0.1:9/a.mp4\n" + String(repeating: "nonsense\n", count: 12_000))
      let checked = try journey.mediafs("check", journey.manifest)
      #expect(checked.status == 1 && checked.output.hasSuffix("1 file, 0 folders, 12000 errors, 0 warnings\n"))
      let lines = checked.errors.split(separator: "\n")
      #expect(lines.count == 10_001 && lines.last == "2000 more problems are not printed; mend these first")
    }
  }

  @Test(arguments: ["", "# nothing\n\n", "ftp://x/y\nnonsense\n", "<!DOCTYPE html><html></html>\n"])
  func aListOfNothingIsAnError(_ text: String) throws {
    try withJourney { journey in
      try journey.list(text)
      let result = try journey.run(try journey.mountCommand())
      #expect(result.status == 1 && !result.errors.isEmpty)
      #expect(!Mounts.isMounted(journey.mountpoint))
      let processes = try journey.succeed(["ps", "-eo", "args"])
      #expect(!processes.contains(journey.mountpoint), "nothing is left running")
    }
  }
}
