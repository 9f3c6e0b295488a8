import Base
import Glibc
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// Every option of the table is in help and in the manual, is understood wherever it may stand, and gets to the server.
@Suite struct OptionTableTests {
  /// Something other than the default of each option, as a user writes it, and what the options file has for it.
  private static let samples: [String: (written: String?, sent: String)] = [
    "manifest": ("/list", "/list"), "format": ("m3u", "m3u"),
    "base-url": ("http://h/", "http://h/"), "strict": (nil, "1"),
    "store": ("/s", "/s"), "library": ("/l,x", "/l,x"), "max-size": ("2G", "2147483648"),
    "evict": ("complete", "complete"), "max-age": ("2d", "172800.0"),
    "min-free": ("1.5GiB", "1610612736"), "continue": ("open", "open"), "timeout": ("4.5", "4.5"),
    "fresh": ("1.5h", "5400.0"), "next": ("5", "5"),
    "limit-rate": ("1M", "1048576"), "max-connections": ("7", "7"), "header": ("X-A:  b ", "X-A: b"),
    "resolve": ("r-2", "r-2"), "resolver": ("r=/x 'a  b' c,d", "r='/x' 'a  b' 'c,d'"),
    "share": ("s3://bucket/x", "s3://bucket/x"), "share-endpoint": ("http://h", "http://h"),
    "share-region": ("eu-1", "eu-1"), "share-key": ("/k", "/k"), "share-mode": ("ro", "ro"),
    "share-upload-limit": ("2M", "2097152"),
    "cacert": ("/c", "/c"), "netrc-file": ("/n", "/n"), "foreground": (nil, "1"), "log-file": ("/log", "/log"),
    "metrics-file": ("/m.prom", "/m.prom"),
    "on": ("complete /x 'a  b' c,d", "complete '/x' 'a  b' 'c,d'"), "verbose": (nil, "1"), "watchdog": ("2.5", "2.5"),
    "allow_other": (nil, "1"), "uid": ("root", "0"),
    "gid": ("root", "0"),
    "umask": ("027", "23"), "user": ("root", ""), "fsname": ("x", ""), "config": ("x", ""), "service": (nil, ""),
    "check": (nil, ""),
  ]

  /// What `option` makes of a mount, by each way that it may be given.
  private func ways(_ option: MountOption, _ value: String?) throws -> [MountOptions] {
    var ways: [MountOptions] = []
    if option.isOnCommandLine {
      let words = ["--\(option.name)" + (value.map { "=\($0)" } ?? "")] + (option.letter.map { ["-\($0)"] } ?? [])
      for word in words {
        var mount = MountOptions()
        let parsed = try OptionParser.parse([word], MountCommand.help.options)
        #expect(parsed.options.count == 1)
        for (name, value) in parsed.options { try mount.take(name, value, isMountOption: false) }
        ways.append(mount)
      }
    }
    if option.isMountOption {
      var mount = MountOptions()
      let list = "ro," + option.name + (value.map { "=\(MountOptions.escaped($0))" } ?? "") + ",nosuid"
      for (name, value) in MountOptions.split(list) { try mount.take(name, value, isMountOption: true) }
      ways.append(mount)
    }
    return ways
  }

  @Test(arguments: MountOption.all.map(\.name)) func everyOptionGetsToTheServer(_ name: String) throws {
    let option = try #require(MountOption.named(name))
    let sample = try #require(Self.samples[name], "a sample of a new option is missing here")
    #expect((sample.written == nil) == (option.argument == nil))
    let ways = try ways(option, sample.written)
    #expect(!ways.isEmpty)
    for var mount in ways {
      guard option.isForServer else {
        #expect(mount.user == "root" || mount.sourceName == "x" || mount.isService || mount.isCheck || name == "config")
        continue
      }
      for header in mount.headers { mount.request.origins.headers += try Secrets.headers(header) }
      mount.request.mountpoint = "/m"
      if name != "manifest" { mount.request.manifest = "-" }
      let received = try MountRequest(decoding: mount.request.encoded())
      #expect(received == mount.request)
      #expect(option.encoded(received) == [sample.sent])
      // Nothing else came to it.
      for other in MountOption.all where other.name != name && other.name != "manifest" {
        #expect(other.encoded(received) == other.encoded(MountRequest(mountpoint: "", manifest: "")), "\(other.name)")
      }
    }
    #expect(option.encoded(MountRequest(mountpoint: "", manifest: "")) != [sample.sent], "the sample is the default")
  }

