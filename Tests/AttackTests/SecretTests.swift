import Base
import Glibc
import TestSupport
import Testing

/// Tokens are planted wherever a user or an origin may put one; then all that anybody could see is searched for them.
@Suite("Secrets", .serialized)
struct SecretTests {
  /// What all planted tokens begin with.
  private static let mark = "s3cr3t"

  /// What a user's manifest may hold; the second origin is `other`.
  private static func manifest(_ origin: Origin, _ other: Origin) -> String {
    let home = "127.0.0.1:\(origin.port)"
    return """
      http://anna:\(mark)-userinfo@\(home)/good.bin?X-Amz-Signature=\(mark)-signature&X-Amz-Credential=\(mark)-credential
        header=X-Own: \(mark)-field
        header=Cookie: session=\(mark)-cookie
        referer=http://\(home)/page?\(mark)-referer
      http://anna:\(mark)-userinfo@\(home)/moved.bin?sig=\(mark)-signature
        header=X-Own: \(mark)-field
        header=Cookie: session=\(mark)-cookie
        header=Authorization: Bearer \(mark)-bearer
        header=Proxy-Authorization: Basic \(mark)-proxy-field
        referer=http://\(home)/page?\(mark)-referer
      http://anna:\(mark)-userinfo@\(home)/denied.bin?sig=\(mark)-signature
        header=X-Own: \(mark)-field
      http://anna:\(mark)-userinfo@\(home)/gone.bin?sig=\(mark)-signature
      http://anna:\(mark)-userinfo@\(home)/broken.bin?sig=\(mark)-signature
      http://anna:\(mark)-userinfo@\(home)/loop.bin?sig=\(mark)-signature
      http://anna:\(mark)-userinfo@\(home)/to-file.bin?sig=\(mark)-signature
      http://anna:\(mark)-userinfo@\(home)/to-ftp.bin?sig=\(mark)-signature
      http://anna:\(mark)-userinfo@\(home)/to-nonsense.bin?sig=\(mark)-signature
      http://anna:\(mark)-userinfo@127.0.0.1:1/refused.bin?sig=\(mark)-signature
      http://anna:\(mark)-userinfo@no-such-host.invalid/unknown.bin?sig=\(mark)-signature
      https://anna:\(mark)-userinfo@proxied.invalid/proxied.bin?sig=\(mark)-signature
      http://127.0.0.1:\(other.port)/netrc.bin
      http://anna:\(mark)-bad@ho st/bad.bin?\(mark)-bad
      htp://anna:\(mark)-bad@host/bad.bin?\(mark)-bad
      http://anna:\(mark)-bad@host:port\(mark)/bad.bin?\(mark)-bad
      http://\(home)/options.bin?\(mark)-signature
        header=No Header \(mark)-bad
        header=\(mark)-without-a-colon
        header=Bad Name: \(mark)-bad
        checksum=md5=\(mark)
        out=options.bin

      """
  }

  private static func prepare(_ origin: Origin, _ other: Origin) {
    for name in ["good", "moved", "broken", "options"] { origin.add("/\(name).bin", size: 400_000) }
    origin.change("/good.bin") { $0.headers = [("Set-Cookie", "id=\(mark)-set-cookie; Path=/")] }
    let target = other.url("/target.bin?token=\(mark)-of-the-redirect")
    origin.fault(.redirect(to: target.replacing("http://", with: "http://x:\(mark)-location@")), path: "/moved.bin")
    origin.fault(.status(403), path: "/denied.bin")
    origin.fault(.status(410), path: "/gone.bin")
    origin.fault(.contentRange(.text("bytes 1-2/3 \(mark)")), path: "/broken.bin")
    origin.fault(.redirectLoop(), path: "/loop.bin")
    origin.fault(.redirect(to: "file:///etc/passwd?\(mark)"), path: "/to-file.bin")
    origin.fault(.redirect(to: "ftp://u:\(mark)@host/\(mark)?"), path: "/to-ftp.bin")
    origin.fault(.redirect(to: "http://u:\(mark)@[bad/?\(mark)"), path: "/to-nonsense.bin")
    other.add("/target.bin", size: 400_000)
    other.add("/netrc.bin", size: 400_000)
  }

