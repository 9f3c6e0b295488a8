import Base
import Glibc
import Manifest
import TestSupport
import Testing

/// Mutated samples of every format: no trap, no endless reading, and only safe entries.
@Suite("Mutated lists")
struct ListFuzzTests {
  struct Sample: CustomTestStringConvertible, Sendable {
    var format: ListFormat
    var text: String
    /// Whether objects follow each other, of which each is whole.
    var isOfObjects = false
    var testDescription: String { format.rawValue }
  }

  private static let samples = [
    Sample(
      format: .m3u,
      text: """
        #EXTM3U
        #EXTINF:12 tvg-name="n" group-title="../g",Title
        #EXTVLCOPT:http-user-agent=UA
        https://h/1.mp4|X-A=b%0D%0A&Referer=r
        #EXTGRP:g
        2.mp3

        """),
    Sample(
      format: .pls, text: "[playlist]\nFile1=https://h/1\nTitle1=T/\nLength1=9\nFile2=../2.mp3\nNumberOfEntries=2\n"),
    Sample(
      format: .xspf,
      text: """
        <?xml version="1.0"?><playlist xmlns="http://xspf.org/ns/0/"><trackList>
        <track><location>https://h/1.mp3</location><title>T&amp;<![CDATA[x]]></title><duration>1</duration></track>
        <track><location>../2</location><creator>C</creator></track></trackList></playlist>
        """),
    Sample(
      format: .metalink,
      text: """
        <metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="../a/b.iso"><size>12</size>
        <hash type="md5">d41d8cd98f00b204e9800998ecf8427e</hash><url priority="2">https://h/1</url>
        <url priority="1">http://g/1</url></file></metalink>
        """),
    Sample(
      format: .feed,
      text: """
        <rss><channel><title>F</title><item><title>..</title><pubDate>Mon, 23 Nov 2026 01:02:03 +0100</pubDate>
        <enclosure url="https://h/1" length="9" type="audio/mpeg"/></item></channel></rss>
        """),
    Sample(
      format: .feed,
      text: """
        <feed xmlns="http://www.w3.org/2005/Atom"><title>F</title><entry><title>T</title>
        <updated>2026-11-23T01:02:03.5Z</updated><link rel="enclosure" href="https://h/1"/></entry></feed>
        """),
    Sample(
      format: .feed,
      text: """
        <?xml version="1.0" encoding="utf-8"?><!-- \(String(repeating: "A feed. ", count: 600)) -->
        <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"
        xmlns:enc="http://purl.oclc.org/net/rss_2.0/enc#" xmlns:dc="http://purl.org/dc/elements/1.1/">
        <channel rdf:about="https://h/"><title>F</title></channel><item rdf:about="https://h/1"><title>T</title>
        <dc:date>2026-11-23</dc:date><enc:enclosure rdf:resource="https://h/1.ogg" enc:length="9"/></item></rdf:RDF>
        """),
    Sample(
      format: .feed,
      text: """
        <rss version="2.0" xmlns:media="http://search.yahoo.com/mrss/"
        xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd"><channel><title><![CDATA[F & G]]></title>
        <itunes:image href="https://h/i.jpg"/><item><title>T</title><itunes:duration>1:02:03</itunes:duration>
        <media:group><media:content url="https://h/1.mp4" fileSize="12" type="video/mp4" medium="video"/>
        <media:content url="https://h/1.jpg" medium="image"/></media:group></item></channel></rss>
        """),
    Sample(
      format: .rclone,
      text: """
        [{"Path":"../a/b.mp4","Size":12,"ModTime":"2026-11-23T01:02:03.123Z","IsDir":false,
        "Hashes":{"md5":"d41d8cd98f00b204e9800998ecf8427e"}},
        {"Path":"c","IsDir":true}]
        """),
    Sample(
      format: .ytdlp,
      text: """
        {"_type": "playlist", "title": "P/", "entries": [{"id": "1", "title": "T", "url": "https://h/1", "ext": "mp4",
        "protocol": "https", "http_headers": {"X": "y"}, "cookies": "a=b; Path=/", "filesize": 1e3, "duration": 1.5},
        {"_type": "url", "url": "https://h/2.mp4", "title": null}]}
        """),
    Sample(
      format: .ytdlp,
      text: """
        {"id": "1", "title": "T", "formats": [{"url": "https://h/1", "ext": "mp4", "vcodec": "a", "acodec": "b",
        "protocol": "https", "filesize_approx": 9, "http_headers": {"User-Agent": "U"}}], "extractor_key": "Site"}
        {"_type": "url_transparent", "url": "https://h/watch?v=2", "ie_key": "Site", "id": "2", "title": "é"}

        """, isOfObjects: true),
    Sample(
      format: .ytdlp,
      text: """
        {"id": "c", "title": "C", "description": "\(String(repeating: "Words. ", count: 700))", "entries": [{"title": "V",
        "entries": [{"_type": "url", "url": "https://h/1.mp4", "id": "1"}, null], "_type": "playlist"},
        {"title": "S", "entries": []}], "_type": "playlist"}
        """),
  ]

