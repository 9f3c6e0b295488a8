import Base
import Glibc
import TestSupport
import Testing

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

  /// An import changes nothing by which the next mount tells that the list is the same.
  @Test func anUnchangedListIsNotReadAgain() throws {
    try withList { journey, nginx, write in
      try write("\(nginx.url("/a.bin"))\n")
      for mount in 1...4 {
        let mounted = try self.mount(journey, nginx.url("/list.txt"), "-v", "-v")
        #expect(mounted.succeeded)
        #expect(mount < 3 || mounted.errors.contains("the manifest is unchanged"), "mount \(mount): \(mounted)")
        try journey.waitForNames(["a.bin"])
        try journey.unmount()
        // One that has just come may change again without another time.
        let documents = journey.store + "/lists"
        if mount == 1 {
          try journey.succeed(["find", documents, "-type", "f", "-exec", "touch", "-d", "-1min", "{}", "+"])
        }
      }
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

  /// Other options made it useless, and the next mount has them too.
  @Test func aCopyOfNoUseDoesNotComeBack() throws {
    try withList { journey, nginx, write in
      let url = nginx.url("/list.txt")
      try write("\(nginx.url("/a.bin"))\n")
      #expect(try mount(journey, url).succeeded)
      try journey.unmount()
      try write("[playlist]\nFile1=\(nginx.url("/b.bin"))\n")
      #expect(try mount(journey, url, "--format", "pls").succeeded)
      #expect(try journey.names() == ["b.bin"])
      try journey.unmount()
      nginx.kill()
      #expect(try mount(journey, url, "--format", "pls").succeeded)
      #expect(try journey.names() == ["b.bin"])
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
