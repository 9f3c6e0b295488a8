import Base
import Manifest
import TestSupport
import Testing

@Suite("Options of an entry")
struct OptionTests {
  @Test func names() throws {
    #expect(try entry("out=b.mkv").name == "b.mkv")
    #expect(try entry("out = b c.mkv  ").name == "b c.mkv")
    #expect(try entry("OUT=b").name == "b")
    #expect(try entry("out=noextension").mayGainExtension == false)
    #expect(try entry("out=a=b.mkv").name == "a=b.mkv")
  }

  @Test(arguments: [
    ("dir=a/b", "a/b/a.mp4"), ("dir=/srv/media/", "srv/media/a.mp4"), ("dir=../../etc", "etc/a.mp4"),
    ("dir=a/../../b", "b/a.mp4"), ("dir=a/./b//c", "a/b/c/a.mp4"), ("dir=/", "a.mp4"), ("dir=..", "a.mp4"),
    ("dir= a / b ", "a/b/a.mp4"), ("out=x/y/z.mp4", "x/y/z.mp4"), ("out=/etc/passwd", "etc/passwd"),
    ("out=../../etc/passwd", "etc/passwd"),
  ])
  func folders(_ option: String, _ path: String) throws {
    let entry = try ManifestTests.entry(option)
    #expect((entry.folder + [entry.name]).joined(separator: "/") == path)
    #expect((entry.folder + [entry.name]).allSatisfy(SafeName.isSafe))
  }

  @Test func outBelowDir() throws {
    #expect(try entry("out=x/y.mp4", "dir=d/e").folder == ["d", "e", "x"])
    #expect(try entry("dir=d/e", "out=../y.mp4").folder == ["d", "e"])
  }

  @Test(arguments: ["out=.", "out=..", "out=a/..", "out=x/", "out=/", "out=x/\u{A0}"])
  func outThatNamesNothing(_ option: String) throws {
    let problem = try ManifestTests.problem(option)
    #expect(problem.severity == .error && problem.message.contains("names no file"))
  }

  @Test func deepFolders() throws {
    let deep = Array(repeating: "a", count: 32).joined(separator: "/")
    #expect(try entry("dir=" + deep).folder.count == 32)
    #expect(try problem("dir=" + deep + "/a").message.contains("deeper"))
    let long = String(repeating: "b", count: 255)
    #expect(try entry("dir=" + Array(repeating: long, count: 8).joined(separator: "/")).folder.count == 8)
    #expect(try problem("dir=" + Array(repeating: long, count: 9).joined(separator: "/")).message.contains("longer"))
  }

