import Manifest
import TestSupport
import Testing

/// Mutated listings of every server: no trap, no endless reading, and only safe entries below the listing.
@Suite("Mutated listings")
struct DirectoryFuzzTests {
  private static let words = tokens(
    "..", "../", "/", "//", "\0", "\n", "<", ">", "</", "/>", "<a href=\"", "<a href=x>", "</a>", "<pre>", "</pre>",
    "<table>", "<td>", "<tr>", "<ul>", "<script>", "<!--", "-->", "<![CDATA[", "]]>", "<!DOCTYPE a [",
    "<!ENTITY a \"b\">",
    "&a;", "&amp;", "&#0;", "&#x202E;", "&#x110000;", "&nbsp;", "%2e%2e%2f", "%00", "%2F", "%", "?C=N;O=D", "#",
    "http://", "http://h/films/", "http://evil/films/", "//evil/", "javascript:", "<base href=\"", "<title>",
    "</title>",
    "Index of /", "<input type=password>", "{", "}", "[", "]", "\"", "\\", "\\u0000", "\\uD800", ",", "null", "1e999",
    "-1", "9223372036854775808", "14-Nov-2023 22:13", "99999999999999999", "\u{202E}", "\u{FEFF}", "é",
    "<D:collection/>",
    "<D:href>", "</D:response>", "<D:response>", "HTTP/1.1 404", "<directory>", "</list>", "<svg>", "<html>", "</html>")

  @Test(arguments: DirectorySample.all) func everyEntryIsSafe(_ sample: DirectorySample) throws {
    let original = try sample.bytes()
    // Of Caddy's long page, its last names.
    let isLong = original.count > 12_000
    let bytes = isLong ? Array("<h1>Index of /</h1><table>".utf8) + original.suffix(8000) : original
    let types = [sample.mediaType, "text/html", "text/xml", "application/json", nil]
    var entries = 0
    Fuzzing("directories \(sample.file)", cases: 250).run { random, place in
      var mutated = random.mutated(bytes, tokens: Self.words)
      if random.oneIn(2) { mutated = random.mutated(mutated, tokens: Self.words) }
      let type = random.oneIn(4) ? types.randomElement(using: &random) ?? nil : sample.mediaType
      let piece = random.oneIn(8) ? 1 : Int.random(in: 1...8192, using: &random)
      let directory = readDirectory(mutated, mediaType: type, piece: piece)
      entries += directory.entries.count
      Self.check(directory, "\(place)")
    }
    #expect(entries > 0, "the mutations leave nothing to check")
  }

  /// What is no listing at all, whatever it is called.
  @Test(arguments: ["text/html", "text/xml", "application/json", ""]) func garbage(_ type: String) {
    let brackets = ["[", "{", "<a>", "<a href=", "[{", "<pre>", "<table>", "\"", "<!--", "<![CDATA[", "&lt;", "<", "&"]
    let noise = (0..<200_000).map { UInt8(truncatingIfNeeded: ($0 &* 2_654_435_761) >> 13) }
    for bytes in brackets.map({ Array(String(repeating: $0, count: 50_000).utf8) }) + [
      noise, [UInt8](repeating: 0, count: 300_000), [UInt8](repeating: 0x0A, count: 300_000), [],
    ] {
      let directory = readDirectory(bytes, mediaType: type)
      #expect(directory.fault != nil && directory.entries.isEmpty, "\(bytes.prefix(8))")
      Self.check(directory, "\(bytes.prefix(8))")
    }
  }

  private static func check(_ directory: Directory, _ place: Comment) {
    for entry in directory.entries {
      #expect(SafeName.isSafe(entry.name), place)
      #expect(entry.url.hasPrefix("http://h/films/") && entry.url.utf8.count > 15, place)
      #expect(entry.url.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } && !entry.url.contains("#"), place)
      let path = entry.url.dropFirst(15).prefix { $0 != "?" }
      #expect(!path.dropLast(entry.isFolder ? 1 : 0).contains("/"), place)
      #expect(entry.size.map { $0 >= 0 && !entry.isFolder } ?? true, place)
    }
    for problem in directory.problems { #expect(problem.count > 0 && problem.line > 0, place) }
    if let fault = directory.fault {
      #expect(!fault.description.isEmpty && !fault.description.utf8.contains { $0 < 0x20 }, place)
    }
  }
}