  private static let words = tokens(
    "..", "/", "\0", "\n", "\r\n", "<", ">", "</", "/>", "&", "&amp;", "&#0;", "&#x202E;", "&#x110000;",
    "<!DOCTYPE a [",
    "<!ENTITY a \"b\">", "&a;", "<![CDATA[", "]]>", "<!--", "-->", "<?xml encoding=\"UTF-16\"?>", "xmlns:a=\"b\"", "a:",
    "\"", "'", "\\", "\\u0000", "\\uD800", "{", "}", "[", "]", ",", ":", "null", "1e999", "-1", "9223372036854775808",
    "http://", "https://h/", "|", "=", "%", "#EXTINF:", "File999999999999999999999=", "\u{202E}", "é", "\u{FEFF}",
    "\"entries\":[", "\"Path\":", "2026-13-45T99:99:99Z", "Mon, 99 Foo 99999")

  @Test(arguments: samples) func everyEntryIsSafe(_ sample: Sample) throws {
    let base = try ManifestBase(url: "https://base.example/x/y?z")
    var entries = 0
    let whole = try readAll(ManifestReader(bytes: Array(sample.text.utf8), name: "x", base: base))
    #expect(!whole.entries.isEmpty && whole.errors.count <= 1, "the sample itself is read: \(whole.errors)")
    let cases = Fuzzing("lists \(sample.format.rawValue)", cases: 700).run { random, place in
      let bytes = random.mutated(Array(sample.text.utf8), tokens: Self.words)
      let lines = bytes.split(separator: 0x0A, omittingEmptySubsequences: false).count
      var reader = ManifestReader(bytes: bytes, name: "x", base: base, format: random.oneIn(4) ? nil : sample.format)
      do throws(ManifestError) {
        while let item = try reader.next() {
          switch item {
          case .problem(let problem):
            #expect((1...lines + 1).contains(problem.line) && !problem.message.isEmpty, "\(place)")
            #expect(!problem.message.utf8.contains { $0 < 0x20 }, "\(place): \(problem.message.debugDescription)")
          case .folder: Issue.record("\(place): a folder of a server")
          case .entry(let entry):
            entries += 1
            checkEntry(entry, "\(place)")
          }
        }
      } catch {
        #expect(!error.description.isEmpty && !error.description.utf8.contains { $0 < 0x20 }, "\(place): \(error)")
      }
    }
    #expect(entries > cases / 100, "the mutations leave nothing to check")
  }

  /// Each sample cut at each byte, except within a long text: a clear end, or an error.
  @Test(arguments: samples) func everyCutIsRead(_ sample: Sample) throws {
    let base = try ManifestBase(url: "https://base.example/x/y?z")
    let bytes = Array(sample.text.utf8)
    for count in 0..<bytes.count where count < 300 || count > bytes.count - 600 {
      var reader = ManifestReader(bytes: Array(bytes[..<count]), name: "x", base: base, format: sample.format)
      do throws(ManifestError) {
        while try reader.next() != nil {}
        let isOfLines = sample.format == .m3u || sample.format == .pls
        let isWhole =
          sample.text.utf8.dropFirst(count).allSatisfy { $0 == 0x0A || $0 == 0x20 }
          || sample.isOfObjects && bytes[..<count].last { $0 != 0x0A } == 0x7D
        #expect(isOfLines || count == 0 || isWhole, "\(count) bytes of \(sample.format)")
      } catch {
        #expect(!error.description.isEmpty)
      }
    }
  }

