import Testing

@testable import Manifest

@Suite("URLs")
struct URLTests {
  private func parse(_ text: String) throws -> String {
    var parser = URLParser()
    try parser.parse(Array(text.utf8).span)
    return parser.string
  }

  @Test(arguments: [
    ("http://example.com", "http://example.com/"), ("HTTPS://Example.COM/A", "https://example.com/A"),
    ("http://example.com:80/", "http://example.com/"), ("http://example.com:0080/", "http://example.com/"),
    ("https://example.com:80/", "https://example.com:80/"), ("https://example.com:443?x", "https://example.com/?x"),
    ("http://example.com:/a", "http://example.com/a"), ("http://h/a#part", "http://h/a"),
    ("http://h/a?b#c", "http://h/a?b"),
    ("http://h/a?", "http://h/a?"), ("http://h?b", "http://h/?b"), ("http://h#b", "http://h/"),
    ("http://User:Pass@H/a", "http://User:Pass@h/a"), ("http://u:p@ss@h/", "http://u:p@ss@h/"),
    ("http://h/a b", "http://h/a%20b"), ("http://h/ä", "http://h/%C3%A4"),
    ("http://h/a?q=ä b", "http://h/a?q=%C3%A4%20b"),
    ("http://h/%c3%a4", "http://h/%c3%a4"), ("http://h/100%", "http://h/100%25"), ("http://h/%zz", "http://h/%25zz"),
    ("http://h/a\"<>\\^`{|}", "http://h/a%22%3C%3E%5C%5E%60%7B%7C%7D"), ("http://h/a[0]?b[1]", "http://h/a[0]?b[1]"),
    ("http://[::1]/", "http://[::1]/"), ("http://[FE80::1%25eth0]:8080/x", "http://[fe80::1%25eth0]:8080/x"),
    ("http://[::ffff:1.2.3.4]:80/", "http://[::ffff:1.2.3.4]/"), ("http://1.2.3.4:65535/", "http://1.2.3.4:65535/"),
    ("http://ex%61mple.com/", "http://example.com/"), ("http://müller.example/", "http://müller.example/"),
    ("http://h/a/../b/./c", "http://h/b/c"), ("http://h/../../a", "http://h/a"), ("http://h/a/..", "http://h/"),
    ("http://h/a/.", "http://h/a/"), ("http://h/a..b/.c", "http://h/a..b/.c"), ("http://h/...", "http://h/..."),
    ("http://h/a?../b", "http://h/a?../b"), ("http://h//a", "http://h//a"), ("http://h/a?b?c", "http://h/a?b?c"),
  ])
  func good(_ text: String, _ wanted: String) throws {
    #expect(try parse(text) == wanted)
    #expect(try parse(wanted) == wanted)  // the form is stable
  }

  @Test(arguments: [
    ("", URLFault.noScheme), ("example.com/a", .noScheme), ("/a/b", .noScheme), ("//h/a", .noScheme),
    ("http:/h", .noScheme), ("http:h", .noScheme), ("localhost:8080/x", .noScheme), ("C:\\a.mp3", .noScheme),
    ("ftp://h/a", .otherScheme("ftp")), ("magnet:?xt=1", .otherScheme("magnet")), ("file:/a", .otherScheme("file")),
    ("httpx://h/", .otherScheme("httpx")), ("http://", .emptyHost), ("http:///a", .emptyHost),
    ("http://:80/", .emptyHost),
    ("http://u@/", .emptyHost), ("http://?a", .emptyHost), ("http://a b/", .hostCharacter),
    ("http://a\\b/", .hostCharacter),
    ("http://a%2Fb/", .hostCharacter), ("http://a%00b/", .control), ("http://a,b/", .hostCharacter),
    ("http://h:65536/", .badPort), ("http://h:0/", .badPort), ("http://h:8o/", .badPort), ("http://h:-1/", .badPort),
    ("http://h:99999999999999999999/", .badPort), ("http://[::1/", .unclosedBracket),
    ("http://[::1]x/", .unclosedBracket),
    ("http://[]/", .badIPv6), ("http://[1.2.3.4]/", .badIPv6), ("http://[::g]/", .badIPv6),
    ("http://[::1%25]/", .badIPv6),
    ("http://[v1.x]/", .badIPv6), ("http://[::\01]/", .badIPv6), ("http://h/a\u{1}", .control),
    ("http://h/a\tb", .control),
    ("http://h/a\u{7F}", .control),
    ("http://h/a?b\0", .control), ("http://h/a?\0b", .control), ("http://u\u{1}@h/", .control),
    ("http://u:geheim@a b/", .hostCharacter), ("http://user:ge/heim@h/", .badPort),
  ])
  func bad(_ text: String, _ fault: URLFault) {
    #expect(throws: fault) { try parse(text) }
    #expect(!fault.message.contains("geheim"))
  }

