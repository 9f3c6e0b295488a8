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
      try journey.mount("\(nginx.url("/films/"))\n", "--fresh", "1s", "--timeout", "5")
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
        let mounted = try journey.run(try journey.mountCommand(["--timeout", "2"]))
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

  @Test func theNextServerShowsNoFolderEmpty() throws {
    try withServer { journey, nginx, _ in
      try journey.mount("\(nginx.url("/films/"))\n")
      #expect(try journey.names("films") == ["a.mkv", "sub"])
      try #require(kill(try #require(try journey.status().pid), SIGKILL) == 0)
      // Never listed before: the next server must have read the list first.
      #expect(try journey.names("films/sub") == ["b.mkv", "deep"])
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
      #expect(try reload().contains("1 name more"))
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

/// Lists that a URL names.
@Suite struct ListByURLTests {
  private func mount(_ journey: Journey, _ url: String, _ options: String...) throws -> CommandResult {
    try journey.run(
      [try Programs.path("mediafs"), "mount", journey.mountpoint, "--manifest", url, "--store", journey.store] + options
    )
  }

  /// A folder with a list that nginx serves.
  private func withList(_ body: (Journey, Nginx, _ write: (String) throws -> Void) throws -> Void) throws {
    try withJourney { journey in
      let www = try TemporaryFolder(open: true)
      defer { try? www.remove() }
      try withNginx(NginxSettings(.folder(www.path))) { nginx in
        try body(journey, nginx) { text in try www.write(text, to: "list.txt") }
      }
    }
  }

  @Test func itIsAskedForAgain() throws {
    try withList { journey, nginx, write in
      try write("\(nginx.url("/a.bin"))\nb.bin\n")
      let url = nginx.url("/list.txt?token=secret")
      #expect(try mount(journey, url, "--fresh", "1s").succeeded)
      try journey.waitForNames(["a.bin"])
      #expect(eventually { nginx.accesses.contains { $0.status == 304 } }, "\(nginx.accesses)")
      try write("\(nginx.url("/a.bin"))\n\(nginx.url("/c.bin"))\n")
      try journey.waitForNames(["a.bin", "c.bin"])
      // Nor does a page, or what lacks most of it.
      for text in ["<!DOCTYPE html><title>Log in</title><input type=password>", "\(nginx.url("/a.bin"))\n"] {
        try write("\(nginx.url("/a.bin"))\n\(nginx.url("/c.bin"))\n\(nginx.url("/d.bin"))\n")
        try journey.waitForNames(["a.bin", "c.bin", "d.bin"])
        try write(text)
        #expect(
          eventually { (try? journey.mediafs("status", journey.mountpoint).output.contains("/list.txt?…: ")) == true })
        #expect(try journey.names() == ["a.bin", "c.bin", "d.bin"])
      }
      try write("\(nginx.url("/a.bin"))\n\(nginx.url("/c.bin"))\n")
      try journey.waitForNames(["a.bin", "c.bin"])
      // What is no list takes nothing.
      try write("nothing that is a list\n")
      #expect(eventually { journey.log.contains("the list stays as it was") }, "\(journey.log)")
      #expect(try journey.names() == ["a.bin", "c.bin"])
      let failed = try journey.mediafs("reload", journey.mountpoint)
      #expect(failed.status == 1, "\(failed)")
      // Its token is a secret.
      #expect(!journey.log.contains("secret"))
      #expect(try !journey.mediafs("status", journey.mountpoint).output.contains("secret"))
      #expect(!readText("/proc/mounts").contains("token=secret"))
      // Without network the last good one is there.
      try journey.unmount()
      nginx.kill()
      #expect(try mount(journey, url, "--fresh", "1s").succeeded)
      #expect(try journey.names() == ["a.bin", "c.bin"])
      #expect(eventually { (try? journey.mediafs("status", journey.mountpoint).output.contains("connect")) == true })
    }
  }

  /// What the mount refused is not what the next one begins with.
  @Test func aListThatIsRefusedIsNoGoodCopy() throws {
    try withList { journey, nginx, write in
      let lines = (0..<10).map { "http://127.0.0.1:1/\($0).bin\n" }
      try write(lines.joined())
      #expect(try mount(journey, nginx.url("/list.txt"), "--fresh", "1s").succeeded)
      let names = try journey.names()
      // As many lines, and few names. In one second, nginx tells two files apart by their length alone.
      try write(String(repeating: lines[0], count: 9) + lines[1] + "\n")
      #expect(eventually { (try? journey.mediafs("status").output.contains("lacks 8 of")) == true }, "\(journey.log)")
      // It stays said, and is said once, however often the server gives it.
      let requests = nginx.accesses.count
      #expect(eventually { nginx.accesses.count > requests + 3 })
      #expect(try journey.mediafs("status").output.contains("lacks 8 of"))
      #expect(journey.log.ranges(of: ":2: the same resource").count == 1, "\(journey.log)")
      #expect(journey.log.ranges(of: "lacks 8 of").count == 1, "\(journey.log)")
      #expect(try journey.names() == names)
      try journey.unmount()
      nginx.kill()
      #expect(try mount(journey, nginx.url("/list.txt")).succeeded)
      #expect(try journey.names() == names)
    }
  }

  @Test func whatHasJustComeIsNotAskedForAgain() throws {
    try withList { journey, nginx, write in
      try write("\(nginx.url("/a.bin"))\n")
      #expect(try mount(journey, nginx.url("/list.txt"), "--fresh", "1h").succeeded)
      try journey.waitForNames(["a.bin"])
      // A reload asks at once: by then the mount had its time.
      #expect(try journey.mediafs("reload", journey.mountpoint).succeeded)
      #expect(nginx.accesses.filter { $0.target == "/list.txt" }.map(\.status) == [200, 304], "\(nginx.accesses)")
    }
  }

  @Test func withoutACopyTheMountSaysWhy() throws {
    try withList { journey, nginx, write in
      try write("https://example.com/a.bin\n")
      let missing = try mount(journey, nginx.url("/nothing.txt"))
      #expect(missing.status == 1 && missing.errors.contains("does not have it"), "\(missing)")
      nginx.kill()
      let away = try mount(journey, nginx.url("/list.txt"))
      #expect(away.status == 1 && away.errors.contains("there is no copy of the list"), "\(away)")
    }
  }

  /// The other host gets no login and no header field of this one; relative names are beside the list that came.
  @Test func anotherHostMayGiveIt() throws {
    try withJourney { journey in
      try withOrigin { origin in
        let other = "http://localhost:\(origin.port)/lists/list.m3u"
        origin.fault(.redirect(to: other), path: "/list.txt")
        let list = "#EXTM3U\n\(origin.url("/a.bin"))\nb.bin\n"
        origin.set("/lists/list.m3u", OriginResource(bytes: Array(list.utf8)))
        let url = "http://anna:geheim@127.0.0.1:\(origin.port)/list.txt"
        #expect(try mount(journey, url, "--header", "X-Token: geheim").succeeded)
        #expect(try journey.names() == ["a.bin", "b.bin"])
        origin.add("/lists/b.bin", size: 1000)
        try journey.succeed(["cat", journey.at("b.bin")])
        let own = try #require(origin.log.entries(of: "/list.txt").first).request
        #expect(own.header("authorization") != nil && own.header("x-token") == "geheim")
        let others = origin.log.entries(of: "/lists/list.m3u")
        #expect(!others.isEmpty)
        for entry in others {
          #expect(entry.request.header("authorization") == nil && entry.request.header("x-token") == nil)
        }
        #expect(!journey.log.contains("geheim"))
      }
    }
  }

  /// Each way in which a list could name a file of the machine, or a program.
  @Test func itNamesNoFileAndNoProgram() throws {
    try withJourney { journey in
      try withOrigin { origin in
        let local = try journey.folder.makeFolder("local")
        let cookies = try journey.folder.write(
          "# Netscape HTTP Cookie File\n127.0.0.1\tFALSE\t/\tFALSE\t0\tname\tgeheim\n", to: "local/cookies")
        try journey.folder.write("machine 127.0.0.1 login anna password geheim\n", to: "local/netrc")
        try journey.folder.write("#!/bin/sh\ntouch \(local)/ran\n", to: "local/program", mode: 0o755)
        if let user = journey.user { try Command.succeed(["chown", "-R", "\(user.userID)", journey.folder.path]) }
        let watcher = try BackgroundProcess(["inotifywait", "-m", "--format", "%e %f", local])
        defer { watcher.terminate() }
        try #require(watcher.waitForOutput("Watches established"))
        let options = [
          "load-cookies=\(cookies)", "load-cookies=local/cookies", "load-cookies=file://\(cookies)",
          "netrc-path=\(local)/netrc", "no-netrc=false", "save-cookies=\(local)/saved", "input-file=\(cookies)",
          "certificate=\(cookies)", "private-key=\(cookies)", "ca-certificate=\(cookies)", "conf-path=\(cookies)",
          "on-download-complete=\(local)/program", "on=complete \(local)/program", "out=\(local)/out",
          "out=../../local/out", "dir=\(local)", "dir=../../local", "resolver=\(local)/program", "resolver=program",
          "resolver=../local/program", "header=@\(cookies)", "checksum=@\(cookies)", "referer=file://\(cookies)",
          "id=\(cookies)",
        ]
        var list = ""
        for (number, option) in options.enumerated() {
          origin.add("/\(number).bin", size: 1000)
          list += "\(origin.url("/\(number).bin"))\n  \(option)\n"
        }
        for url in ["file://\(cookies)", "file:\(cookies)", cookies, "../local/cookies"] { list += url + "\n" }
        origin.set("/list.txt", OriginResource(bytes: Array(list.utf8)))
        let mounted = try mount(journey, origin.url("/list.txt"))
        #expect(mounted.succeeded && mounted.errors.contains("load-cookies=: a list that a server gave"), "\(mounted)")
        // All that can be read of it.
        _ = try journey.run(["sh", "-c", "find \"$1\" -type f -exec cat {} + >/dev/null", "sh", journey.mountpoint])
        try journey.unmount()
        #expect(watcher.standardOutputSoFar == "")
        #expect(origin.log.entries.count > options.count - 5)
        for entry in origin.log.entries {
          #expect(entry.request.header("cookie") == nil && entry.request.header("authorization") == nil)
        }
        #expect(try Command.run(["grep", "-rqs", "geheim", journey.store]).status == 1)
      }
    }
  }
}

/// Several lists in one mount.
@Suite struct SeveralListTests {
  private func mount(_ journey: Journey, _ lists: [String], _ options: String...) throws -> CommandResult {
    try journey.run(
      [try Programs.path("mediafs"), "mount", journey.mountpoint, "--store", journey.store]
        + lists.flatMap { ["--manifest", $0] } + options)
  }

  private func write(_ journey: Journey, _ name: String, _ text: String) throws -> String {
    let path = try journey.folder.write(text, to: name)
    if let user = journey.user { try #require(chown(path, user.userID, user.groupID) == 0) }
    return path
  }

  @Test(arguments: Traveller.all) func eachHasItsFolder(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      let top = try write(journey, "top", "http://127.0.0.1:1/one.bin\n")
      let films = try write(journey, "films", "http://127.0.0.1:1/a.mkv\n")
      let music = try write(journey, "music", "http://127.0.0.1:1/a.mp3\n  dir=Album\n")
      #expect(try mount(journey, [top, "Films=\(films)", "Music=\(music)"]).succeeded)
      #expect(try journey.names() == ["Films", "Music", "one.bin"])
      #expect(try journey.names("Music/Album") == ["a.mp3"])
      // Each is followed.
      try journey.shell(#"echo "$1" >> "$2""#, "http://127.0.0.1:1/b.mkv", films)
      try journey.waitForNames(["a.mkv", "b.mkv"], in: "Films")
      try journey.shell(#"echo "$1" >> "$2""#, "http://127.0.0.1:1/two.bin", top)
      try journey.waitForNames(["Films", "Music", "one.bin", "two.bin"])
      // A broken one keeps what was, and is named.
      try journey.shell(#"printf '<?xml version="1.0"?><rss><channel>' > "$1""#, music)
      #expect(
        eventually { (try? journey.mediafs("status", journey.mountpoint).output.contains("\(music), line")) == true })
      #expect(try journey.names("Music/Album") == ["a.mp3"])
      // So does one that lost all, though the others have names.
      for list in [music, top] {
        try journey.shell(#"printf 'http://127.0.0.1:1/a.mp3\n  dir=Album\n' > "$1"; : > "$2""#, music, list)
        #expect(
          eventually {
            (try? journey.mediafs("status", journey.mountpoint).output.contains("\(list): this list of URLs has no"))
              == true
          }, "\(journey.log.suffix(2000))")
        #expect(try journey.names("Music/Album") == ["a.mp3"] && journey.names().contains("one.bin"))
      }
      // Of those that are gone, the one is named.
      try journey.shell(#"rm "$1""#, films)
      let message = "the list \(films) is not there any more"
      #expect(eventually { (try? journey.mediafs("status", journey.mountpoint).output.contains(message)) == true })
      #expect(try journey.names("Films") == ["a.mkv", "b.mkv"])
    }
  }

  /// `check` shows what the mount of several lists would; each problem is told with its own list.
  @Test func severalAreChecked() throws {
    try withJourney { journey in
      let top = try write(journey, "top", "http://127.0.0.1:1/one.bin\n")
      let films = try write(journey, "films", "http://127.0.0.1:1/a.mkv\n\nftp://127.0.0.1/b.mkv\n")
      let music = try write(journey, "music.m3u", "#EXTM3U\nhttp://127.0.0.1:1/a.m3u8\n")
      let checked = try journey.mediafs("check", "Films=\(films)", top, "Music=\(music)")
      #expect(checked.status == 1)
      for name in ["Films", "a.mkv", "Music", "one.bin"] { #expect(checked.output.contains(name)) }
      #expect(checked.output.hasSuffix("3 files, 2 folders, 1 error, 1 warning\n"), "\(checked.output)")
      #expect(checked.errors.contains("\(films):3: error: "), "\(checked.errors)")
      #expect(checked.errors.contains("\(music):2: warning: "), "\(checked.errors)")
      #expect(try journey.mediafs("check", top, films).errors.contains("NAME=FILE"))
      #expect(try journey.mediafs("check", "A=\(top)", "A=\(films)").errors.contains("the folder A"))
      #expect(try journey.mediafs("check", ".=\(top)").status == 2)
      // A mount names the list, too.
      let mounted = try mount(journey, [top, "Films=\(films)"])
      #expect(mounted.succeeded && mounted.errors.contains("\(films):3: "), "\(mounted.errors)")
    }
  }

  @Test func aCheckSaysWhoseNamesAreMissing() throws {
    try withJourney { journey in
      let one = try write(journey, "one", "http://127.0.0.1:1/a.mkv\nhttp://127.0.0.1:1/films/\n")
      let checked = try journey.mediafs("check", one)
      #expect(checked.succeeded && checked.output.hasSuffix("1 file, 1 folder, 0 errors, 0 warnings\n"), "\(checked)")
      #expect(checked.errors.hasPrefix("\(one):2: note: 1 folder shows"), "\(checked.errors)")
      let two = try write(journey, "two", "http://127.0.0.1:1/a/\nhttp://127.0.0.1:1/b/\n")
      let several = try journey.mediafs("check", "A=\(two)").errors
      #expect(several.hasPrefix("\(two):1: note: 2 folders, the first here, show"), "\(several)")
    }
  }

  /// A list that was cut at the end of a line waits, however few of all names it has.
  @Test func eachWaitsForAReloadByItself() throws {
    try withJourney { journey in
      func lines(_ count: Int) -> String { (0..<count).map { "http://127.0.0.1:1/\($0).bin\n" }.joined() }
      let top = try write(journey, "top", lines(3))
      let films = try write(journey, "films", lines(5))
      let music = try write(journey, "music", lines(100))
      #expect(try mount(journey, [top, "Films=\(films)", "Music=\(music)"]).succeeded)
      // The folder is a name, too: this is half of them.
      _ = try write(journey, "films", lines(2))
      try journey.waitForNames(["0.bin", "1.bin"], in: "Films")
      for (list, name, words) in [(films, "films", "lacks 2 of its 3 names"), (top, "top", "lacks 2 of its 3 names")] {
        _ = try write(journey, name, name == "films" ? "http://127.0.0.1:1/new.bin\n" : lines(1))
        #expect(
          eventually {
            (try? journey.mediafs("status", journey.mountpoint).output.contains("\(list) \(words)")) == true
          }, "\(journey.log.suffix(2000))")
        #expect(try journey.names("Films") == ["0.bin", "1.bin"] && journey.names().count == 5)
        if name == "films" { _ = try write(journey, name, lines(2)) }
      }
      try journey.succeed([try Programs.path("mediafs"), "reload", journey.mountpoint])
      #expect(try journey.names() == ["0.bin", "Films", "Music"] && journey.names("Films").count == 2)
    }
  }

  /// A folder that was empty at the mount shows what comes.
  @Test func anEmptyFolderIsAListToo() throws {
    try withJourney { journey in
      let www = try TemporaryFolder(open: true)
      defer { try? www.remove() }
      try www.makeFolder("incoming")
      var settings = NginxSettings(.folder(www.path))
      settings.lines = "autoindex on;"
      try withNginx(settings) { nginx in
        #expect(try mount(journey, [nginx.url("/incoming/")], "--fresh", "1s").succeeded)
        #expect(try journey.names().isEmpty)
        try www.write("text", to: "incoming/a.txt")
        try journey.waitForNames(["a.txt"])
        #expect(try journey.succeed(["cat", journey.at("a.txt")]) == "text")
      }
    }
  }

  @Test func noListHasToBeAtTheTop() throws {
    try withJourney { journey in
      let www = try TemporaryFolder(open: true)
      defer { try? www.remove() }
      try www.write("http://127.0.0.1:1/a.mkv\n", to: "list.txt")
      try www.write("text", to: "films/b.txt")
      var settings = NginxSettings(.folder(www.path))
      settings.lines = "autoindex on;"
      try withNginx(settings) { nginx in
        #expect(
          try mount(journey, ["A=\(nginx.url("/list.txt"))", "B=\(nginx.url("/films/"))"], "--fresh", "1s").succeeded)
        #expect(try journey.names() == ["A", "B"])
        #expect(try journey.names("B") == ["b.txt"] && journey.names("A") == ["a.mkv"])
        try www.write("http://127.0.0.1:1/a.mkv\nhttp://127.0.0.1:1/c.mkv\n", to: "list.txt")
        try journey.waitForNames(["a.mkv", "c.mkv"], in: "A")
      }
    }
  }

  @Test func twoListsThatWantOneNameAreNamed() throws {
    try withJourney { journey in
      let one = try write(journey, "one", "http://127.0.0.1:1/a.mkv\n  out=Films\n")
      let two = try write(journey, "two", "http://127.0.0.1:1/b.mkv\n")
      for (lists, words) in [
        (["Films=\(one)", "Films=\(two)"], "two lists want the folder Films: \(one) and \(two)"),
        ([one, two], "--manifest is given twice without a name"), (["a b/..=\(one)"], "cannot read"),
        (["..=\(one)"], "--manifest takes"), (["Films=-"], "--manifest takes"), (["Films="], "--manifest takes"),
      ] {
        let failed = try mount(journey, lists)
        #expect(failed.status != 0 && failed.errors.contains(words), "\(lists): \(failed)")
      }
      let mounted = try mount(journey, [one, "Films=\(two)"])
      #expect(mounted.errors.contains("\(one)") && mounted.errors.contains("folder of the list \(two)"), "\(mounted)")
      #expect(try journey.names().count == 2)
    }
  }
}
