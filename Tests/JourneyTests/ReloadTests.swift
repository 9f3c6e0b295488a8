import Base
import Glibc
import TestSupport
import Testing

/// A list that changes under its mount.
@Suite struct ReloadTests {
  @Test(arguments: Traveller.all) func anEditShowsByItself(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        for name in ["a.bin", "b.bin", "c.bin"] { origin.add("/\(name)", size: 300_000) }
        let (a, b, c) = (origin.url("/a.bin"), origin.url("/b.bin"), origin.url("/c.bin"))
        try journey.mount("\(a)\n\(b)\n")
        let inode = try journey.inode("a.bin")
        #expect(access(journey.at("c.bin"), F_OK) != 0, "the kernel remembers that")
        // As `>>` and as editors write.
        try journey.shell(#"echo "$1" >> "$2""#, c, journey.manifest)
        try journey.waitForNames(["a.bin", "b.bin", "c.bin"])
        try journey.shell(#"echo "$1" > "$2.new"; mv "$2.new" "$2""#, "\(a)\n\(c)", journey.manifest)
        try journey.waitForNames(["a.bin", "c.bin"])
        #expect(try journey.inode("a.bin") == inode)
        // Through a link, whose target moves.
        try journey.shell(
          #"echo "$1" > "$2.1"; ln -s "$2.1" "$2.link"; mv "$2.link" "$2""#, "\(a)\n\(b)", journey.manifest)
        try journey.waitForNames(["a.bin", "b.bin"])
        try journey.shell(#"echo "$1" >> "$2.1""#, c, journey.manifest)
        try journey.waitForNames(["a.bin", "b.bin", "c.bin"])
        try journey.succeed(["cat", journey.at("c.bin")])
      }
    }
  }

  @Test func aListThatIsOfNoUseChangesNothing() throws {
    try withJourney { journey in
      let lines = (0..<10).map { "http://127.0.0.1:1/\($0).bin\n" }
      try journey.mount(lines.joined())
      let names = try journey.names()
      for (text, words) in [
        ("", "no usable line"), ("\u{0}\u{1}garbage\n", "usable line"),
        (lines[..<4].joined(), "lacks 6 of the mount's 10"),
      ] {
        try journey.list(text)
        try journey.waitForProblem(words)
        #expect(try journey.names() == names)
      }
      // Asked for, it is done.
      let said = try journey.succeed([try Programs.path("mediafs"), "reload", journey.mountpoint])
      #expect(said.contains("6 names less"), "\(said)")
      #expect(try journey.names() == names.prefix(4).map { $0 })
      #expect(try !journey.says("lacks"))
      try journey.succeed(["rm", journey.manifest])
      try journey.waitForProblem("not there any more")
      let failed = try journey.mediafs("reload", journey.mountpoint)
      #expect(failed.status == 1 && failed.errors.contains("No such file"), "\(failed)")
      #expect(try journey.names().count == 4)
      try journey.list(lines.joined())
      try journey.waitForNames(names)
      try waitUntil(timeout: 60, interval: 0.05, "the end of the problem") { try !journey.says("not there") }
    }
  }

  /// A pipe in the list's place is over some day: also the next server follows the list.
  @Test func aPipeThatTookTheListsPlaceEndsNothing() throws {
    try withJourney { journey in
      try journey.mount("http://127.0.0.1:1/a.bin\n")
      try journey.succeed(["rm", journey.manifest])
      try journey.succeed(["mkfifo", journey.manifest])
      try journey.waitForProblem("FIFO")
      try journey.succeed([try Programs.path("mediafs"), "upgrade", journey.mountpoint])
      try journey.waitForProblem("FIFO")
      try journey.succeed(["rm", journey.manifest])
      try journey.list("http://127.0.0.1:1/a.bin\nhttp://127.0.0.1:1/b.bin\n")
      try journey.waitForNames(["a.bin", "b.bin"])
      try waitUntil(timeout: 60, interval: 0.05, "the end of the problem") { try !journey.says("FIFO") }
    }
  }

  @Test func readersGoOnUnderAnEdit() throws {
    try withJourney { journey in
      var settings = OriginSettings()
      settings.lineRate = 4e6
      try withOrigin(settings) { origin in
        let size: Int64 = 12 << 20
        for path in ["/a.bin", "/new/a.bin"] {
          var film = OriginResource(size: size, pattern: "/a.bin")
          film.tag = .fixed("\"one film\"")
          origin.set(path, film)
        }
        origin.add("/b.bin", size: 4 << 20)
        try journey.original("a.bin", size: size)
        func list(_ folder: String, _ rest: String) throws {
          try journey.list("\(origin.url("/\(folder)a.bin"))\n  id=film\n\(rest)")
        }
        try list("", "\(origin.url("/b.bin"))\n")
        try journey.mount()
        let copy = journey.folder.file("copy")
        let reader = try journey.start(["cp", journey.at("a.bin"), copy])
        let handle = try FileDescriptor.open(journey.at("b.bin"), O_RDONLY)
        try journey.succeed(["head", "-c", "65536", journey.at("b.bin")])
        try journey.wait(forStored: 2 << 20, "a.bin")
        // The film has another link, and the other file is gone, while both are open.
        try list("new/", "")
        try journey.succeed([try Programs.path("mediafs"), "reload", journey.mountpoint])
        origin.fault(.status(403), path: "/a.bin")
        #expect(reader.wait(timeout: 60)?.status == 0)
        try journey.succeed(["cmp", copy, journey.folder.file("originals/a.bin")])
        var bytes = [UInt8](repeating: 0, count: 4096)
        #expect(try bytes.withUnsafeMutableBytes { try handle.readFully(at: 0, into: $0) } == 4096)
        #expect(throws: Errno.stale) {
          try bytes.withUnsafeMutableBytes { try handle.readFully(at: 3 << 20, into: $0) }
        }
        #expect(access(journey.at("b.bin"), F_OK) != 0 && errno == ENOENT)
        let sent = origin.log.bytesSent(of: "/a.bin") + origin.log.bytesSent(of: "/new/a.bin")
        #expect(Double(sent) <= 1.05 * Double(size), "\(sent) bytes for \(size)")
        #expect(try journey.says("of files that are no longer listed"))
      }
    }
  }

  @Test(arguments: Traveller.all) func signalsAndTheNextServerReadTheList(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try journey.mount("http://127.0.0.1:1/a.bin\nhttp://127.0.0.1:1/b.bin\n")
      let server = try #require(try journey.status().pid)
      // The server is killed; the list changes while none serves.
      try journey.list("http://127.0.0.1:1/a.bin\nhttp://127.0.0.1:1/c.bin\n")
      try #require(kill(server, SIGKILL) == 0)
      try journey.waitForNames(["a.bin", "c.bin"])
      // By a signal also what no quiet moment would let pass.
      try journey.list("http://127.0.0.1:1/d.bin\n")
      try journey.waitForProblem("lacks")
      try #require(kill(try #require(try journey.status().pid), SIGHUP) == 0)
      try journey.waitForNames(["d.bin"])
    }
  }