  @Test func badUTF8() throws {
    var parser = URLParser()
    try parser.parse(([UInt8]("http://h/".utf8) + [0xFF, 0xE4]).span)
    #expect(parser.string == "http://h/%FF%E4")
    #expect(throws: URLFault.hostEncoding) { try parser.parse(([UInt8]("http://h".utf8) + [0xFF, 0xE4]).span) }
  }

  /// The examples of RFC 3986, section 5.4, as far as they are http's.
  @Test(arguments: [
    ("g", "http://a/b/c/g"), ("./g", "http://a/b/c/g"), ("g/", "http://a/b/c/g/"), ("/g", "http://a/g"),
    ("//g", "http://g/"), ("?y", "http://a/b/c/d;p?y"), ("g?y", "http://a/b/c/g?y"), ("#s", "http://a/b/c/d;p?q"),
    ("g#s", "http://a/b/c/g"), (";x", "http://a/b/c/;x"), ("g;x?y#s", "http://a/b/c/g;x?y"), ("", "http://a/b/c/d;p?q"),
    (".", "http://a/b/c/"), ("./", "http://a/b/c/"), ("..", "http://a/b/"), ("../g", "http://a/b/g"),
    ("../..", "http://a/"), ("../../g", "http://a/g"), ("../../../g", "http://a/g"), ("/../g", "http://a/g"),
    ("g.", "http://a/b/c/g."), ("..g", "http://a/b/c/..g"), ("./g/.", "http://a/b/c/g/"), ("g/../h", "http://a/b/c/h"),
    ("g?y/../x", "http://a/b/c/g?y/../x"), ("https://x/y", "https://x/y"),
  ])
  func resolving(_ reference: String, _ wanted: String) throws {
    var parser = URLParser()
    try parser.parse(Array(reference.utf8).span, relativeTo: Array("http://a/b/c/d;p?q".utf8).span)
    #expect(parser.string == wanted)
  }

  @Test(arguments: [
    ("https://h/a/song.mp3?x=1", "song.mp3", false), ("https://h/a/My%20S%C3%B6ng", "My Söng", true),
    ("https://h/a/b/", "b", true), ("https://example.com/", "example.com", true),
    ("https://example.com", "example.com", true),
    ("https://h/a%2Fb.mp3", "a_b.mp3", false), ("https://h/%2e%2e", "__", true), ("https://h/x/%2E", "_", true),
    ("https://h/%00%0A%7Fa.mp4", "___a.mp4", false), ("https://h/%20", "h", true),
    ("https://h/a+b.mp3", "a+b.mp3", false),
    ("https://h/%FF.mp3", "\u{FFFD}.mp3", false), ("https://h/100%.mp3", "100%.mp3", false),
    ("https://h/v2.0", "v2.0", true),
    ("https://[::1]/", "[::1]", true), ("https://h/a;v=1.mp3", "a;v=1.mp3", false), ("https://u:p@h:81/", "h", true),
  ])
  func names(_ url: String, _ name: String, _ mayGain: Bool) throws {
    let reading = try read(url)
    #expect(reading.problems == [])
    #expect(reading.entries[0].name == name)
    #expect(reading.entries[0].mayGainExtension == mayGain)
  }
}
