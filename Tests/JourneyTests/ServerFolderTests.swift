import Base
import Glibc
import TestSupport
import Testing

/// Folders of servers in the mount.
@Suite struct ServerFolderTests {
  /// A folder that nginx lists: films with a folder in it.
  private func withServer(_ body: (Journey, Nginx, TemporaryFolder) throws -> Void) throws {
    try withJourney { journey in
      let www = try TemporaryFolder(open: true)
      defer { try? www.remove() }
      for (name, count) in [("films/a.mkv", 300_000), ("films/sub/b.mkv", 70_000), ("films/sub/deep/c.txt", 10)] {
        try www.write(Pattern.bytes(name: name, generation: 1, offset: 0, count: count), to: name)
      }
      var settings = NginxSettings(.folder(www.path))
      settings.lines = "autoindex on;"
      try withNginx(settings) { nginx in try body(journey, nginx, www) }
    }
  }

  @Test func theFirstLookShowsAll() throws {
    try withServer { journey, nginx, www in
      try journey.mount("\(nginx.url("/films/"))\n", "--fresh", "1s")
      // Each folder waits for its names once: none is empty to its first reader.
      let all = try journey.succeed(["find", journey.mountpoint, "-type", "f", "-printf", "%P\n"])
      #expect(Set(all.split(separator: "\n")) == ["films/a.mkv", "films/sub/b.mkv", "films/sub/deep/c.txt"])
      for name in ["films/a.mkv", "films/sub/b.mkv", "films/sub/deep/c.txt"] {
        try journey.succeed(["cmp", journey.at(name), www.file(name)])
      }
      // What comes and goes on the server shows, once somebody looks.
      try www.write("new", to: "films/new.txt")
      try journey.waitForNames(["a.mkv", "new.txt", "sub"], in: "films")
      #expect(unlink(www.file("films/new.txt")) == 0)
      try journey.waitForNames(["a.mkv", "sub"], in: "films")
      let asked = nginx.accesses.filter { $0.target == "/films/sub/deep/" }
      #expect(asked.count <= 2 && asked.allSatisfy { $0.status == 200 }, "\(asked)")
    }
  }

  @Test func withoutTheServerTheLastNamesAreThere() throws {
    try withServer { journey, nginx, _ in
      try journey.mount("\(nginx.url("/films/"))\n", "--fresh", "1s")
      let all = try journey.succeed(["ls", "-R", journey.at("films")])
      try journey.succeed(["cat", journey.at("films/a.mkv")])
      try journey.wait(for: "complete", "films/a.mkv")
      try journey.unmount()
      nginx.kill()
      try journey.mount(nil, "--fresh", "1s", "--timeout", "5")
      #expect(try journey.succeed(["ls", "-R", journey.at("films")]) == all)
      sleep(seconds: 1.5)
      #expect(try journey.succeed(["ls", "-R", journey.at("films")]) == all)
      try journey.succeed(["cat", journey.at("films/a.mkv")])
    }
  }