  @Test(arguments: Traveller.all) func programsThatWatchAreToldOnce(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      func write(_ names: [String], from host: String = "127.0.0.1:1") throws {
        try journey.list(names.map { "http://\(host)/\($0)\n  out=\($0)\n" }.joined())
      }
      func reload(_ names: [String], from host: String = "127.0.0.1:1") throws {
        try write(names, from: host)
        try journey.succeed([try Programs.path("mediafs"), "reload", journey.mountpoint])
      }
      try write(["a.bin", "b/1.bin", "b/2.bin"])
      try journey.mount()
      let watcher = try journey.start([
        "inotifywait", "-m", "-r", "-e", "create,close_write,delete,attrib,modify,move,delete_self,unmount",
        "--format", "%e %w%f", journey.mountpoint,
      ])
      defer { watcher.terminate() }
      try #require(watcher.waitForOutput("Watches established"))
      var wanted: [String] = []
      func expect(_ more: String..., sourceLocation: SourceLocation = #_sourceLocation) {
        wanted += more
        let lines = { watcher.standardOutputSoFar.replacing(journey.mountpoint + "/", with: "").split(separator: "\n") }
        _ = eventually { lines().count >= wanted.count }
        #expect(lines().map(String.init) == wanted, "\(journey.log.suffix(2000))", sourceLocation: sourceLocation)
      }
      // By itself, and of the next server as of the first.
      try #require(kill(try #require(try journey.status().pid), SIGKILL) == 0)
      try write(["a.bin", "b/1.bin", "b/2.bin", "c.bin"])
      // Many programs take a new file when it is closed.
      expect("CREATE c.bin", "CLOSE_WRITE,CLOSE c.bin")
      try reload(["b/1.bin", "b/2.bin", "c.bin"])
      expect("DELETE a.bin")
      // A folder that leaves and comes back, and a program that is in it.
      let inside = try journey.start(["sh", "-c", "cd \(journey.at("b")); until [ -e 3.bin ]; do sleep 0.1; done"])
      try reload(["c.bin"])
      expect("DELETE,ISDIR b")
      #expect(try journey.names() == ["c.bin"])
      try reload(["b/1.bin", "b/3.bin", "c.bin"])
      expect("CREATE,ISDIR b")
      #expect(try journey.succeed(["ls", journey.mountpoint, journey.at("b")]).contains("1.bin\n3.bin"))
      #expect(inside.wait(timeout: 60)?.status == 0)
      // The file of that name is another one.
      let inode = try journey.inode("c.bin")
      try write(["b/1.bin", "b/3.bin"])
      try journey.shell(#"printf '%s\n' http://127.0.0.1:1/other/c.bin >> "$1""#, journey.manifest)
      try journey.succeed([try Programs.path("mediafs"), "reload", journey.mountpoint])
      expect("ATTRIB c.bin")
      #expect(try journey.inode("c.bin") != inode)
      // Of thousands, the folder's own, as its parent's watch and its own show it.
      let many = (0..<2000).map { "b/\($0 + 10).bin" }
      try reload(["b/1.bin", "b/3.bin"] + many)
      expect("DELETE c.bin", "ATTRIB,ISDIR b", "ATTRIB,ISDIR b/")
      #expect(try journey.succeed(["ls", journey.at("b")]).split(separator: "\n").count == 2002)
      usleep(1_500_000)  // the kernel is told a second time to forget the names
      expect()
    }
  }

