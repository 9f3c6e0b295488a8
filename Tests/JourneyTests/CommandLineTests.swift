import Base
import Glibc
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// Reading the command line, without a mount.
@Suite struct CommandLineTests {
  private let known: [Option] = [
    .value("store"), .value("strict-level"), .flag("strict"), .flag("verbose", "v"), .value("options", "o"),
  ]

  @Test func gnuHabits() throws {
    let parsed = try OptionParser.parse(
      ["one", "-vv", "--store=a=b", "-oro,rw", "two", "--verb", "-o", "x", "--", "--strict"], known)
    #expect(parsed.operands == ["one", "two", "--strict"])
    #expect(parsed.options.map(\.name) == ["verbose", "verbose", "store", "options", "verbose", "options"])
    #expect(parsed.value("store") == "a=b" && parsed.values("options") == ["ro,rw", "x"])
    #expect(try OptionParser.parse(["--strict"], known).has("strict"), "a whole name is not ambiguous")
    #expect(try OptionParser.parse(["run", "--strict"], known, mixed: false).operands == ["run", "--strict"])
  }

  @Test(arguments: [
    (["--stroe=secret"], "unknown option --stroe"), (["-x"], "unknown option -x"), (["-vx"], "unknown option -x"),
    (["--store"], "the option --store needs a value"), (["-o"], "the option -o needs a value"),
    (["--strict=secret"], "the option --strict takes no value"),
    (["--str=secret"], "the option --str could mean --strict-level or --strict"),
  ])
  func complaintsShowNoValue(_ arguments: [String], _ message: String) {
    #expect(throws: CommandError.usage(message)) { try OptionParser.parse(arguments, known) }
  }

  @Test func sizes() {
    #expect(ByteSize.parse("0") == 0 && ByteSize.parse("123") == 123 && ByteSize.parse("7b") == 7)
    #expect(ByteSize.parse("1G") == 1 << 30 && ByteSize.parse("500M") == 500 << 20 && ByteSize.parse("2kib") == 2048)
    #expect(ByteSize.parse("1.5GiB") == 3 << 29 && ByteSize.parse("1TB") == 1 << 40)
    #expect(ByteSize.parse("9007199254740993") == 9_007_199_254_740_993)
    for wrong in ["", "G", "-1", "1X", "1 G", "1e3", "nan", "inf", "99999999T", "1.5.5", "+1"] {
      #expect(ByteSize.parse(wrong) == nil, "\(wrong)")
    }
  }

  @Test func mountOptionsSplit() {
    let split = MountOptions.split(#"ro,,header=Cookie: a\,b,store=/x=y,c\\d,user"#)
    #expect(split.map(\.name) == ["ro", "header", "store", #"c\d"#, "user"])
    #expect(split.map(\.value) == [nil, "Cookie: a,b", "/x=y", nil, nil])
    #expect(MountOptions.split(MountOptions.escaped(#"a,b\c"#)).first?.name == #"a,b\c"#)
  }

  private func options(_ list: String) throws -> MountOptions {
    var mount = MountOptions()
    for (name, value) in MountOptions.split(list) { try mount.take(name, value, isMountOption: true) }
    return mount
  }

  @Test func usualMountOptions() throws {
    let mount = try options(
      "ro,nofail,_netdev,noauto,auto,user,nouser,defaults,sync,x-gvfs-show,comment=hi,nosuid,noatime,allow_other,uid=5,"
        + "gid=root,umask=027,store=/s,continue=open,timeout=4.5,max-size=2G,strict,verbose,fsname=a\\,b")
    let request = mount.request
    #expect(request.access.uid == 5 && request.access.gid == 0 && request.access.umask == 0o27 && mount.user == nil)
    #expect(request.downloads.continuation == .open && request.downloads.timeout == 4.5)
    #expect(request.storage.store == "/s" && request.storage.maxSize == 2 << 30)
    #expect(request.strict && request.log.verbosity == 1)
    #expect(
      mount.libfuseOptions
        == "ro,default_permissions,subtype=mediafs,max_read=65536,fsname=a\\,b,allow_other,nosuid,noatime")
    #expect(try options("user=bob").user == "bob")
  }