  @Test func aFolderThatCannotBeListedSaysWhy() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.fault(.stallBeforeHeaders, path: "/silent/")
        origin.fault(.status(403), path: "/closed/")
        origin.fault(.redirect(to: "http://localhost:\(origin.port)/films/"), path: "/elsewhere/")
        let login = "<!DOCTYPE html><title>Log in</title><form><input type=\"password\" name=\"p\"></form>"
        origin.set("/login/", OriginResource(bytes: Array(login.utf8), type: "text/html"))
        origin.set("/page/", OriginResource(bytes: Array("<title>Welcome</title><p>Hello".utf8), type: "text/html"))
        origin.set("/films/", OriginResource(bytes: Array("<title>Index of /films/</title>".utf8), type: "text/html"))
        try journey.list(["silent", "closed", "elsewhere", "login", "page"].map { origin.url("/\($0)/\n") }.joined())
        // The log is the command's own until the mount is ready.
        let mounted = try journey.run(try journey.mountCommand(["--timeout", "10"]))
        #expect(mounted.succeeded)
        for (name, words) in [
          ("silent", "/silent/"), ("closed", "refused access"), ("elsewhere", "leads to another host"),
          ("login", "password"), ("page", "/page/: this is no listing of a folder"),
        ] {
          let failed = try journey.run(["ls", journey.at(name)])
          #expect(failed.status != 0 && failed.errors.contains("Input/output error"), "\(name): \(failed)")
          #expect(eventually { (journey.log + mounted.errors).contains(words) }, "\(name): \(journey.log)")
        }
        #expect(try journey.mediafs("status", journey.mountpoint).output.contains("cannot be listed"))
        // The mount and its other names are alive meanwhile.
        #expect(try journey.names() == ["closed", "elsewhere", "login", "page", "silent"])
        // The other server did not get what is for this one.
        #expect(origin.log.entries(of: "/films/").count <= 3)
      }
    }
  }

  @Test func anEmptyAnswerTakesNothing() throws {
    try withServer { journey, nginx, www in
      try journey.mount("\(nginx.url("/films/sub/deep/"))\n\(nginx.url("/films/"))\n", "--fresh", "1s")
      try journey.waitForNames(["c.txt"], in: "deep")
      #expect(unlink(www.file("films/sub/deep/c.txt")) == 0)
      let said = eventually {
        _ = try? journey.names("deep")
        return journey.log.contains("lists nothing there now")
      }
      #expect(said, "\(journey.log)")
      #expect(try journey.names("deep") == ["c.txt"])
      try journey.succeed([try Programs.path("mediafs"), "reload", journey.mountpoint])
      try journey.waitForNames([], in: "deep")
    }
  }

  @Test func aListFromAPipeHoldsUpNobody() throws {
    try withServer { journey, nginx, _ in
      try journey.succeed(
        [try Programs.path("mediafs"), "mount", journey.mountpoint, "--manifest", "-", "--store", journey.store],
        input: Array("\(nginx.url("/films/"))\n".utf8))
      #expect(try journey.names("films") == [])
    }
  }

  /// `delay`: in milliseconds, until the server is killed. It may have remembered the folder that it asked for ahead,
  /// and not shown it yet.
  @Test(arguments: [0, 2, 4, 8])
  func theNextServerShowsNoFolderEmpty(delay: Double) throws {
    try withServer { journey, nginx, _ in
      try journey.mount("\(nginx.url("/films/"))\n")
      #expect(try journey.names("films") == ["a.mkv", "sub"])
      sleep(seconds: delay / 1000)
      try #require(kill(try #require(try journey.status().pid), SIGKILL) == 0)
      // Never listed before: the next server must have read the list first.
      let names = try journey.names("films/sub")
      #expect(names == ["b.mkv", "deep"], "\(journey.log)")
    }
  }

  @Test func aSilentServerHoldsUpNoOther() throws {
    try withServer { journey, nginx, _ in
      try withOrigin { origin in
        origin.fault(.stallBeforeHeaders)
        let silent = (0..<40).map { origin.url("/silent\($0)/\n") }.joined()
        try journey.mount(silent + "\(nginx.url("/films/"))\n", "--timeout", "20")
        #expect(try journey.names("films") == ["a.mkv", "sub"])
      }
    }
  }

  @Test func aListingThatCannotShowIsSaidAtOnce() throws {
    try withServer { journey, nginx, _ in
      let list = "\(nginx.url("/films/"))\n"
      try journey.mount(list, "--timeout", "200")
      #expect(try journey.names("films") == ["a.mkv", "sub"])
      // Its folder is asked for ahead; the one in that only when a program looks at it.
      #expect(eventually { (try? journey.run(["test", "-e", journey.at("films/sub/b.mkv")]).succeeded) == true })
      // What the server lists comes, and the list that names it is of no use meanwhile.
      try journey.list("")
      #expect(
        eventually { (try? journey.mediafs("status", journey.mountpoint).output.contains("no usable line")) == true })
      let refused = try journey.run(["ls", journey.at("films/sub/deep")], timeout: 100)
      #expect(refused.errors.contains("Input/output error"), "\(refused)")
      try journey.list(list)
      #expect(eventually { (try? journey.run(["ls", journey.at("films/sub/deep")]).output) == "c.txt\n" })
    }
  }

  @Test func aReloadWaitsForTheFolders() throws {
    try withServer { journey, nginx, www in
      try journey.mount("\(nginx.url("/films/sub/"))\n\(nginx.url("/films/"))\n", "--fresh", "1h")
      #expect(try journey.names("films") == ["a.mkv", "sub"] && journey.names("sub") == ["b.mkv", "deep"])
      func reload() throws -> String { try journey.mediafs("reload", journey.mountpoint).output }
      // What it says is so when it returns.
      try www.write("new", to: "films/new.txt")
      let more = try reload()
      // On a busy machine those of a folder that is asked for ahead may be among them.
      #expect(more.contains("name more") || more.contains("names more"), "\(more)")
      #expect(try journey.names("films") == ["a.mkv", "new.txt", "sub"])
      // A folder that is gone keeps its names, and that is said.
      #expect(rename(www.file("films"), www.file("away")) == 0)
      let said = try reload()
      #expect(said.contains("the list is as before; ") && said.contains("cannot be listed now"), "\(said)")
      #expect(try journey.names("films") == ["a.mkv", "new.txt", "sub"])
      #expect(try journey.mediafs("status", journey.mountpoint).output.contains("folders of servers cannot be listed"))
      #expect(rename(www.file("away"), www.file("films")) == 0)
      #expect(try !reload().contains("cannot"))
      #expect(eventually { (try? journey.mediafs("status", journey.mountpoint).output.contains("listed")) == false })
    }
  }

  @Test func aReloadSaysWhatItIsStillAsking() throws {
    try withJourney { journey in
      try withOrigin { origin in
        let page = "<html><title>Index of /a/</title><h1>Index of /a/</h1><pre><a href=\"a.mkv\">a.mkv</a></pre></html>"
        origin.set("/a/", OriginResource(bytes: Array(page.utf8), type: "text/html"))
        try journey.mount("\(origin.url("/a/"))\n", "--timeout", "60", "--fresh", "1h")
        #expect(try journey.names("a") == ["a.mkv"])
        origin.fault(.stallBeforeHeaders, path: "/a/")
        let said = try journey.mediafs("reload", journey.mountpoint).output
        #expect(said.contains("1 folder of servers still to answer"), "\(said)")
        #expect(try journey.names("a") == ["a.mkv"])
      }
    }
  }

  @Test func aProblemIsSaidOnce() throws {
    try withServer { journey, nginx, www in
      for number in 0..<6 { try www.write("text", to: "films/many/\(number)/a.txt") }
      let list = "ftp://127.0.0.1/a.mkv\n\(nginx.url("/films/"))\n"
      try journey.list(list)
      let mounted = try journey.run(try journey.mountCommand([]))
      #expect(mounted.succeeded, "\(mounted)")
      // Folders that come are imports, and so is a list that changes.
      let all = try journey.succeed(["find", journey.mountpoint, "-type", "f"])
      // No folder is asked for twice, whenever its answer came.
      let asked = Dictionary(grouping: nginx.accesses.filter { $0.target.hasSuffix("/") }, by: \.target)
      #expect(asked.count == 10 && asked.values.allSatisfy { $0.count == 1 }, "\(asked)")
      #expect(all.split(separator: "\n").count == 9)
      try journey.list(list + "ftp://127.0.0.1/b.mkv\n")
      #expect(eventually { journey.log.contains("urls.txt:3: ") }, "\(journey.log)")
      let log = mounted.errors + journey.log
      #expect((1...3).map { log.ranges(of: "urls.txt:\($0): ").count } == [1, 0, 1], "\(log)")
    }
  }

  @Test func aServersFolderIsAWholeList() throws {
    try withServer { journey, nginx, _ in
      try journey.succeed(
        [try Programs.path("mediafs"), "mount", nginx.url("/films/"), journey.mountpoint, "--store", journey.store])
      #expect(try journey.names() == ["a.mkv", "sub"])
      #expect(try journey.names("sub") == ["b.mkv", "deep"])
    }
  }

  @Test func twoHundredThousandNames() throws {
    try withJourney { journey in
      try withOrigin { origin in
        let lines = (0..<200_000).map { "<a href=\"\($0).mkv\">\($0).mkv</a>  24-Nov-2026 02:15  \($0)\n" }
        let page =
          "<html><head><title>Index of /many/</title></head><body><h1>Index of /many/</h1><pre>" + lines.joined()
          + "</pre></body></html>"
        origin.set("/many/", OriginResource(bytes: Array(page.utf8), type: "text/html"))
        try journey.mount("\(origin.url("/many/"))\n")
        #expect(try journey.succeed(["ls", "-U", journey.at("many")]).split(separator: "\n").count == 200_000)
      }
    }
  }
}
