import Manifest
import TestSupport
import Testing

/// Formats that are XML, and PLS.
@Suite("Playlists in XML, Metalink and PLS")
struct XMLFormatTests {
  @Test func xspf() throws {
    let reading = try read(
      """
      <?xml version="1.0" encoding="UTF-8"?>
      <!-- <feed> --><playlist version="1" xmlns="http://xspf.org/ns/0/">
        <title>Mine</title>
        <trackList>
          <track><location>https://h/1.mp3?a=1&amp;b=2</location><location>https://m/1.mp3</location>
            <creator>Artist</creator><title>Song</title><duration>90500</duration></track>
          <track><title>No location</title></track>
          <track><location>
            https://h/2</location><title><![CDATA[<b> & co]]></title></track>
          <track><location>file:///home/geheim.mp3</location></track>
        </trackList>
      </playlist>
      """, name: "x.xml")
    #expect(reading.paths == ["Artist - Song.mp3", "<b> & co"])
    #expect(reading.entries[0].urls == ["https://h/1.mp3?a=1&b=2", "https://m/1.mp3"])
    #expect(reading.entries.map(\.line) == [5, 8])
    #expect(reading.entries[0].facts?.duration == 90.5)
    #expect(reading.entries[1].mayGainExtension)
    #expect(reading.errors.map(\.line) == [10] && reading.errors[0].message.hasPrefix("track 4: "))
    #expect(reading.problems.last?.message.contains("tracks without a location (1)") == true)
    #expect(!reading.problems.contains { $0.message.contains("geheim") })
  }

  @Test func metalink() throws {
    let digest = String(repeating: "ab", count: 32)
    let reading = try read(
      """
      <metalink xmlns="urn:ietf:params:xml:ns:metalink">
        <file name="a/b.iso">
          <size>12345</size>
          <hash type="md5">d41d8cd98f00b204e9800998ecf8427e</hash><hash type="sha-256">\(digest)</hash>
          <pieces length="1" type="sha-1"><hash>\(String(repeating: "0", count: 40))</hash></pieces>
          <url priority="2">https://second/b.iso</url><url>https://last/b.iso</url>
          <url priority="1">http://first/b.iso</url><url priority="1">ftp://first/b.iso</url>
        </file>
        <file name="../../etc/x"><url>https://h/x</url><hash type="sha-256">12</hash></file>
        <file name="no"><url>ftp://h/no</url></file>
      </metalink>
      """, name: "x")
    #expect(reading.paths == ["a/b.iso", "etc/x"])
    #expect(reading.entries[0].urls == ["http://first/b.iso", "https://second/b.iso", "https://last/b.iso"])
    #expect(reading.entries[0].checksum == Checksum(algorithm: .sha256, digest: .init(repeating: 0xAB, count: 32)))
    #expect(reading.entries[0].facts?.size == 12345)
    #expect(reading.entries[1].checksum == nil && reading.errors.map(\.line) == [9])
    #expect(reading.errors[0].message.hasPrefix("file 2: the digest must have 64"), "\(reading.errors[0].message)")
    #expect(reading.problems.last?.message.hasSuffix("(1)") == true)
    #expect(throws: ManifestError.self) { try read("<metalink version=\"3.0\"><files/></metalink>", name: "x") }
  }

  @Test func rss() throws {
    let reading = try read(
      """
      <rss version="2.0" xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd"
        xmlns:media="http://search.yahoo.com/mrss/"><channel>
        <title>A / show</title><image><title>Logo</title></image>
        <item><title>First</title><pubDate>Mon, 23 Nov 2026 23:30:00 -0800</pubDate><guid>1</guid>
          <itunes:duration>1:02:03</itunes:duration><itunes:title>no</itunes:title>
          <enclosure url="https://h/get?id=1" length="1234" type="audio/mpeg"/></item>
        <item><title>Words only</title></item>
        <item><enclosure url="https://h/two.m4a" length="0" type="audio/mp4"/>
          <media:content url="https://h/two.m4a"/><media:content url="https://h/two" type="video/mp4" fileSize="9"/></item>
      </channel></rss>
      """, name: "x")
    #expect(reading.paths == ["A _ show/2026-11-23 First.mp3", "A _ show/two.m4a", "A _ show/two.mp4"])
    let facts = try #require(reading.entries[0].facts)
    #expect(facts.size == 1234 && facts.duration == 3723 && facts.mediaType == "audio/mpeg" && facts.title == "First")
    #expect(facts.date == 1_795_505_400)
    #expect(reading.entries[1].facts?.size == nil && reading.entries[2].facts?.size == 9)
    #expect(reading.entries.map(\.line) == [4, 8, 8] && reading.errors.isEmpty)
    #expect(reading.problems.map(\.message) == ["left out: items without an enclosure (1)"])
  }

