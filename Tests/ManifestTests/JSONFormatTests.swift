import Base
import Manifest
import TestSupport
import Testing

/// Lists that programs print as JSON.
@Suite("Lists of rclone and yt-dlp")
struct JSONFormatTests {
  @Test func rclone() throws {
    let text = """
      [
      {"Path":"a","Name":"a","Size":-1,"ModTime":"2026-01-01T00:00:00Z","IsDir":true},
      {"Path":"a/b c?#%.mp4","Name":"x","Size":12,"MimeType":"video/mp4","ModTime":"2026-01-02T03:04:05.123456789+01:00",
       "IsDir":false,"Hashes":{"md5":"d41d8cd98f00b204e9800998ecf8427e","sha1":"12"}},
      {"Path":"../x.mp3","Size":"nonsense","IsDir":false},
      {"Name":"no path","IsDir":false}
      ]
      """
    #expect(throws: ManifestError.self) { try read(text) }
    let reading = try read(text, base: ManifestBase(url: "https://h/dir"))
    #expect(reading.paths == ["a/b c?#%.mp4", "x.mp3"])
    #expect(reading.entries.map { $0.urls[0] } == ["https://h/dir/a/b%20c%3F%23%25.mp4", "https://h/x.mp3"])
    #expect(reading.entries.map(\.line) == [3, 5])
    let facts = try #require(reading.entries[0].facts)
    #expect(facts.size == 12 && facts.date == 1_767_319_445 && facts.mediaType == "video/mp4")
    #expect(reading.entries[1].facts == nil)
    // The strongest digest is wrong, and the file is listed without one.
    #expect(reading.errors.map(\.line) == [3, 6] && reading.entries[0].checksum == nil)
    #expect(reading.errors[1].message.hasPrefix("item 4: "))
  }

  /// What a filter printed is as empty as what rclone prints of an empty folder.
  @Test func nothing() throws {
    #expect(try read("[]").problems.isEmpty)
    #expect(try read(String(repeating: " \n", count: 5000) + "[" + Self.film + "]").entries.count == 1)
    // A line that is no URL is a line all the same.
    #expect(try read("[]\nhttps://h/a.mp4\n").paths == ["a.mp4"])
  }

  private static let film = """
    {"id": "1", "title": "A / film", "extractor_key": "Site", "ext": "mp4", "duration": 61.5, "timestamp": 1700000000,
     "url": "https://h/videoplayback?expire=1&sig=geheim", "protocol": "https", "format_id": "22", "filesize": 1234,
     "http_headers": {"User-Agent": "UA", "Accept-Encoding": "gzip", "X-A": "b"},
     "cookies": "a=1; Domain=.h; Path=/; Secure; b=2", "webpage_url": "https://h/watch?v=1"}
    """

  @Test func aFilm() throws {
    for text in [Self.film, Self.film.replacing("\n", with: "") + "\n"] {
      let reading = try read(text)
      #expect(reading.paths == ["A _ film.mp4"] && reading.problems == [])
      let entry = try #require(reading.entries.first)
      #expect(entry.urls == ["https://h/videoplayback?expire=1&sig=geheim"] && entry.line == 1)
      #expect(entry.userAgent == "UA")
      #expect(entry.headers == [HTTPHeader(name: "X-A", value: "b"), HTTPHeader(name: "Cookie", value: "a=1; b=2")])
      #expect(entry.key == ResourceKey(id: "yt-dlp:Site:1:22"), "a link that is renewed leads to the same bytes")
      #expect(entry.facts?.size == 1234 && entry.facts?.duration == 61.5 && entry.facts?.date == 1_700_000_000)
    }
  }

  /// Cookies of a link come beside the header fields of the film, not in their place.
  @Test func cookiesBesideTheFilmsHeaders() throws {
    let fields = #""http_headers": {"User-Agent": "UA", "X-A": "b"}"#
    let formats = #"[{"url": "https://h/1.mp4", "vcodec": "a", "acodec": "b", "protocol": "https", "cookies": "k=v"}]"#
    let cookie = HTTPHeader(name: "Cookie", value: "k=v")
    for text in [
      #"{"_type": "video", "id": "1", "title": "T", \#(fields), "formats": \#(formats)}"#,
      #"{"_type": "video", "id": "1", "title": "T", \#(fields), "cookies": "k=v", "url": "https://h/1.mp4"}"#,
      #"{"_type": "video", "id": "1", "title": "T", \#(fields), "cookies": "z=z", "formats": \#(formats)}"#,
    ] {
      let entry = try #require(try read(text).entries.first)
      #expect(entry.userAgent == "UA" && entry.headers == [HTTPHeader(name: "X-A", value: "b"), cookie], "\(text)")
    }
  }