  @Test func noSecretShowsAnywhere() throws {
    try withVictim { victim in
      let other = try Origin()
      defer { other.stop() }
      Self.prepare(victim.origin, other)
      let mark = Self.mark
      try victim.folder.write(
        "machine 127.0.0.1 login anna password \(mark)-netrc\ndefault login d password \(mark)-default\n",
        to: "home/.netrc", mode: 0o600)
      let fields = try victim.folder.write("X-File: \(mark)-field-of-a-file\n", to: "fields", mode: 0o600)
      let mounted = try victim.mount(
        Self.manifest(victim.origin, other),
        [
          "--header", "@\(fields)", "--header", "X-Line: \(mark)-line", "-o", "header=X-Option: \(mark)-option",
          "--timeout", "3",
        ],
        ["https_proxy": "http://u:\(mark)-proxy@pro xy:bad/"])
      var shown: [(what: String, text: String)] = [("mount", mounted.output + mounted.errors)]

      // Success, failure, and what is said of both.
      let files = try names(in: victim.mountpoint).sorted()
      #expect(files.contains("good.bin") && files.contains("moved.bin") && files.count >= 13, "\(files)")
      for file in files {
        let path = "\(victim.mountpoint)/\(file)"
        let result = try Command.run(["cat", path], timeout: 120)
        if ["good.bin", "moved.bin", "netrc.bin"].contains(file) {
          #expect(result.standardOutput.count == 400_000, "\(file): \(result.errors)")
        }
        shown.append(("cat \(file)", result.errors))
        shown += try Self.attributes(path)
      }
      for command in [
        ["status", victim.mountpoint], ["status", "--json", victim.mountpoint], ["status", "--all", victim.mountpoint],
        ["check", victim.folder.file("urls.txt")], ["fetch", "--wait", victim.mountpoint + "/denied.bin"],
        ["fetch", "--wait", victim.mountpoint + "/good.bin"], ["status", "--json", "--all", victim.mountpoint],
        ["clear", victim.mountpoint + "/broken.bin"], ["mount", victim.mountpoint, "--manifest", fields],
        ["mount", victim.mountpoint + "2", "--manifest", fields, "--header", "\(mark) no field"],
        ["mount", victim.mountpoint + "2", "--manifest", fields, "--heade=\(mark)", "--store", "/x"],
        ["mount", victim.mountpoint + "2", "--manifest", fields, "-o", "header=\(mark)"],
      ] {
        let result = try victim.run(command)
        shown.append((command.prefix(2).joined(separator: " "), result.output + result.errors))
      }
      #expect(shown.contains { $0.what == "status --json" && $0.text.contains("denied.bin") })
      shown += try Self.processes(victim)
      for file in ["/proc/self/mountinfo", "/proc/mounts", victim.log] {
        shown.append((file, String(decoding: try contents(of: file), as: UTF8.self)))
      }
      let log = shown.last?.text ?? ""
      #expect(
        log.contains("debug") && log.contains("good.bin"), "the log is not at its highest level: \(log.prefix(300))")
      try victim.unmount()
      let offline = try victim.run(["status", "--json", "--all", victim.mountpoint])
      shown.append(("status, unmounted", offline.output + offline.errors))
      // With something to find: a copy that is another one, and a partial file that is gone.
      try victim.folder.write("another", to: "store/library/good.bin")
      for name in try names(in: victim.store + "/partial") { unlink("\(victim.store)/partial/\(name)") }
      for options in [[], ["--repair"], ["-v"]] {
        let verified = try victim.run(["verify", victim.mountpoint] + options)
        shown.append(("verify \(options)", verified.output + verified.errors))
      }
      #expect(shown.contains { $0.what == "verify []" && $0.text.contains("good.bin") }, "verify found nothing")
      shown.append(("the log at the end", String(decoding: try contents(of: victim.log), as: UTF8.self)))
      // On the disk, links stand in the catalog alone; what goes wrong is in it too, and is shown by status.
      for (path, status) in try everything(below: victim.folder.path) where status.st_mode & S_IFMT == S_IFREG {
        let own = ["/urls.txt", "/fields", "/home/.netrc"].contains { path == victim.folder.path + $0 }
        if own || path.hasPrefix(victim.store + "/catalog.sqlite") { continue }
        shown.append((path, String(decoding: try contents(of: path), as: UTF8.self)))
      }
      for (what, text) in shown {
        let lines = text.split(separator: "\n").filter { $0.contains(mark) }
        #expect(lines.isEmpty, "\(what): \(lines.prefix(3))")
      }
      Self.checkOrigins(victim.origin, other)
    }
  }

  /// Each attribute's name and value.
  private static func attributes(_ path: String) throws -> [(what: String, text: String)] {
    var list = [CChar](repeating: 0, count: 4096)
    let length = listxattr(path, &list, list.count)
    try #require(length > 0)
    return list[..<length].split(separator: 0).map { name in
      let name = String(decoding: name.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      var value = [UInt8](repeating: 0, count: 65536)
      let count = getxattr(path, name, &value, value.count)
      return ("\(name) of \(path)", count > 0 ? String(decoding: value[..<count], as: UTF8.self) : "")
    }
  }

  /// What `ps` and its like show of the two processes.
  private static func processes(_ victim: Victim) throws -> [(what: String, text: String)] {
    let processes = try victim.processes()
    #expect(processes.count == 2)
    var shown: [(what: String, text: String)] = []
    for process in processes {
      // The environment is the user's own word (the proxy's password is in it); that others cannot read it:
      // AccessTests.
      for file in ["cmdline", "comm", "status", "stat", "mountinfo"] {
        shown.append(
          ("\(process.name) \(file)", String(decoding: try contents(of: "/proc/\(process.id)/\(file)"), as: UTF8.self)))
      }
      var link = [CChar](repeating: 0, count: 4096)
      for name in try names(in: "/proc/\(process.id)/fd")
      where readlink("/proc/\(process.id)/fd/\(name)", &link, 4095) > 0 {
        shown.append(
          (
            "\(process.name) fd \(name)",
            String(decoding: link.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
          ))
      }
    }
    return shown
  }

  /// Who was told what: the home origin all that is meant for it, the other one nothing of that.
  private static func checkOrigins(_ origin: Origin, _ other: Origin) {
    func text(_ entry: OriginLogEntry) -> String {
      ([entry.request.target] + entry.request.headers.map { "\($0.name): \($0.value)" }).joined(separator: "\n")
    }
    let atHome = origin.log.entries(of: "/good.bin").map(text)
    #expect(!atHome.isEmpty)
    for token in ["signature", "field", "cookie", "referer", "field-of-a-file", "line", "option"] {
      #expect(atHome.allSatisfy { $0.contains("\(mark)-\(token)") }, "the origin was not told its own \(token)")
    }
    #expect(atHome.allSatisfy { $0.contains("Authorization: Basic") && !$0.contains("set-cookie") })
    let redirected = other.log.entries(of: "/target.bin")
    #expect(!redirected.isEmpty)
    for entry in redirected {
      let said = text(entry).replacing("token=\(mark)-of-the-redirect", with: "")
      #expect(!said.contains(mark), "\(said)")
      // The host's own netrc login may go there (it is 127.0.0.1 too); the entry's and the Location's may not.
      let login = entry.request.header("Authorization")
      #expect(login == nil || login == "Basic " + base64("anna:\(mark)-netrc"), "\(login ?? "")")
    }
  }

  /// RFC 4648.
  private static func base64(_ text: String) -> String {
    let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
    let bytes = Array(text.utf8)
    var result = ""
    for start in stride(from: 0, to: bytes.count, by: 3) {
      let piece = bytes[start..<min(start + 3, bytes.count)]
      let bits = piece.reduce(0) { $0 << 8 | Int($1) } << (8 * (3 - piece.count))
      for index in 0..<4 { result += index <= piece.count ? String(digits[(bits >> (18 - 6 * index)) & 63]) : "=" }
    }
    return result
  }
}
