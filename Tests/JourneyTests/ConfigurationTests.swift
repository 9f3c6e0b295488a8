import Base
import Glibc
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// The files of `mount --config NAME`: docs/SERVICE.md, "The file".
@Suite struct ConfigurationTests {
  private func lines(_ text: String) throws -> [MountConfiguration.Line] {
    try MountConfiguration.parse(Array(text.utf8), "/f")
  }

  private typealias Line = MountConfiguration.Line
  private typealias TemporaryFolder = TestSupport.TemporaryFolder

  @Test func linesAreReadAsTheFormatSays() throws {
    #expect(try lines("") == [] && lines("# a\n\n \t\n  # b = c") == [])
    #expect(try lines("strict") == [Line(number: 1, name: "strict", value: nil)])
    let text = "\u{FEFF}# first\r\n list\t= http://h/a#b c \r\nuser=x\nheader = \" X: \\\"a\\\\ \"\nallow_other=\"\"\n"
    #expect(
      try lines(text) == [
        Line(number: 2, name: "list", value: "http://h/a#b c"), Line(number: 3, name: "user", value: "x"),
        Line(number: 4, name: "header", value: " X: \"a\\ "), Line(number: 5, name: "allow_other", value: ""),
      ])
    // Without quotes at its start, a value has all for itself.
    #expect(try lines(#"on = complete "a b" c\d"#).first?.value == #"complete "a b" c\d"#)
  }

  @Test(arguments: [
    ("= x", "this is no option"), ("a b", "this is no option"), ("[Mount]", "this is no option"),
    ("a =", "the value is missing"), ("a = \"x", "the closing quote is missing"),
    ("a = \"x\" y", "there is something behind the closing quote"),
    ("a = \"\\n\"", "between quotes, write a backslash as"),
    ("a = x\0", "there is a zero byte"),
  ])
  func wrongLinesAreToldByTheirNumber(_ line: String, _ why: String) throws {
    #expect {
      _ = try lines("# one\n" + line)
    } throws: { "\($0)".contains("/f, line 2: \(why)") }
  }

  @Test func anyBytesAreReadOrRefused() throws {
    var random = SeededRandom.fromEnvironment()
    let pieces: [[UInt8]] = ["list", "=", " ", "\"", "\\", "\n", "#", "\r\n", "a-b_c", "~/"].map { Array($0.utf8) }
    for _ in 0..<5000 {
      var bytes: [UInt8] = []
      for _ in 0..<Int.random(in: 0..<20, using: &random) {
        bytes +=
          Int.random(in: 0..<5, using: &random) == 0
          ? [UInt8.random(in: 0...255, using: &random)] : pieces.randomElement(using: &random)!
      }
      do {
        for line in try MountConfiguration.parse(bytes, "/f") { #expect(!line.name.isEmpty && line.number > 0) }
      } catch { #expect("\(error)".contains("/f, line "), "\(error)") }
    }
  }

  /// The mount that a file and a command line make.
  private func mount(_ text: String, in folder: TemporaryFolder, overridden: Set<String> = []) throws
    -> (MountOptions, String?)
  {
    try folder.write(text, to: "a.conf")
    var mount = MountOptions()
    let mountpoint = try MountConfiguration(reading: folder.file("a.conf")).apply(to: &mount, overridden: overridden)
    return (mount, mountpoint)
  }

  @Test func everyOptionIsTakenByItsLongName() throws {
    try withTemporaryFolder { folder in
      let home = getenv("HOME").map { String(cString: $0) } ?? "/"
      let (mount, mountpoint) = try mount(
        """
        list = films=~/films.txt
        list = music.txt
        mountpoint = m
        timeout = 7
        strict
        allow_other = yes
        foreground = no
        verbose
        verbose
        header = X-A: b
        header = @h.txt
        noatime
        fsname = "a,b"
        """, in: folder)
      #expect(mountpoint == folder.file("m"))
      #expect(mount.request.named == [NamedList(folder: "films", place: home + "/films.txt")])
      #expect(mount.request.manifest == folder.file("music.txt"))
      #expect(mount.request.downloads.timeout == 7 && mount.request.strict && mount.request.access.allowOther)
      #expect(!mount.request.foreground && mount.request.log.verbosity == 2)
      #expect(mount.headers == ["X-A: b", "@" + folder.file("h.txt")])
      #expect(mount.kernelOptions == ["noatime"] && mount.sourceName == "a,b")
    }
  }

  @Test func theCommandLineGoesBefore() throws {
    try withTemporaryFolder { folder in
      let (mount, _) = try mount(
        "list = a\ntimeout = 7\nheader = X: y\n", in: folder, overridden: ["manifest", "header"])
      #expect(mount.request.manifest.isEmpty && mount.headers.isEmpty && mount.request.downloads.timeout == 7)
    }
  }

  @Test(arguments: [
    ("timeout = never", "line 1: --timeout takes a number of seconds from 1 to 86400, not never"),
    ("strict = maybe", "line 1: strict takes yes or no, not maybe"),
    ("timeout", "line 1: the option timeout needs a value"), ("mountpoint", "line 1: the option mountpoint needs"),
    ("--strict", "line 1: unknown mount option --strict"), ("\nno-such = 1", "line 2: unknown mount option no-such"),
    ("store = a\nstore = b", "line 2: store is in line 1"),
    ("config = x", "line 1: config is an option for the command line alone"),
    ("check", "line 1: check is an option for the command line alone"),
    ("store = \"\"", "line 1: --store takes a path, not "),
    ("mountpoint = \"\"", "line 1: the option mountpoint needs"),
    ("list = \"\"", "line 1: --manifest takes a path, a URL"), ("store = ~anna/x", "line 1: write the home of another"),
    ("service", "line 1: service is an option for the command line alone"), ("rw", "line 1: a mount of mediafs is"),
    ("uid = no-such-user", "line 1: there is no user no-such-user"),
  ])
  func wrongOptionsAreToldByFileAndLine(_ text: String, _ why: String) throws {
    try withTemporaryFolder { (folder) -> Void in
      #expect {
        _ = try mount(text, in: folder)
      } throws: { "\($0)".contains("\(folder.file("a.conf")), \(why)") }
    }
  }

  @Test func whoeverElseMayWriteTheFileIsNotHeard() throws {
    try withTemporaryFolder { folder in
      let path = try folder.write("strict\n", to: "a.conf")
      try #require(chmod(path, 0o666) == 0)
      #expect { _ = try MountConfiguration(reading: path) } throws: { "\($0)".contains("other users can write to") }
      try #require(chmod(path, 0o600) == 0)
      _ = try MountConfiguration(reading: path)
      try #require(chmod(folder.path, 0o777) == 0)
      if geteuid() == 0 {
        #expect { _ = try MountConfiguration(reading: path) } throws: { "\($0)".contains("write to \(folder.path)") }
        try #require(chmod(folder.path, 0o755) == 0 && chown(path, 65534, 65534) == 0)
        #expect { _ = try MountConfiguration(reading: path) } throws: { "\($0)".contains("belongs to the user 65534") }
      }
      try #require(mkfifo(folder.file("pipe.conf"), 0o600) == 0)
      for (name, why) in [("pipe.conf", "is not a plain file"), ("none.conf", "cannot read")] {
        #expect {
          _ = try MountConfiguration(reading: folder.file(name))
        } throws: { "\($0)".contains(why) }
      }
    }
  }

  /// As an ordinary user types it, whose file is in the home.
  @Test func aNameIsEnoughToMount() throws {
    try withJourney(.user) { journey in
      try withOrigin { origin in
        origin.add("/a.bin", size: 1000)
        try journey.list(origin.url("/a.bin") + "\n")
        let conf = journey.folder.file(".config/mediafs")
        try journey.succeed(["mkdir", "-p", conf])
        let text = "list = ../../urls.txt\nmountpoint = ~/media\nstore = \(journey.store)\ntimeout = 9\n"
        try journey.succeed(["sh", "-c", "printf %s \"$1\" >\"$2/x.conf\"", "sh", text, conf])
        let mediafs = try Programs.path("mediafs")
        try journey.succeed([mediafs, "mount", "--config", "x"])
        #expect(try journey.status().totals.files == 1)
        try journey.unmount()
        for (words, why) in [
          (["--config", "../x"], "--config takes the name of a file without .conf"),
          (["--config", "y"], "cannot read \(conf)/y.conf"), (["--config", "x", "--timeout=0"], "--timeout takes"),
        ] {
          let refused = try journey.run([mediafs, "mount"] + words)
          #expect(refused.status == 2 && refused.errors.contains(why), "\(refused)")
        }
      }
    }
  }
}