  @Test(arguments: [
    "nonsense", "manifest=/x", "options=x", "nosuid=1", "strict=1", "store", "timeout=0", "timeout=x", "umask=8",
    "continue=now", "max-size=lots", "header=secret", "header=a b: c", "limit-rate=0", "max-connections=0", "uid",
    "rw", "ro,allow_other,rw",
  ])
  func wrongMountOptions(_ list: String) {
    #expect {
      try options(list)
    } throws: { error in
      guard case .usage(let message)? = error as? CommandError else { return false }
      return !message.contains("secret")
    }
  }

  @Test func headers() throws {
    #expect(
      try Secrets.headers("X-A:  some: value \t") == [HTTPHeader(name: "X-A", value: "some: value")])
    #expect(try Secrets.headers("X-Empty:") == [HTTPHeader(name: "X-Empty", value: "")])
    for wrong in ["none", ": x", "a\nb: c", "a: b\r\nc: d", "a: \0"] {
      #expect(throws: CommandError.self) { try Secrets.headers(wrong) }
    }
    let path = "/tmp/mediafs-headers.\(getpid())"
    let file = try FileDescriptor.open(path, O_WRONLY | O_CREAT | O_TRUNC)
    defer { unlink(path) }
    let text = Array("A: 1\r\n\n  \nB: 2".utf8)
    #expect(write(file.rawValue, text, text.count) == text.count)
    #expect(try Secrets.headers("@\(path)") == [HTTPHeader(name: "A", value: "1"), HTTPHeader(name: "B", value: "2")])
    #expect(throws: CommandError.self) { try Secrets.headers("@/no/such/file") }
  }

  @Test(arguments: [
    ("Cookie: s3cret", "*****" + "*********"), ("--header=Cookie: s3cret", "--header=**************"),
    ("-oro,header=X: y,z", "-oro,header=******"), ("unrelated", "unrelated"),
    ("--base-url=http://u:s3cret@h/", "--base-url=******************"),
    ("-oro,base-url=http://h/,header=X: y", "-oro,base-url=*********************"),
  ])
  func hiddenWords(_ word: String, _ hidden: String) {
    var bytes = Array(word.utf8CString.dropLast())
    bytes.withUnsafeMutableBufferPointer { Secrets.hide($0, [Array("Cookie: s3cret".utf8)]) }
    #expect(String(decoding: bytes.map { UInt8(bitPattern: $0) }, as: UTF8.self) == hidden)
  }

  @Test func requestsTravel() throws {
    var request = MountRequest(mountpoint: "/m\n", manifest: "-")
    #expect(try MountRequest(decoding: request.encoded()) == request)
    request.storage.store = "/ü"
    request.storage.library = "/l"
    request.downloads.continuation = .always
    request.downloads.timeout = 0.1
    request.origins.headers = [HTTPHeader(name: "A", value: "b: c"), HTTPHeader(name: "A", value: "")]
    request.origins.certificateFile = "/c"
    request.origins.netrcFile = "/n"
    request.log.file = "/log"
    request.log.verbosity = 2
    request.foreground = true
    request.strict = true
    request.storage.maxSize = .max
    request.storage.minFree = 0
    request.downloads.limitRate = 5
    request.downloads.maxConnections = 6
    request.access.uid = .max
    request.access.gid = 0
    request.access.umask = 0o777
    request.access.allowOther = true
    let bytes = request.encoded()
    #expect(try MountRequest(decoding: bytes) == request)
    // Cut anywhere it is an error or a shorter request, never a crash.
    for end in bytes.indices { _ = try? MountRequest(decoding: Array(bytes[..<end])) }
    #expect(throws: ServerError.self) { try MountRequest(decoding: Array(bytes.dropLast())) }
    var random = SeededRandom.fromEnvironment()
    for _ in 0..<2000 {
      var damaged = bytes
      damaged[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
      _ = try? MountRequest(decoding: damaged)
    }
  }

  @Test func mountTableLines() throws {
    let text = """
      42 27 0:39 / /mnt/a\\040b rw,relatime shared:1 - fuse.mediafs /l\\134x rw,user_id=1
      nonsense
      43 27 8:1 /sub /mnt/c ro - ext4 /dev/sda1 rw

      """
    let entries = MountTable.parse(Array(text.utf8))
    #expect(entries.map(\.mountpoint) == ["/mnt/a b", "/mnt/c"])
    #expect(entries[0].device == 39 && entries[0].isMediafs && entries[0].source == "/l\\x")
    #expect(entries[0].options == "rw,user_id=1" && !entries[1].isMediafs)
  }

  @Test func logFilesRotate() throws {
    let path = "/tmp/mediafs-log.\(getpid())"
    defer {
      unlink(path)
      unlink(path + ".1")
    }
    let target = open("/dev/null", O_RDWR)
    defer { close(target) }
    let log = try LogFile(path: path, limit: 100, target: target)
    try log.attach()
    let line = [UInt8](repeating: 65, count: 60)
    #expect(write(target, line, 60) == 60)
    #expect(try log.rotateIfFull() == false)
    #expect(write(target, line, 60) == 60)
    #expect(try log.rotateIfFull() == true)
    #expect(write(target, line, 10) == 10)
    #expect(try Files.read(path + ".1", limit: 1000).count == 120)
    #expect(try Files.read(path, limit: 1000).count == 10)
    var status = stat()
    #expect(stat(path, &status) == 0 && status.st_mode & 0o777 == 0o600)
    // A server that is restricted cannot create files beside its log.
    let early = try LogFile(path: path, opensOlder: true, limit: 100, target: target)
    try early.attach()
    #expect(try Files.read(path + ".1", limit: 1000).count == 120)
    #expect(rename(path + ".1", path + ".moved") == 0)
    defer { unlink(path + ".moved") }
    for _ in 0..<2 { #expect(write(target, line, 60) == 60) }
    #expect(try early.rotateIfFull() == true)
    #expect(try Files.read(path + ".moved", limit: 1000).count == 130)
    #expect(access(path + ".1", F_OK) != 0)
    #expect(stat(path, &status) == 0 && status.st_size == 0)
    // After a failure it is left alone for a while: on a full disk each attempt would write all of it.
    let barred = try LogFile(path: path, limit: 100, target: target)
    try barred.attach()
    try #require(mkdir(path + ".1", 0o700) == 0)
    for _ in 0..<2 { #expect(write(target, line, 60) == 60) }
    #expect(throws: ServerError.self) { try barred.rotateIfFull() }
    rmdir(path + ".1")
    #expect(try barred.rotateIfFull() == false)
  }

  @Test func theProgram() throws {
    let place = try MountPlace()
    let version = try place.run("--version")
    #expect(version.status == 0 && version.text.hasPrefix("mediafs \(Program.version)\n"))
    for command in Program.commands {
      for arguments in [["help", command.names[0]], [command.names[0], "--help"]] {
        if arguments[1] == "--help", !["mount", "unmount", "serve"].contains(arguments[0]) { continue }
        let help = try place.wait(place.start([place.mediafs] + arguments))
        #expect(help.status == 0 && help.text == command.help.text + "\n", "\(arguments)")
      }
    }
    for wrong in [
      [], ["nonsense"], ["--nonsense"], ["mount"], ["mount", "/x"], ["unmount"], ["serve"], ["help", "x"],
    ] {
      let answer = try place.wait(place.start([place.mediafs] + wrong))
      #expect(answer.status == 2 && answer.text.hasPrefix("mediafs: "), "\(wrong): \(answer)")
    }
    let foreign = try place.run("unmount", "/proc")
    #expect(foreign.status == 1 && foreign.text.contains("not a mount of mediafs"), "\(foreign)")
    let none = try place.run("unmount", place.folder)
    #expect(none.status == 1 && none.text.contains("is not mounted"), "\(none)")
  }
}