  @Test func headers() throws {
    let entry = try ManifestTests.entry(
      "header=Authorization: Bearer abc", "header=X-Two:a:b", "header=X-Two: c", "user-agent=Player/1.0 (x)",
      "referer=https://example.com/?x")
    #expect(
      entry.headers == [
        HTTPHeader(name: "Authorization", value: "Bearer abc"), HTTPHeader(name: "X-Two", value: "a:b"),
        HTTPHeader(name: "X-Two", value: "c"),
      ])
    #expect(entry.userAgent == "Player/1.0 (x)")
    #expect(entry.referer == "https://example.com/?x")
    let fromHeaders = try ManifestTests.entry("header=user-agent: A", "header=Referer: B")
    #expect(fromHeaders.userAgent == "A" && fromHeaders.referer == "B" && fromHeaders.headers.isEmpty)
  }

  @Test(arguments: [
    "Range: bytes=0-1", "if-range: x", "Accept-Encoding: gzip", "HOST: evil", "Content-Length: 3", "Connection: close",
    "Transfer-Encoding: chunked", "If-None-Match: *", "TE: trailers", "Upgrade: x", "Expect: 100-continue",
  ])
  func headersOfTheTransfer(_ header: String) throws {
    let problem = try ManifestTests.problem("header=" + header)
    #expect(problem.severity == .error && problem.message.contains("belongs to the transfer"))
  }

  @Test(arguments: [
    "X: a\rHost: geheim", "X: geheim\0", "X: \u{1B}geheim", "X geheim: v", ": geheim", "geheim", "X(: geheim", "X:",
    "X\r: geheim", "X\u{E9}: geheim",
  ])
  func headersThatAreRefused(_ header: String) throws {
    let problem = try ManifestTests.problem("header=" + header)
    #expect(problem.severity == .error)
    if !header.hasPrefix("X geheim") { #expect(!problem.message.contains("geheim")) }
  }

  @Test func controlCharactersInValues() throws {
    for option in ["user-agent=a\rb", "referer=a\0b", "id=a\u{7F}b"] {
      #expect(try problem(option).message.contains("control character"))
    }
  }

  @Test func manyHeaders() throws {
    let lines = (0..<70).map { " header=X-\($0): v\n" }.joined()
    let reading = try read("https://example.com/a\n" + lines)
    #expect(reading.entries[0].headers.count == 64)
    #expect(reading.errors.count == 6)
  }

  @Test(arguments: [
    ("sha-256", 32, Checksum.Algorithm.sha256), ("SHA-1", 20, .sha1), ("md5", 16, .md5), ("sha-512", 64, .sha512),
    ("sha256", 32, .sha256),
  ])
  func checksums(_ type: String, _ count: Int, _ algorithm: Checksum.Algorithm) throws {
    let hex = String(repeating: "0aF1", count: count / 2)
    let digest = Array(repeating: [0x0A, 0xF1] as [UInt8], count: count / 2).flatMap { $0 }
    #expect(try entry("checksum=\(type)=\(hex)").checksum == Checksum(algorithm: algorithm, digest: digest))
    #expect(algorithm.byteCount == count)
    for bad in [hex.dropLast() + "", hex + "0", hex.dropLast() + "g", ""] {
      #expect(try problem("checksum=\(type)=\(bad)").message.contains("\(2 * count) hexadecimal"))
    }
  }

  @Test func unknownChecksums() throws {
    for option in ["checksum=adler32=03da0195", "checksum=sha-256", "checksum=00ff"] {
      #expect(try problem(option).message.contains("md5, sha-1, sha-256, sha-512"))
    }
  }

  @Test func optionsWeDoNotHave() throws {
    for option in ["split=5", "max-connection-per-server=4", "http-passwd=geheim"] {
      let problem = try ManifestTests.problem(option)
      #expect(problem.severity == .warning)
      #expect(problem.message.contains(option.prefix { $0 != "=" }) && !problem.message.contains("geheim"))
    }
    #expect(try !problem("aGVpbQ=geheim").message.contains("aGVpbQ"))  // no name: perhaps a secret
    #expect(try problem("geheim").severity == .error)
    #expect(try !problem("geheim").message.contains("geheim"))
  }

  @Test func emptyAndRepeated() throws {
    for option in ["out=", "dir=  ", "header=", "checksum=", "id=", "user-agent=", "referer="] {
      #expect(try problem(option).message.contains("has no value"))
    }
    let reading = try read("https://example.com/a\n out=b\n out=c\n")
    #expect(reading.paths == ["c"])
    #expect(reading.problems.map(\.severity) == [.warning] && reading.problems[0].line == 3)
  }

  @Test func optionsStayWithTheirEntry() throws {
    let reading = try read("https://example.com/a\n out=x\n id=1\n header=A: b\nhttps://example.com/b\n")
    #expect(reading.paths == ["x", "b"])
    #expect(reading.entries[1].headers.isEmpty)
    #expect(reading.entries[1].key == ResourceKey(url: "https://example.com/b"))
  }

  @Test func identity() throws {
    let first = try entry("id=film 7")
    let second = try entry("id=film 7", url: "https://other.org/x")
    #expect(first.key == second.key)
    #expect(first.key == ResourceKey(id: "film 7"))
    #expect(try entry().key == ResourceKey(url: "https://example.com/a.mp4"))
    #expect(ResourceKey(id: "https://example.com/a.mp4") != ResourceKey(url: "https://example.com/a.mp4"))
  }
}