  /// Of whatever kind: a name that comes is told as a local file that was written there, one that goes as one that was
  /// deleted, and what mediafs does besides is no event.
  @Test(arguments: Traveller.all) func nothingElseIsTold(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      func reload(_ names: [String]) throws {
        try journey.list(names.map { "http://127.0.0.1:1/\($0)\n  out=\($0)\n" }.joined())
        try journey.succeed([try Programs.path("mediafs"), "reload", journey.mountpoint])
      }
      let names = ["a.bin", "b.bin", "folder/c.bin"]
      try journey.mount(names.map { "http://127.0.0.1:1/\($0)\n  out=\($0)\n" }.joined())
      let watcher = try journey.start([
        "inotifywait", "-m", "-e", "access,modify,attrib,close,open,move,create,delete,delete_self,move_self,unmount",
        "--format", "%e %f", journey.mountpoint,
      ])
      defer { watcher.terminate() }
      try #require(watcher.waitForOutput("Watches established"))
      // A list that is the same, and the next server.
      try reload(names)
      let server = try #require(try journey.status().pid)
      try #require(kill(server, SIGKILL) == 0)
      try #require(eventually { (try? journey.status().pid).map { $0 != server } == true })
      try reload(names)
      try reload(names + ["new.bin"])
      try reload(["b.bin", "folder/c.bin", "new.bin"])
      let events = "CREATE new.bin\nOPEN new.bin\nCLOSE_WRITE,CLOSE new.bin\nDELETE a.bin\n"
      _ = eventually { watcher.standardOutputSoFar.utf8.count >= events.utf8.count }
      usleep(1_500_000)  // the kernel is told a second time to forget the names
      #expect(watcher.standardOutputSoFar == events, "\(journey.log.suffix(2000))")
    }
  }

  /// A feed without an item is a feed, and yet as good as a list that lost all.
  @Test func aFeedThatShrinksToNothingTakesNothing() throws {
    try withJourney { journey in
      func feed(_ numbers: Range<Int>) -> String {
        let items = numbers.map { #"<item><enclosure url="http://127.0.0.1:1/\#($0).mp3" type="audio/mpeg"/></item>"# }
        return "<rss version=\"2.0\"><channel><title>A show</title>\(items.joined())</channel></rss>\n"
      }
      try journey.mount(feed(0..<3))
      let names = ["0.mp3", "1.mp3", "2.mp3"]
      #expect(try journey.names("A show") == names)
      try journey.list(feed(0..<0))
      try journey.waitForProblem("no usable line")
      #expect(try journey.names("A show") == names)
      // Also for a user who asks. A mount needs something to show.
      let failed = try journey.mediafs("reload", journey.mountpoint)
      #expect(failed.status == 1 && failed.errors.contains("no usable line"), "\(failed)")
      #expect(try journey.names("A show") == names)
      try journey.unmount()
      let mounted = try journey.run(try journey.mountCommand())
      #expect(mounted.status == 1 && mounted.errors.contains("no usable line"), "\(mounted)")
      try journey.mount(feed(0..<3))
      try journey.list(feed(0..<4))
      try journey.waitForNames(names + ["3.mp3"], in: "A show")
    }
  }

  @Test(arguments: Traveller.all) func aFolderOfStrmFilesIsFollowed(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        for (name, size) in [("a", 1000), ("b", 2000), ("new", 3000)] { origin.add("/\(name).mkv", size: Int64(size)) }
        let folder = journey.folder.file("shows")
        /// As a program writes it that makes such folders.
        func write(_ name: String, _ url: String) throws {
          try journey.shell(
            #"mkdir -p "$(dirname "$1")"; printf '%s\n' "$2" > "$1.part"; mv "$1.part" "$1""#,
            "\(folder)/\(name).strm", url)
        }
        func size(_ name: String) -> Int? {
          let counted = try? journey.run(["wc", "-c", journey.at(name)])
          return counted?.output.split(separator: " ").first.flatMap { Int($0) }
        }
        try write("One", origin.url("/a.mkv"))
        try write("Two", origin.url("/b.mkv"))
        try journey.succeed(try journey.mountCommand().map { $0 == journey.manifest ? folder : $0 })
        #expect(try journey.names() == ["One.mkv", "Two.mkv"])
        #expect(size("One.mkv") == 1000)
        try write("Three", origin.url("/new.mkv"))
        try journey.waitForNames(["One.mkv", "Three.mkv", "Two.mkv"])
        try write("Season 1/Four", origin.url("/new.mkv"))
        try journey.waitForNames(["One.mkv", "Season 1", "Three.mkv", "Two.mkv"])
        try journey.waitForNames(["Four.mkv"], in: "Season 1")
        try journey.succeed(["rm", folder + "/Two.strm"])
        try journey.waitForNames(["One.mkv", "Season 1", "Three.mkv"])
        // Its link leads to another file.
        try write("One", origin.url("/b.mkv"))
        #expect(eventually { size("One.mkv") == 2000 }, "\(journey.log.suffix(2000))")
        // In a folder that came later.
        try write("Season 1/Four", origin.url("/a.mkv"))
        #expect(eventually { size("Season 1/Four.mkv") == 1000 }, "\(journey.log.suffix(2000))")
      }
    }
  }

  @Test(arguments: Traveller.all) func programsThatWatchAreToldOfANewVersion(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        func version(_ tag: String, size: Int64) {
          var film = OriginResource(size: size, pattern: "/a.bin \(tag)")
          film.tag = .fixed("\"\(tag)\"")
          origin.set("/a.bin", film)
        }
        version("one", size: 8 << 20)
        try journey.mount("\(origin.url("/a.bin"))\n", "--fresh", "0", "--continue", "never")
        try journey.succeed(["head", "-c", "65536", journey.at("a.bin")])
        let watcher = try journey.start([
          "inotifywait", "-m", "-e", "create,delete,attrib,modify,move", "--format", "%e %f", journey.mountpoint,
        ])
        defer { watcher.terminate() }
        try #require(watcher.waitForOutput("Watches established"))
        version("two", size: 9 << 20)
        // The reader that finds it gets ESTALE.
        #expect(try journey.start(["tail", "-c", "65536", journey.at("a.bin")]).wait(timeout: 30) != nil)
        #expect(watcher.waitForOutput("ATTRIB"), "\(journey.log.suffix(2000))")
        #expect(try journey.succeed(["stat", "-c", "%s", journey.at("a.bin")]) == "\(9 << 20)\n")
        #expect(watcher.standardOutputSoFar == "ATTRIB a.bin\n")
      }
    }
  }

  /// The kernel asks for the attributes of what the waker opens.
  @Test(arguments: Traveller.all) func programsThatWatchAreToldOfFilesOfASilentHost(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        origin.fault([.stallBeforeHeaders])
        try journey.mount("http://127.0.0.1:1/a.bin\n")
        let watcher = try journey.start([
          "inotifywait", "-m", "-e", "close_write", "--format", "%f", journey.mountpoint,
        ])
        defer { watcher.terminate() }
        try #require(watcher.waitForOutput("Watches established"))
        let names = (0..<30).map { "\($0).bin" }
        try journey.list((["http://127.0.0.1:1/a.bin"] + names.map { origin.url("/\($0)") }).joined(separator: "\n"))
        try journey.succeed([try Programs.path("mediafs"), "reload", journey.mountpoint])
        _ = eventually { watcher.standardOutputSoFar.split(separator: "\n").count >= names.count }
        #expect(watcher.standardOutputSoFar.split(separator: "\n").map(String.init) == names)
      }
    }
  }

  @Test func theListMayComeBeforeTheMountpoint() throws {
    try withJourney { journey in
      try journey.list("http://127.0.0.1:1/a.bin\n")
      let program = try Programs.path("mediafs")
      try journey.succeed([program, "mount", journey.manifest, journey.mountpoint, "--store", journey.store])
      #expect(try journey.names() == ["a.bin"])
      let twice = try journey.mediafs("mount", "x", journey.mountpoint, "--manifest", journey.manifest)
      #expect(twice.status == 2 && twice.errors.contains("takes one MOUNTPOINT"), "\(twice)")
    }
  }

  @Test func aListFromAPipeSaysSo() throws {
    try withJourney { journey in
      try journey.succeed(
        [try Programs.path("mediafs"), "mount", journey.mountpoint, "--manifest", "-", "--store", journey.store],
        input: Array("http://127.0.0.1:1/a.bin\n".utf8))
      let failed = try journey.mediafs("reload", journey.mountpoint)
      #expect(failed.status == 1 && failed.errors.contains("standard input"), "\(failed)")
    }
  }
}

extension Journey {
  fileprivate func inode(_ name: String) throws -> String { try succeed(["stat", "-c", "%i", at(name)]) }

  func says(_ words: String) throws -> Bool { try mediafs("status", mountpoint).output.contains(words) }

  func waitForProblem(_ words: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
    let came = eventually { (try? says(words)) == true }
    #expect(came, "\(words): \(log.suffix(2000))", sourceLocation: sourceLocation)
  }
}