  @Test("A title ends as a file of its type, not as the page or program that sends it")
  func pages() throws {
    let items = [
      ("get.php?id=1", " type='audio/mpeg'"), ("page.html", ""), ("clip.xyz", " type='video/mp4'"), ("clip.xyz", ""),
      ("film.MKV", " type='video/mp4'"), ("v/abc", " type='application/x-shockwave-flash'"),
    ].enumerated().map { "<item><title>\($0)</title><enclosure url='https://h/\($1.0)'\($1.1)/></item>" }
    let reading = try read("<rss><channel><title>T</title>\(items.joined())</channel></rss>", name: "x")
    #expect(reading.paths == ["T/0.mp3", "T/1", "T/2.mp4", "T/3.xyz", "T/4.mkv"])
    #expect(reading.entries.map(\.mayGainExtension) == [false, true, false, false, false])
    #expect(reading.problems.first?.message == "left out: Flash players, which are pages and no files (1)")
  }

  @Test("White space before the declaration counts for lines alone, and HTML's entities are named as such")
  func commonMistakes() throws {
    let feed = "<?xml version='1.0'?>\n<rss><channel><title>T</title>\n<item><enclosure url='https://h/1.mp3'/></item>"
    let reading = try read(" \n\r\n\t" + feed + "</channel></rss>", name: "x")
    #expect(reading.paths == ["T/1.mp3"] && reading.entries[0].line == 5)
    let failed = #expect(throws: ManifestError.self) {
      try read("\n\(feed)<item><title>a&nbsp;b</title></item></channel></rss>", name: "x")
    }
    #expect(
      "\(try #require(failed))".contains("line 4: this feed cannot be read: it uses an entity of HTML"),
      "\(String(describing: failed))")
  }

  @Test func atom() throws {
    let reading = try read(
      """
      <feed xmlns="http://www.w3.org/2005/Atom"><title>Feed</title>
      <entry><title>One</title><updated>2026-01-02T03:04:05Z</updated><published>2025-12-31T01:00:00+02:00</published>
        <link href="https://h/page"/><link rel="enclosure" href="https://h/1.ogg" length="7" type="audio/ogg"/></entry>
      </feed>
      """, name: "x")
    #expect(reading.paths == ["Feed/2025-12-31 One.ogg"] && reading.problems == [])
    #expect(reading.entries[0].facts?.date == 1_767_135_600 && reading.entries[0].facts?.size == 7)
  }

  /// Atom says which titles are HTML: their tags are no part of a name.
  @Test func markupInTitles() throws {
    func title(_ type: String, _ text: String) throws -> String {
      let reading = try read(
        """
        <feed xmlns="http://www.w3.org/2005/Atom"><title>F</title><entry><title type="\(type)">\(text)</title>
        <link rel="enclosure" href="https://h/1.ogg"/></entry></feed>
        """)
      return String(try #require(reading.entries.first).name.dropLast(4))
    }
    #expect(
      try title("html", "&lt;b class='x'&gt;Tom&lt;/b&gt; &amp;amp; J&amp;#8217;s &amp;#x263A; &amp;no; &lt; 3")
        == "Tom & J\u{2019}s \u{263A} &no; < 3")
    #expect(
      try title("HTML", "Caf&amp;eacute; &amp;hellip; a &amp;ndash; b &lt;br/&gt;c")
        == "Caf\u{E9} \u{2026} a \u{2013} b c")
    #expect(
      try title("xhtml", "<div xmlns='http://www.w3.org/1999/xhtml'>Tom <b>&amp; <i>J</i></b>s</div>") == "Tom & Js")
    #expect(try title("html", "a &lt; b and c &lt;d") == "a < b and c")
    #expect(try title("text", "&lt;b&gt;T&amp;amp;") == "<b>T&amp;")
    #expect(try title("html", "T" + String(repeating: "&lt;a", count: 20_000)).hasPrefix("T"))
    // What stands behind the bound does not count: a tag with thousands of attributes is never read to its end.
    let long = String(repeating: "x ", count: 2048)
    #expect(try title("html", "T &lt;a \(long)&gt;U") == "T")
    #expect(try title("html", "T &lt;a \(long.prefix(1000))&gt;U") == "T U")
  }

  @Test func pls() throws {
    let reading = try read(
      """
      [playlist]
      NumberOfEntries=3
      File2=https://h/2.ogg
      File1=https://h/1
      Title1=First
      Title2=Second
      Length1=-1
      Length2=61
      Title3=No file
      nonsense
      File11=https://h/11.ogg
      File5=https://h/5.ogg
      Version=2
      """, name: "x")
    #expect(reading.paths == ["First", "Second.ogg", "5.ogg", "11.ogg"])
    #expect(reading.entries.map(\.line) == [4, 3, 12, 11])
    #expect(reading.entries[1].facts?.duration == 61)
    #expect(reading.problems.map(\.line) == [10, 9] && reading.errors.isEmpty)
  }

  @Test func relativeURLsNeedABase() throws {
    let text = "<playlist><trackList><track><location>a b.mp3</location></track></trackList></playlist>"
    #expect(try read(text).errors.count == 1)
    let base = try ManifestBase(url: "https://h/d/list.xspf")
    #expect(try read(text, base: base).entries.map(\.urls) == [["https://h/d/a%20b.mp3"]])
  }

  @Test func documentsThatAreRefused() throws {
    let laughs = """
      <!DOCTYPE rss [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>
      <rss><channel><title>&b;</title></channel></rss>
      """
    let file = "<!DOCTYPE rss [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><rss><channel>&x;</channel></rss>"
    let names = "<rss>" + (0..<60_000).map { "<x\($0)\(String(repeating: "y", count: 100))/>" }.joined()
    let deep = "<rss>" + String(repeating: "<a>", count: 100_000)
    for (text, words, line) in [
      (laughs, "declares entities", 1), (file, "declares entities", 1), (deep, "nest deeper", 1),
      (names, "different names", 1),
      ("<rss>\n<channel>&nbsp;</channel></rss>", "entity of HTML", 2), ("<rss>\n<channel>\n", "ends too early", 2),
      ("<rss><item></rss>", "well-formed", 1), ("<rss></rss><rss></rss>", "well-formed", 1),
    ] {
      let error = #expect(throws: ManifestError.self) { try read(text, name: "x") }
      let message = error?.description ?? ""
      #expect(message.contains(words) && message.contains("line \(line): this feed"), "\(message)")
    }
    // A document type alone declares nothing, and is not fetched.
    let typed = "<!DOCTYPE rss SYSTEM \"http://127.0.0.1:9/x.dtd\"><rss><channel/></rss>"
    #expect(try read(typed, name: "x").entries.isEmpty)
    #expect(throws: ManifestError.notAList(name: "x", what: "xml")) {
      try read("<?xml version=\"1.0\"?><a/>", name: "x")
    }
  }

  @Test func latin1IsReadAsItsDeclarationSays() throws {
    var bytes = Array("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><playlist><trackList><track><title>caf".utf8)
    bytes += [0xE9] + Array("</title><location>https://h/a.mp3</location></track></trackList></playlist>".utf8)
    let reading = try readAll(ManifestReader(bytes: bytes, name: "x"))
    #expect(reading.paths == ["café.mp3"])
  }

  /// A feed of 40 MB, with a text of 16 MB in it that libxml2 gives in pieces: what is kept of it is bounded.
  @Test func aLargeFeedIsRead() throws {
    var text = "<rss><channel><title>T</title>"
    for number in 0..<20_000 {
      text += "<item><title>\(number)</title><description>\(String(repeating: "x", count: 1000))</description>"
      text += "<enclosure url='https://h/\(number).mp3'/></item>"
    }
    text += "<item><title>\(String(repeating: "é ", count: 3 << 20))</title><enclosure url='https://h/a.mp3'/></item>"
    let reading = try read(text + "</channel></rss>", name: "x")
    #expect(reading.entries.count == 20_001 && reading.entries.last?.name == "a.mp3")
    #expect(reading.problems.map(\.message) == ["the text of title is longer than 64 KiB; mediafs passes over it"])
  }

  /// A part of a URL would be another URL.
  @Test func textsThatAreTooLong() throws {
    let long = "https://h/" + String(repeating: "x", count: 64 << 10)
    let playlist = """
      <playlist><trackList>
      <track>
      <location>\(long)</location><location>https://m/1.mp3</location></track>
      <track><annotation>\(long)</annotation>
      <location>\(long)</location></track></trackList></playlist>
      """
    let reading = try read(playlist)
    #expect(reading.entries.map(\.urls) == [["https://m/1.mp3"]])
    #expect(reading.problems.map(\.line) == [3, 5, 4])
    #expect(reading.problems.first?.message == "the text of location is longer than 64 KiB; mediafs passes over it")
    #expect(reading.problems.last?.message.contains("tracks without a location") == true)
    let feed =
      "<rss><channel><title>T</title>\n<item><enclosure type='audio/mpeg'\nurl='\(long)'/></item></channel></rss>"
    let problems = try read(feed).problems
    #expect(problems.map(\.line) == [3, 2], "\(problems)")
    #expect(problems.first?.message == "the attribute url is longer than 64 KiB; mediafs passes over it")
  }

  /// Sections of CDATA have articles in feeds.
  @Test func longSectionsAreRead() throws {
    let article = "<description><![CDATA[\(String(repeating: "<p>x</p>\n", count: 100_000))]]></description>"
    let item = "<item>\(article)<enclosure url='https://h/1.mp3'/></item>"
    let reading = try read("<rss><channel><title>T</title>\(item)</channel></rss>")
    #expect(reading.paths == ["T/1.mp3"] && reading.problems == [])
  }

  /// libxml2 compares each attribute with all others, and reads a tag as a whole.
  @Test func manyAttributesAreRefusedSoon() throws {
    let many = (0..<40_000).map { "a\($0)=''" }.joined(separator: " ")
    let few = (0..<10_000).map { "a\($0)=''" }.joined(separator: " ")
    for (text, words) in [
      ("<rss \(many)/>", "a tag or a comment is longer"), ("<rss \(few)/>", "more attributes"),
      ("<rss><!--\(many)--></rss>", "a tag or a comment is longer"),
      ("<rss " + (0..<1000).map { "xmlns:a\($0)='b'" }.joined(separator: " ") + "/>", "more attributes"),
    ] {
      let error = #expect(throws: ManifestError.self) { try read(text, name: "x") }
      #expect(error?.description.contains(words) == true, "\(error?.description ?? "")")
    }
  }

  @Test func aFeedsTitleMayComeAfterItsItems() throws {
    func feed(_ items: Int, _ title: String) -> String {
      let item = "<item><enclosure url='https://h/1.mp3'/></item>\n"
      return "<rss><channel>\n\(String(repeating: item, count: items))\(title)</channel></rss>"
    }
    #expect(try read(feed(2, "<title>Late</title>")).paths == ["Late/1.mp3", "Late/1.mp3"])
    #expect(
      try read(feed(1, "<title>Late</title><item><enclosure url='https://h/2.mp3'/></item>")).paths == [
        "Late/1.mp3", "Late/2.mp3",
      ])
    #expect(try read(feed(2, "")).paths == ["Feed/1.mp3", "Feed/1.mp3"])
    // What waits for the title is bounded: a feed is then a folder all the same, and only one.
    let reading = try read(feed(30_000, "<title>Late</title>"))
    #expect(Set(reading.paths) == ["Feed/1.mp3"] && reading.entries.count == 30_000)
    #expect(
      reading.problems.count == 1 && reading.problems.first?.message.contains("no title before its items") == true)
  }

  /// URLs are bytes: two that differ only in their normalization are two.
  @Test func enclosuresOfOneNameInTwoFormsAreTwo() throws {
    let enclosures = ["caf\u{E9}", "cafe\u{301}", "caf\u{E9}"].map { "<enclosure url='https://h/\($0).mp3'/>" }
    let reading = try read("<rss><channel><title>F</title><item>\(enclosures.joined())</item></channel></rss>")
    #expect(reading.entries.map { $0.urls[0] } == ["https://h/caf%C3%A9.mp3", "https://h/cafe%CC%81.mp3"])
  }

  /// The folder that a feed's title gives is made once: for each file it would take many minutes.
  @Test func manyFilesBelowALongTitle() throws {
    let title = String(repeating: "é", count: 30_000)
    let items = String(repeating: "<item><enclosure url='https://h/1.mp3'/></item>\n", count: 100_000)
    let text = "<rss><channel><title>\(title)</title>\(items)</channel></rss>"
    let reading = try withWatchdog(180, "the title of a feed") { try read(text) }
    let folder = String(repeating: "é", count: 127)
    #expect(reading.entries.count == 100_000 && reading.entries.allSatisfy { $0.folder == [folder] })
  }

  @Test func picturesOfFeedsAreNoMedia() throws {
    let reading = try read(
      """
      <rss xmlns:media="http://search.yahoo.com/mrss/"><channel><title>F</title>
      <item><enclosure url="https://h/1.mp3"/><media:content url="https://h/1.jpg?x=1"/>
        <media:content url="https://h/2" medium="image"/><media:content url="https://h/3" type="image/png"/></item>
      <item><title>Picture</title><enclosure url="https://h/4" type="image/jpeg"/></item>
      <item><enclosure url="https://h/5.jpg" type="video/mp4"/></item>
      </channel></rss>
      """)
    #expect(reading.entries.map { $0.urls[0] } == ["https://h/1.mp3", "https://h/5.jpg"])
    #expect(reading.problems.count == 1 && reading.problems.first?.line == 2)
    #expect(reading.problems.first?.message.hasPrefix("left out: pictures") == true)
  }

  @Test(arguments: [
    ("Mon, 23 Nov 26 18:00:00 +0100", "2026-11-23", Int64(1_795_453_200)),
    ("3 Jan 99 00:00 GMT", "1999-01-03", 915_321_600), ("01 Feb 49 00:00:00 Z", "2049-02-01", 2_495_750_400),
    ("Fri, 01 Jan 2100 00:00:00 GMT", "2100-01-01", 4_102_444_800),
  ]) func yearsOfFeeds(date: String, day: String, seconds: Int64) throws {
    let item = "<item><title>T</title><pubDate>\(date)</pubDate><enclosure url='https://h/1.mp3'/></item>"
    let reading = try read("<rss><channel><title>F</title>\(item)</channel></rss>")
    #expect(reading.paths == ["F/\(day) T.mp3"] && reading.entries.first?.facts?.date == seconds)
    // No year of two digits in RFC 3339.
    let atom =
      "<feed><title>F</title><entry><title>T</title><published>26-11-23T00:00:00Z</published>"
      + "<link rel='enclosure' href='https://h/1.mp3'/></entry></feed>"
    #expect(try read(atom).paths == ["F/T.mp3"])
  }

  @Test func aFormatCanBeForced() throws {
    let text = "[playlist]\nFile1=https://h/1.mp3\n"
    var reader = ManifestReader(bytes: Array(text.utf8), name: "x", format: .pls)
    #expect(reader.format == .pls)
    guard case .entry = try reader.next() else {
      Issue.record("no entry")
      return
    }
    let forced = try readAll(ManifestReader(bytes: Array(text.utf8), name: "x", format: .aria2))
    #expect(forced.entries.isEmpty && forced.errors.map(\.line) == [1, 2])
    #expect(throws: ManifestError.self) {
      try readAll(ManifestReader(bytes: Array("https://h/1.mp3".utf8), name: "x", format: .feed))
    }
    // A playlist's name does not count against what the user says.
    #expect(try readAll(ManifestReader(bytes: Array(text.utf8), name: "x.m3u", format: .pls)).paths == ["1.mp3"])
  }
}
