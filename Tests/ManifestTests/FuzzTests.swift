import Manifest
import TestSupport
import Testing

@Suite("Mutated manifests")
struct FuzzTests {
  private static let seeds: [[UInt8]] = [
    "https://user:pw@example.com:8080/a%20b/song.mp3?x=1&X-Amz-Signature=2#f"
      + "\thttp://[::1]/b\n  out=../x/y.mp3\n  dir=/a/../b\n",
    "\u{FEFF}# c\r\nhttps://example.com/\r\n header=Authorization: x\r\n"
      + " checksum=md5=d41d8cd98f00b204e9800998ecf8427e\r\n id=7\r\n",
    "#EXTM3U\n#EXTINF:-1 a=\"b,c\",T\u{202E}itle / é\n"
      + "../rel/../x.flac\nhttps://h/%2e%2e/%00%FF.mkv?token=abc&expires=1700000000\n",
    "http://h/\(String(repeating: "é", count: 200)).tar.gz\n"
      + " out=\(String(repeating: "👩‍👩‍👧", count: 30)).mp3\n user-agent=x\n referer=y\n",
  ].map { Array($0.utf8) }
  private static let words = tokens(
    "..", "/", "%", "%00", "%2F", "\t", "\r", "\n", "\n  ", "\0", "http://", "https://", "#", "?", "&", "=", "@", ":",
    "[", "]",
    "out=", "dir=", "load-cookies=", "http-user=", "http-passwd=", "header=", "checksum=sha-256=", "id=", "#EXTINF:,",
    "#EXTM3U\n", "\u{202E}", "\u{85}", "é",
    "e\u{301}",
    " ", ".", "\u{FEFF}", "sig=", "sv=2020-01-01&sig=aaaaaaaaaaaaaaaaaaaaaaaaaaa", "expires=1700000000")

  @Test func everyNameIsSafe() throws {
    let base = try ManifestBase(url: "https://base.example/x/y?z")
    var entries = 0
    let cases = Fuzzing("names", cases: 6000).run { random, place in
      let seed = Self.seeds[place.index % Self.seeds.count]
      let bytes = random.mutated(seed, tokens: Self.words)
      let lines = bytes.split(separator: 0x0A, omittingEmptySubsequences: false).count
      let name = random.oneIn(2) ? "x.m3u" : "x.txt"
      var reader = ManifestReader(bytes: bytes, name: name, base: random.oneIn(2) ? base : .none)
      do throws(ManifestError) {
        while let item = try reader.next() {
          switch item {
          case .problem(let problem):
            #expect((1...lines).contains(problem.line), "\(place)")
            #expect(!problem.message.isEmpty)
          case .folder: Issue.record("\(place): a folder of a server")
          case .entry(let entry):
            entries += 1
            checkEntry(entry, "\(place)")
          }
        }
      } catch {
        #expect(!error.description.isEmpty)
      }
    }
    #expect(entries > cases / 2, "the mutations leave nothing to check")
  }

  @Test func everyHeadIsRead() {
    let starts: [[UInt8]] = [
      [0, 0, 0, 24] + Array("ftypmif1".utf8), [0x1A, 0x45, 0xDF, 0xA3], Array("OggS".utf8), Array("RIFF".utf8), [0x47],
      Array("ID3".utf8), [0xFF, 0xFB, 0x90], [0xFF, 0xF1, 0x50, 0x80], [0x0B, 0x77], Array("PK\u{3}\u{4}".utf8),
      Array("<?xml".utf8), [],
    ]
    Fuzzing("types", cases: 6000).run { random, place in
      let start = starts[place.index % starts.count]
      let head = random.mutated(start + random.bytes(400), tokens: Self.words)
      let found = head.withUnsafeBytes { FileType.fileExtension(head: $0, suggestedName: nil, mediaType: nil) }
      if let found { #expect(FileType.mediaType(forExtension: found) != nil, "\(place)") }
    }
  }
}
