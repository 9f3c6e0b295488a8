import Base
import Manifest
import Testing

@Suite("M3U playlists")
struct PlaylistTests {
  @Test func titlesAsNames() throws {
    let reading = try read(
      """
      #EXTM3U
      #EXTINF:123,Artist - Song
      https://example.com/1.mp3
      # a comment
      #EXTINF:-1 tvg-id="a,b" group-title="News, and more",Channel / One.flac
      https://example.com/2.flac?x=1
      https://example.com/3.ogg
      #EXTINF:5,Mr. Smith vs. St.Anger
      https://example.com/4.opus
      #EXTINF:5,No extension anywhere
      https://example.com/5
      #EXTINF:5,Own.mkv
      https://example.com/6
      #EXTINF:5,
      https://example.com/7.mp3
      #EXTINF:5,..
        https://example.com/8.mp3
      """)
    #expect(reading.problems == [])
    #expect(
      reading.paths == [
        "Artist - Song.mp3", "News, and more/Channel _ One.flac", "3.ogg", "Mr. Smith vs. St.Anger.opus",
        "No extension anywhere",
        "Own.mkv", "7.mp3", "__.mp3",
      ])
    #expect(reading.entries.map(\.mayGainExtension) == [false, false, false, false, true, false, false, false])
    #expect(reading.entries.map(\.line) == [3, 6, 7, 9, 11, 13, 15, 17])
  }

  @Test func attributesAndPlayerOptions() throws {
    let reading = try read(
      """
      #EXTM3U
      #EXTINF:90.5 tvg-name="By attribute" group-title="a/b",
      #EXTVLCOPT:http-user-agent=Player 1
      #EXTVLCOPT:http-referrer=https://example.com/
      #EXTVLCOPT:network-caching=1000
      https://h/1.mp4
      #EXTGRP:Others
      https://h/2.mp4|User-Agent=A%20b&X-Key=k%3D1
      https://h/3|4.mp4
      #EXTINF:-1 xgroup-title="no",Plain
      https://h/5.mp4|Connection=close
      #EXTINF:-1 tvg-name=Unquoted group-title=News tvg-id=1,
      https://h/6.mp4
      """)
    #expect(
      reading.paths == ["a_b/By attribute.mp4", "Others/2.mp4", "3|4.mp4", "Plain.mp4", "News/Unquoted.mp4"])
    let entries = reading.entries
    #expect(entries[0].userAgent == "Player 1" && entries[0].referer == "https://example.com/")
    #expect(entries[0].facts?.duration == 90.5 && entries[3].facts?.duration == nil)
    #expect(entries[1].urls == ["https://h/2.mp4"] && entries[1].userAgent == "A b")
    #expect(entries[1].headers == [HTTPHeader(name: "X-Key", value: "k=1")])
    #expect(entries[2].urls == ["https://h/3%7C4.mp4"] && entries[2].headers.isEmpty)
    // A header that would bring wrong bytes is refused here as everywhere.
    #expect(entries[3].headers.isEmpty && reading.errors.map(\.line) == [11])
  }

  /// A bar in a query is the query's, unless names of header fields follow it.
  @Test(arguments: [
    ("https://h/a.mp4?q=a|b=2", "https://h/a.mp4?q=a%7Cb=2", [String: String]()),
    ("https://h/a.mp4?q=a|b=2&c=3", "https://h/a.mp4?q=a%7Cb=2&c=3", [:]),
    (
      "https://h/a.mp4?q=a|b=2|User-Agent=A%20b&X-Key=k", "https://h/a.mp4?q=a%7Cb=2",
      ["User-Agent": "A b", "X-Key": "k"]
    ),
    ("https://h/a.mp4?x=1|referer=https%3A%2F%2Fh%2F", "https://h/a.mp4?x=1", ["referer": "https://h/"]),
    ("https://h/a.mp4?x=1|Cookie=a%3D1&b=2", "https://h/a.mp4?x=1", ["Cookie": "a=1", "b": "2"]),
    ("https://h/a.mp4?q=a|b=2&cookie=c", "https://h/a.mp4?q=a%7Cb=2&cookie=c", [:]),
    ("https://h/a|b.mp4|Key=v", "https://h/a%7Cb.mp4", ["Key": "v"]),
    ("https://h/a|b.mp4?c=1&d=2", "https://h/a%7Cb.mp4?c=1&d=2", [:]),
    ("https://h/a|b/c:d.mp4", "https://h/a%7Cb/c:d.mp4", [:]),
  ]) func barsOfQueries(line: String, url: String, fields: [String: String]) throws {
    let reading = try read("#EXTM3U\n\(line)\n")
    let entry = try #require(reading.entries.first)
    #expect(entry.urls == [url] && reading.problems == [])
    var found = Dictionary(uniqueKeysWithValues: entry.headers.map { ($0.name, $0.value) })
    found["User-Agent"] = entry.userAgent
    found["referer"] = entry.referer
    #expect(found == fields)
  }

  /// Behind a path, what looks like fields is none of it, whatever their names.
  @Test(arguments: [
    "a.mp4|Token=geheim&junk", "a.mp4|drmToken=geheim&license key=geheim", "live|session-token=geheim&Bearer geheim",
    "a.mp4|geheim", "live|auth token=geheim", "live|token&Sess=geheim", "live|Authorization:Bearer geheim",
  ]) func pathsHaveNoFields(line: String) throws {
    let reading = try read("#EXTM3U\nhttps://h/\(line)\n")
    let entry = try #require(reading.entries.first)
    #expect(entry.urls == ["https://h/" + line.prefix { $0 != "|" }])
    #expect(!entry.name.contains("geheim") && reading.problems.count == 1, "\(reading.problems)")
  }

  /// A pair that cannot be read does not make the others a part of the URL, which is requested and shown.
  @Test(arguments: [
    ("https://h/a.mp4|Cookie=geheim&verifypeer", ["Cookie": "geheim"], 1),
    ("https://h/a.mp4| Cookie=geheim", ["Cookie": "geheim"], 0),
    ("https://h/a.mp4 | Cookie = geheim & X-B=2 ", ["Cookie": "geheim", "X-B": "2"], 0),
    ("https://h/a.mp4|Cookie=geheim&=geheim&X-B=2", ["Cookie": "geheim", "X-B": "2"], 1),
    ("https://h/a.mp4|Cookie=geheim&X-Custom Name=geheim&b(=geheim", ["Cookie": "geheim"], 2),
    ("https://h/a.mp4|Key=geheim&Cookie=2&geheim", ["Key": "geheim", "Cookie": "2"], 1),
    ("https://h/a.mp4|X-Custom Name=geheim", [:], 1),
    ("https://h/a.mp4|Cookie: geheim", [:], 1),
    ("https://h/a.mp4||Cookie=geheim", ["Cookie": "geheim"], 0),
    ("https://h/a.mp4\(String(repeating: "|", count: 40))Cookie=geheim", ["Cookie": "geheim"], 0),
    ("https://h/a.mp4|Cookie=geheim%ff&X-B=2", ["X-B": "2"], 1),
  ]) func pairsThatCannotBeRead(line: String, fields: [String: String], left: Int) throws {
    for mark in ["", "?x=1"] where mark.isEmpty || !line.contains("|Key") {
      let reading = try read("#EXTM3U\n\(line.replacing("a.mp4", with: "a.mp4" + mark))\n")
      let entry = try #require(reading.entries.first)
      #expect(entry.urls == ["https://h/a.mp4" + mark])
      #expect(Dictionary(uniqueKeysWithValues: entry.headers.map { ($0.name, $0.value) }) == fields)
      #expect(reading.errors.isEmpty && reading.problems.map(\.line) == (left > 0 ? [2] : []))
      let message = reading.problems.first?.message ?? ""
      #expect(left == 0 || message.contains("\(left) of its parts"), "\(message)")
      #expect(!message.contains("geheim") && !message.contains("verifypeer"))
    }
  }

  @Test func manyBarsCostLittle() throws {
    let line = "https://h/a.mp4?q=" + String(repeating: "|X-A=b&", count: 8000)
    #expect(try read("#EXTM3U\n" + String(repeating: line + "c\n", count: 20)).entries.count == 20)
  }

  @Test func toldByNameOrFirstLine() throws {
    let text = "#EXTINF:1,Title\nhttps://example.com/a.mp3\n"
    for name in ["x.m3u", "/a/b.M3U8", "x.m3u8"] { #expect(try read(text, name: name).paths == ["Title.mp3"]) }
    for name in ["x.txt", "m3u", "-", "a.m3u/x"] {
      #expect(try read("\n" + text, name: name).paths == ["Title.mp3"])
      // Elsewhere they are comments, and a warning says so, once.
      let plain = try read("https://example.com/b.mp3\n" + text + text, name: name)
      #expect(plain.paths == ["b.mp3", "a.mp3", "a.mp3"] && plain.errors.isEmpty)
      #expect(plain.problems.map(\.line) == [2] && plain.problems[0].message.contains("#EXTM3U"))
    }
    #expect(try read("\u{FEFF}#EXTM3U\r\n" + text).paths == ["Title.mp3"])
    #expect(try read("\n#EXTM3U url-tvg=\"x\"\n" + text).paths == ["Title.mp3"])
    #expect(try read("# hello\n#EXTM3U\n" + text).paths == ["a.mp3"])
  }

  @Test func aTitleIsForOneURL() throws {
    let reading = try read(
      "#EXTM3U\n#EXTINF:1,One\nftp://h/1.mp3\nhttps://h/2.mp3\n#EXTINF:1,A\n#EXTINF:1,B\nhttps://h/3.mp3")
    #expect(reading.paths == ["2.mp3", "B.mp3"])
    #expect(reading.errors.map(\.line) == [3])
  }

  @Test func relativeURLs() throws {
    let text = "#EXTM3U\na b/1.mp3\n../2.mp3\n/3.mp3\n//other.org/4.mp3\nhttps://x/5.mp3\n"
    let without = try read(text)
    #expect(without.entries.map(\.urls) == [["https://x/5.mp3"]])
    #expect(without.errors.map(\.line) == [2, 3, 4, 5])
    #expect(without.errors.allSatisfy { $0.message.contains("base") })
    let with = try read(text, base: ManifestBase(url: "https://example.com/lists/today.m3u?x=1"))
    #expect(with.problems == [])
    #expect(
      with.entries.map { $0.urls[0] } == [
        "https://example.com/lists/a%20b/1.mp3", "https://example.com/2.mp3", "https://example.com/3.mp3",
        "https://other.org/4.mp3", "https://x/5.mp3",
      ])
    // aria2's format has no relative URLs.
    #expect(try read("a.mp3", base: ManifestBase(url: "https://example.com/")).entries.isEmpty)
  }

  @Test func basesThatAreNone() {
    for url in ["", "example.com", "ftp://example.com/", "https://"] {
      #expect(throws: ManifestError.self) { try ManifestBase(url: url) }
    }
  }

  @Test func aStreamsPlaylist() {
    for tag in ["#EXT-X-TARGETDURATION:10", "#EXT-X-STREAM-INF:BANDWIDTH=1"] {
      #expect(throws: ManifestError.streamPlaylist(name: "x.txt", line: 3)) {
        try read("#EXTM3U\n#EXT-X-VERSION:3\n\(tag)\n1.ts\n", name: "x.txt")
      }
    }
  }

  @Test func whatCannotPlayAsAFile() throws {
    let lines = [
      ("https://h/live.m3u8?token=geheim", true), ("https://h/live.M3U8", true), ("https://h/x.mpd", true),
      ("https://h/a.ism/Manifest", true), ("https://h/a.mp4", false), ("https://h/m3u8", false),
      ("https://h/a.mp4\thttps://h/b.mpd", true), ("https://h/a.mp4?x=.m3u8", false),
    ]
    for (line, isWarned) in lines {
      let entry = try #require(try read(line).entries.first)
      let warning = playlistWarning(for: entry)
      #expect((warning != nil) == isWarned, "\(line)")
      #expect(warning?.contains("geheim") != true)
    }
    #expect(playlistWarning(for: try entry("out=live.m3u8")) != nil)
  }
}
