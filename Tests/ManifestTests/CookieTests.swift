import Base
import Glibc
import Manifest
import TestSupport
import Testing

/// `load-cookies=`, `http-user=` and `http-passwd=`.
@Suite("Cookies and passwords")
struct CookieTests {
  private static let file = """
    # Netscape HTTP Cookie File
    .example.com\tTRUE\t/\tFALSE\t0\ta\t1
    #HttpOnly_www.example.com\tFALSE\t/films\tTRUE\t4102444800\tb\tgeheim=2
    .example.com\tTRUE\t/\tFALSE\t1000000000\told\tx
    other.org\tFALSE\t/\tFALSE\t0\tc\t3\r
    127.0.0.1\tTRUE\t/\tFALSE\t0\td\t4
    nonsense
    .com\tTRUE\t/\tFALSE\t0\tbad\tx\u{1}y

    """

  private func read(_ text: String, _ access: CookieAccess) throws -> Reading {
    try withTemporaryFolder { folder in
      try readAll(ManifestReader(path: try folder.write(text, to: "list"), cookies: access))
    }
  }

  private func cookie(_ url: String, _ options: String = "") throws -> String? {
    let reading = try withTemporaryFolder { folder in
      try folder.write(Self.file, to: "cookies.txt")
      return try read("\(url)\n load-cookies=cookies.txt\n\(options)", .files(below: folder.path))
    }
    let entry = try #require(reading.entries.first)
    #expect(reading.errors.isEmpty && reading.problems.count == (entry.headers.isEmpty ? 1 : 0))
    return entry.headers.first { $0.name == "Cookie" }?.value
  }

  @Test func cookiesForTheHost() throws {
    #expect(try cookie("https://www.example.com/films/1.mp4") == "b=geheim=2; a=1")
    #expect(try cookie("http://www.example.com/films/1.mp4") == "a=1", "a secure cookie is for https")
    #expect(try cookie("https://WWW.example.com/filmstar/1.mp4") == "a=1")
    #expect(try cookie("https://example.com:8443/1.mp4") == "a=1")
    #expect(try cookie("https://www.other.org/1.mp4") == nil, "the cookie is for its host alone")
    #expect(try cookie("https://other.org/1.mp4") == "c=3")
    #expect(try cookie("https://notexample.com/1.mp4") == nil)
    #expect(try cookie("https://1.127.0.0.1/1.mp4") == nil)
    #expect(try cookie("https://127.0.0.1/1.mp4") == "d=4")
    #expect(try cookie("https://other.org/1.mp4", " header=cookie: own=1\n") == "own=1; c=3")
  }

  @Test func filesThatGiveNone() throws {
    try withTemporaryFolder { folder in
      try folder.write("geheim, and no cookie\n", to: "words")
      try folder.write(String(repeating: "x", count: 5 << 20), to: "large")
      let big = (0..<9).map { "h\tFALSE\t/\tFALSE\t0\tc\($0)\t\(String(repeating: "v", count: 2000))" }
      try folder.write(big.joined(separator: "\n"), to: "big")
      #expect(mkfifo(folder.file("fifo"), 0o600) == 0)
      let here = CookieAccess.files(below: folder.path)
      for (path, access, words) in [
        ("none", here, "cannot be read"), (folder.path, here, "no plain file"), ("fifo", here, "no plain file"),
        ("words", here, "no cookie in Netscape's format"), ("large", here, "more than 4 MiB"), ("big", here, "16 KiB"),
        ("words", .files(below: nil), "absolute path"), (folder.file("big"), .none(.user), "user=NAME"),
        (folder.file("big"), .none(.server), "a list that a server gave"),
      ] {
        let reading = try read("https://h/1.mp4\n out=geheim\n load-cookies=\(path)\nhttps://h/2.mp4\n", access)
        #expect(reading.entries.count == 2 && reading.entries.first?.headers.isEmpty == true)
        #expect(reading.problems.map(\.line) == [3] && reading.errors.count == 1, "\(path): \(reading.problems)")
        let message = reading.errors.first?.message ?? ""
        #expect(message.hasPrefix("load-cookies=: ") && message.contains(words), "\(message)")
        #expect(!message.contains("geheim") && !message.contains(folder.path), "\(message)")
      }
    }
  }

  /// A list names one file for each of many entries: it is read once, and found by the host.
  @Test func oneFileForManyEntries() throws {
    try withTemporaryFolder { folder in
      let lines = (0..<40_000).map { "h\($0).example\tFALSE\t/\tFALSE\t0\tc\t\($0)" }
      try folder.write(lines.joined(separator: "\n"), to: "cookies")
      let text = (0..<20_000).map { "https://h\($0).example/1.mp4\n load-cookies=cookies\n" }.joined()
      let reading = try read(text, .files(below: folder.path))
      #expect(reading.problems == [] && reading.entries.count == 20_000)
      #expect(reading.entries.last?.headers == [HTTPHeader(name: "Cookie", value: "c=19999")])
    }
  }

  @Test func passwords() throws {
    let plain = try entry("http-user=Aladdin", "http-passwd=open sesame")
    #expect(plain.headers == [HTTPHeader(name: "Authorization", value: "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")])
    #expect(try entry("http-user=ab").headers.first?.value == "Basic YWI6")
    #expect(try entry("http-passwd=é", "http-user=a").headers.first?.value == "Basic YTrDqQ==")
    let both = try entry("header=authorization: x", "http-user=a", "http-passwd=b")
    #expect(both.headers == [HTTPHeader(name: "Authorization", value: "Basic YTpi")])
    #expect(try problem("http-passwd=geheim").message == "http-passwd= without http-user= is ignored")
    #expect(try problem("http-user=a:b").message.contains("colon"))
    #expect(try entry().headers.isEmpty)
  }
}