  /// Lines that end with CR LF, and a byte order mark, change nothing.
  @Test(arguments: samples) func lineEndsAndMarks(_ sample: Sample) throws {
    let base = try ManifestBase(url: "https://base.example/x/y?z")
    func paths(_ text: String) throws -> [String] {
      let reading = try readAll(ManifestReader(bytes: Array(text.utf8), name: "x", base: base))
      return reading.paths + reading.entries.flatMap(\.urls)
    }
    let plain = try paths(sample.text)
    #expect(try paths(sample.text.replacing("\n", with: "\r\n")) == plain && !plain.isEmpty)
    #expect(try paths("\u{FEFF}" + sample.text) == plain)
    let wide: [UInt8] =
      [0xFF, 0xFE] + sample.text.utf16.flatMap { unit -> [UInt8] in [UInt8(unit & 0xFF), UInt8(unit >> 8)] }
    #expect(throws: ManifestError.notUTF8(name: "x")) { try readAll(ManifestReader(bytes: wide, name: "x")) }
  }

  /// 100,000 entries of every format, in a time in which none can be compared with all others.
  @Test(arguments: [
    (ListFormat.m3u, "#EXTM3U\n", "#EXTINF:1 group-title=\"g\",T\nhttps://h/1.mp4|X=y\n", ""),
    (.xspf, "<playlist><trackList>", "<track><location>https://h/1</location></track>\n", "</trackList></playlist>"),
    (
      .metalink, "<metalink xmlns='urn:ietf:params:xml:ns:metalink'>",
      "<file name='a'><size>1</size><url>https://h/1</url></file>", "</metalink>"
    ),
    (.feed, "<rss><channel>", "<item><enclosure url='https://h/1'/></item>", "<title>F</title></channel></rss>"),
    (.rclone, "[{\"Path\":\"a\",\"IsDir\":true}", ",{\"Path\":\"b\",\"IsDir\":false}", "]"),
    (
      .ytdlp, "{\"_type\":\"playlist\",\"title\":\"P\",\"entries\":[null",
      ",{\"_type\":\"url\",\"url\":\"https://h/2.mp4\"}", "]}"
    ),
    (.aria2, "", "https://h/1\n http-user=a\n", ""),
  ]) func manyEntries(format: ListFormat, start: String, item: String, end: String) throws {
    let text = start + String(repeating: item, count: 100_000) + end
    var reader = ManifestReader(bytes: Array(text.utf8), name: "x", base: try ManifestBase(url: "https://b/"))
    var entries = 0
    while let next = try reader.next() { if case .entry = next { entries += 1 } }
    #expect(entries == 100_000 && reader.format == format)
  }

  /// What is no list at all, whatever format it is forced into.
  @Test(arguments: ListFormat.allCases) func garbage(_ format: ListFormat) throws {
    let brackets = ["[", "{", "<a>", "[{", "{\"a\":", "<a b='", "\"", "<!--", "<![CDATA[", "&lt;", "\\", "|", ","]
    let noise = (0..<200_000).map { UInt8(truncatingIfNeeded: ($0 &* 2_654_435_761) >> 13) }
    for bytes in brackets.map({ Array(String(repeating: $0, count: 50_000).utf8) }) + [
      noise, [UInt8](repeating: 0, count: 300_000), [UInt8](repeating: 0x0A, count: 300_000), [],
    ] {
      var reader = ManifestReader(bytes: bytes, name: "x", base: try ManifestBase(url: "https://b/"), format: format)
      var entries = 0
      do throws(ManifestError) {
        while let next = try reader.next() { if case .entry = next { entries += 1 } }
      } catch {
        #expect(!error.description.isEmpty && !error.description.utf8.contains { $0 < 0x20 }, "\(error)")
      }
      #expect(entries <= 1 || format == .m3u, "\(entries) entries of \(bytes.prefix(8))")
    }
  }

  @Test func everyStrmFileIsRead() throws {
    try Fuzzing.withFolder { folder in
      let top = folder.file("top")
      #expect(mkdir(top, 0o700) == 0)
      var entries = 0
      try Fuzzing("lists strm", cases: 200).run { random, place in
        let seed = Array("\u{FEFF}# a\r\n\r\n https://h/a.mp4|User-Agent=A%20b&X=y\r\n".utf8)
        try folder.write(random.mutated(seed, tokens: Self.words), to: "top/a.strm")
        let reading = try readAll(ManifestReader(path: top))
        entries += reading.entries.count
        for entry in reading.entries { checkEntry(entry, "\(place)") }
        #expect(reading.entries.count <= 1 && reading.problems.allSatisfy { $0.line == 1 }, "\(place)")
      }
      #expect(entries > 20)
    }
  }
}