  /// An object that is broken, in a list whose brackets close, is skipped; so is a second list in one object.
  @Test func brokenObjectsAreSkipped() throws {
    let lines = [
      "[", Self.film + ",", #"{"_type": "video", "id": nope},"#, Self.film.replacing("A /", with: "B") + "]",
    ]
    let reading = try read(lines.joined(separator: "\n"))
    #expect(reading.paths == ["A _ film.mp4", "B film.mp4"])
    #expect(reading.errors.map(\.line) == [6] && reading.problems.count == 1, "\(reading.problems)")
    #expect(reading.errors.first?.message == "item 2: it is no valid JSON; it is skipped")
    // Each list that is split costs a copy of what stands before it.
    let lists = "{\"_type\": \"playlist\"" + String(repeating: ",\"entries\":[]", count: 200_000) + "}"
    #expect(try read(lists).entries.isEmpty)
  }

  @Test func filmsThatAreNoFile() throws {
    let apart = #"""
      {"id": "2", "title": "Apart", "ext": "webm", "url": "https://h/v.webm", "protocol": "https", "_type": "video",
       "requested_formats": [{"url": "https://h/v.webm"}, {"url": "https://h/a.webm"}], "formats": [
       {"url": "https://h/low.mp4", "vcodec": "avc1", "acodec": "mp4a", "ext": "mp4", "protocol": "https"},
       {"url": "https://h/high.mp4", "vcodec": "avc1", "acodec": "mp4a", "ext": "mp4", "protocol": "https"},
       {"url": "https://h/v.webm", "vcodec": "vp9", "acodec": "none", "ext": "webm", "protocol": "https"},
       {"url": "https://h/x.m3u8", "vcodec": "vp9", "acodec": "opus", "ext": "mp4", "protocol": "m3u8_native"}]}
      """#
    #expect(try read(apart).entries.map(\.urls) == [["https://h/high.mp4"]])
    let lines = [
      #"{"_type": "video", "id": "3", "title": "T", "url": "https://h/x.m3u8", "protocol": "m3u8_native"}"#,
      #"{"_type": "video", "id": "4", "title": "T", "url": "https://h/x.mp4", "is_live": true}"#,
      #"{"_type": "url", "id": "5", "title": "T", "url": "https://h/watch?v=5", "ie_key": "Site"}"#,
      #"{"_type": "url", "id": "7", "title": "Seven", "url": "https://h/page.html", "ie_key": "Site"}"#,
      #"{"_type": "url", "title": "Six", "url": "https://h/6.mp4?x=1"}"#, "{\"_type\": nonsense}",
    ]
    let reading = try read(lines.joined(separator: "\n"))
    #expect(reading.paths == ["T", "Seven", "Six.mp4"])
    // A page has no link of its own: a resolver gives one.
    let page = reading.entries[0]
    #expect(page.resolver == "ytdlp" && page.urls == ["https://h/watch?v=5"] && page.mayGainExtension)
    #expect(page.key == ResourceKey(id: "yt-dlp:Site:5:") && reading.entries[2].resolver == nil)
    #expect(reading.entries[1].mayGainExtension)
    #expect(reading.errors.map(\.line) == [6] && reading.errors[0].message.contains("no valid JSON"))
    let left = reading.problems.filter { $0.severity == .warning }
    #expect(left.map(\.line) == [1, 2] && left.allSatisfy { $0.message.contains("left out") })
  }

  /// A program may write the entries of a playlist into what is none.
  @Test(arguments: ["null", "\"x\"", "7"]) func entriesThatAreNoList(_ entries: String) throws {
    let film = Self.film.replacing("{\"id\"", with: "{\"entries\": \(entries), \"id\"")
    #expect(try read(film).paths == ["A _ film.mp4"])
  }

  @Test func playlistsWithinPlaylists() throws {
    let text = """
      {"_type": "playlist", "id": "x", "title": "Channel", "entries" : [
      \(Self.film),
      null_is_no_object
      """
    #expect(throws: ManifestError.self) { try read(text) }
    let inner =
      #"{"_type": "playlist", "title": "Inner", "entries": [\#(Self.film.replacing("film", with: "[{\\\"}"))]}"#
    let outer = """
      {"_type": "playlist", "id": "x", "title": "Channel", "entries" : [
      \(Self.film),
      \(inner)
      ], "extractor": "x", "more": ["a", {"entries": [1]}]}
      """
    let reading = try read(outer)
    #expect(reading.paths == ["Channel/A _ film.mp4", "Channel/Inner/A _ [{\"}.mp4"] && reading.problems == [])
    #expect(reading.entries.map(\.line) == [2, 6])
  }

  /// What yt-dlp prints of a channel: much stands before what shows its format, and a tab alone is larger than an item
  /// may be.
  @Test func aChannelWithTabs() throws {
    let description = String(repeating: "Words of a channel. ", count: 300)
    let pad = String(repeating: "x", count: 200)
    let films = (0..<20_000).map { index in
      #"{"_type": "url", "id": "\#(index)", "title": "Film \#(index)", "url": "https://h/\#(index).mp4", "x": "\#(pad)"}"#
    }
    let text = """
      {"id": "c", "channel": "C", "title": "Channel", "description": "\(description)", "entries": [
      {"id": "v", "title": "Videos", "entries": [\(films.joined(separator: ",\n"))], "_type": "playlist"},
      {"id": "s", "title": "Shorts", "entries": [{"title": "Year", "entries": [\(Self.film)], "_type": "playlist"}]}],
      "_type": "playlist"}
      """
    let reading = try read(text)
    #expect(reading.entries.count == 20_001)
    #expect(reading.problems == [])
    #expect(reading.paths.first == "Channel/Videos/Film 0.mp4")
    #expect(reading.paths.last == "Channel/Shorts/Year/A _ film.mp4")
  }

  /// What stands around many lists is read once: of each list it would take hours.
  @Test func manyListsInALargeObject() throws {
    let start = #"{"_type": "playlist", "title": "P", "x": "\#(String(repeating: "x", count: 3 << 20))", "entries": ["#
    let list = #"{"_type": "playlist", "title": "L", "entries": [{"_type": "url", "url": "https://h/1.mp4"}]}"#
    let lists = [String](repeating: list, count: 20_000).joined(separator: ",\n")
    let reading = try withWatchdog(180, "the titles around a list") { try read(start + lists + "]}") }
    #expect(reading.entries.count == 20_000 && reading.entries.allSatisfy { $0.folder == ["P", "L"] })
  }

  /// The folder that a title gives is made once: for each entry it would take hours.
  @Test func manyEntriesBelowALongTitle() throws {
    let title = String(repeating: "x", count: 3 << 20)
    let film = #"{"_type": "url", "url": "https://h/1.mp4"}"#
    let films = [String](repeating: film, count: 20_000).joined(separator: ",\n")
    let text = #"{"_type": "playlist", "title": "\#(title)", "entries": [\#(films)]}"#
    let reading = try withWatchdog(180, "the title of a playlist") { try read(text) }
    let folder = String(repeating: "x", count: 255)
    #expect(reading.entries.count == 20_000 && reading.entries.allSatisfy { $0.folder == [folder] })
  }

  /// Lists within each other are split eight deep; what is deeper belongs to its object, and is left out.
  @Test(arguments: [7, 8, 9, 40]) func depthOfPlaylists(_ depth: Int) throws {
    let start = String(repeating: #"{"_type": "playlist", "title": "P", "entries": ["#, count: depth)
    let reading = try read(start + Self.film + String(repeating: "]}", count: depth))
    #expect(reading.errors == [] && reading.entries.count == (depth < 9 ? 1 : 0))
    #expect(reading.entries.allSatisfy { $0.folder.count == depth })
    #expect(reading.problems.map(\.message).joined().contains("within too many others") == (depth > 8))
  }

  /// What rclone prints of a folder without files is a list of its own format.
  @Test(arguments: ["[]", "[\n]\n", "\u{FEFF}[ ]"]) func anEmptyFolder(_ text: String) throws {
    let reading = try read(text, base: ManifestBase(url: "https://h/dir"))
    #expect(reading.entries.isEmpty && reading.problems == [])
  }

  /// An item that is too large is skipped, at the top and in a list, and what surrounds the list is no item.
  @Test func largeItemsAreSkipped() throws {
    let pad = String(repeating: "x", count: 5 << 20)
    let large = "{\"_type\": \"video\", \"x\": \"\(pad)\"}"
    for text in ["\(large)\n\(Self.film)", "[\(large)\n,\(Self.film)]"] {
      let reading = try read(text)
      #expect(reading.paths == ["A _ film.mp4"] && reading.problems.map(\.line) == [1])
      #expect(reading.errors.first?.message == "item 1 has more than 4 MiB; it is skipped")
    }
    let list = try read("{\"_type\": \"playlist\", \"title\": \"P\", \"entries\": [\(Self.film)], \"x\": \"\(pad)\"}")
    #expect(list.paths == ["P/A _ film.mp4"] && list.errors.count == 1)
  }

  /// To decode an item takes stack for each bracket around a value, and the threads that read lists have little.
  @Test func deepItemsAreSkipped() throws {
    let start = String(repeating: #"{"_type": "playlist", "entries": ["#, count: 200)
    let reading = try read(start + #"{"id": "1"}"# + String(repeating: "]}", count: 200) + "\n" + Self.film)
    #expect(reading.paths == ["A _ film.mp4"])
    #expect(reading.problems.map(\.line) == [1], "\(reading.problems)")
    #expect(reading.errors.first?.message == "item 1 nests deeper than 80; it is skipped")
  }

  @Test func whatIsRefused() throws {
    let deep = "{\"_type\": \"video\", \"x\": " + String(repeating: "[", count: 100_000)
    for (text, words) in [
      (deep, "ends too early"), ("{\"_type\": \"video\"", "ends too early"),
      ("{\"_type\": \"video\"} 1", "other than an object"), ("[{\"_type\": \"video\"}, 1]", "other than an object"),
    ] {
      let error = #expect(throws: ManifestError.self) { try read(text) }
      let message = error?.description ?? ""
      #expect(message.contains(words) && message.contains("this list of yt-dlp"), "\(message)")
    }
    let closed = deep + String(repeating: "]", count: 100_000) + "}"
    #expect(try read(closed).errors.map(\.line) == [1])
  }
}