  @Test(arguments: MountOption.all.map(\.name)) func everyOptionIsInHelp(_ name: String) throws {
    let option = try #require(MountOption.named(name))
    let help = MountCommand.help.text.split(whereSeparator: \.isWhitespace).joined(separator: " ")
    let value = option.argument.map { (option.isOnCommandLine ? " " : "=") + $0 } ?? ""
    #expect(help.contains("\(option.isOnCommandLine ? "--" : "")\(name)\(value) \(option.helpText)"))
    for choice in option.choices { #expect(help.contains("\(choice.word): \(choice.meaning)")) }
    #expect(MountCommand.help.text.split(separator: "\n").allSatisfy { $0.count <= 80 })
  }

  @Test(arguments: ["min-free", "continue", "timeout", "fresh", "watchdog", "umask", "share-mode"])
  func defaultsAreThoseOfHelp(_ name: String) throws {
    let option = try #require(MountOption.named(name))
    let untouched = MountRequest(mountpoint: "", manifest: "")
    var request = untouched
    try option.take(option.standard, into: &request)
    if request.access.umask == 0 { request.access.umask = nil }
    #expect(request == untouched)
  }

  @Test func wrongValuesAreToldWithWhatIsRight() throws {
    for (name, value, message) in [
      ("continue", "now", "--continue takes one of playing, always, open, never, not now"),
      ("timeout", "0", "--timeout takes a number of seconds from 1 to 86400, not 0"),
      ("fresh", "-1", "--fresh takes a time, such as 30s, 10m or 2h, not -1"),
      ("fresh", "1w", "--fresh takes a time, such as 30s, 10m or 2h, not 1w"),
      ("max-connections", "x", "--max-connections takes a number from 1 to 1024, not x"),
      ("limit-rate", "0", "--limit-rate takes a size above 0, such as 500M or 1.5GiB, not 0"),
      ("umask", "8", "umask takes an octal number up to 777, not 8"),
      ("header", "s3cret", "--header: a header has the form 'Name: value'"),
    ] {
      var mount = MountOptions()
      #expect(throws: CommandError.usage(message)) { try mount.take(name, value, isMountOption: true) }
    }
    var mount = MountOptions()
    #expect(throws: CommandError.failed("there is no user no-such-user on this machine")) {
      try mount.take("uid", "no-such-user", isMountOption: true)
    }
    let policy = try #require(MountOption.named("continue"))
    #expect(policy.choices.map(\.word).joined(separator: ", ") == "playing, always, open, never")
  }

  /// The manual has what the table says. With MEDIAFS_WRITE_MANUAL=1 this test writes it there.
  @Test func theManual() throws {
    let root = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }
    let path = "\(root)/docs/man/mediafs.1"
    var page = String(decoding: try Files.read(path, limit: 1 << 20), as: UTF8.self)
    for (title, text) in ManualOptions.parts {
      let part = try #require(ManualOptions.part(of: page, title), "\(path) has no place for: \(title)")
      if getenv("MEDIAFS_WRITE_MANUAL") != nil {
        page.replaceSubrange(part.range, with: text)
      } else {
        #expect(part.text == text, "write it by: MEDIAFS_WRITE_MANUAL=1 swift test --filter OptionTableTests.theManual")
      }
    }
    guard getenv("MEDIAFS_WRITE_MANUAL") != nil else { return }
    let file = try FileDescriptor.open(path, O_WRONLY | O_TRUNC)
    var bytes = Array(page.utf8)
    try bytes.withUnsafeMutableBytes { try file.writeFully(UnsafeRawBufferPointer($0), at: 0) }
  }
}
