import Manifest
import Testing

@Suite("Mutated manifests")
struct FuzzTests {
  private static let seeds = [
    "https://user:pw@example.com:8080/a%20b/song.mp3?x=1&X-Amz-Signature=2#f"
      + "\thttp://[::1]/b\n  out=../x/y.mp3\n  dir=/a/../b\n",
    "\u{FEFF}# c\r\nhttps://example.com/\r\n header=Authorization: x\r\n"
      + " checksum=md5=d41d8cd98f00b204e9800998ecf8427e\r\n id=7\r\n",
    "#EXTM3U\n#EXTINF:-1 a=\"b,c\",T\u{202E}itle / é\n"
      + "../rel/../x.flac\nhttps://h/%2e%2e/%00%FF.mkv?token=abc&expires=1700000000\n",
    "http://h/\(String(repeating: "é", count: 200)).tar.gz\n"
      + " out=\(String(repeating: "👩‍👩‍👧", count: 30)).mp3\n user-agent=x\n referer=y\n",
  ]
  private static let tokens: [String] = [
    "..", "/", "%", "%00", "%2F", "\t", "\r", "\n", "\n  ", "\0", "http://", "https://", "#", "?", "&", "=", "@", ":",
    "[", "]",
    "out=", "dir=", "header=", "checksum=sha-256=", "id=", "#EXTINF:,", "#EXTM3U\n", "\u{202E}", "\u{85}", "é",
    "e\u{301}",
    " ", ".", "\u{FEFF}", "sig=", "sv=2020-01-01&sig=aaaaaaaaaaaaaaaaaaaaaaaaaaa", "expires=1700000000",
  ]

  @Test func everyNameIsSafe() throws {
    let seed = UInt64.random(in: 0 ... .max)
    print("FuzzTests.everyNameIsSafe: seed \(seed)")
    var random = Seeded(state: seed)
    let base = try ManifestBase(url: "https://base.example/x/y?z")
    var entries = 0
    for round in 0..<6000 {
      let bytes = mutated(Array(Self.seeds[round % Self.seeds.count].utf8), &random)
      let lines = bytes.split(separator: 0x0A, omittingEmptySubsequences: false).count
      let name = Bool.random(using: &random) ? "x.m3u" : "x.txt"
      var reader = ManifestReader(bytes: bytes, name: name, base: round % 2 == 0 ? base : .none)
      do {
        while let item = try reader.next() {
          switch item {
          case .problem(let problem):
            #expect((1...lines).contains(problem.line), "seed \(seed), round \(round)")
            #expect(!problem.message.isEmpty)
          case .entry(let entry):
            entries += 1
            check(entry, "seed \(seed), round \(round)")
          }
        }
      } catch {
        #expect(!error.description.isEmpty)
      }
    }
    #expect(entries > 3000, "the mutations leave nothing to check: seed \(seed)")
  }

  private func check(_ entry: ManifestEntry, _ place: Comment) {
    #expect((entry.folder + [entry.name]).allSatisfy(SafeName.isSafe), place)
    #expect(SafeName.isSafe(SafeName.numbered(entry.name, 12)), place)
    #expect(SafeName.isSafe(SafeName.appendingExtension(entry.name, "webm")), place)
    #expect(entry.folder.count <= 32 && !entry.urls.isEmpty, place)
    for url in entry.urls {
      let isClean = url.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7F } && !url.contains("#")
      #expect(isClean && ["http://", "https://"].contains { url.utf8.starts(with: $0.utf8) }, place)
      _ = ResourceKey(url: url)
    }
    for header in entry.headers {
      #expect(
        !header.name.isEmpty && !(header.name + header.value).utf8.contains { $0 == 13 || $0 == 10 || $0 == 0 }, place)
    }
    if let checksum = entry.checksum { #expect(checksum.digest.count == checksum.algorithm.byteCount, place) }
  }

  private func mutated(_ bytes: [UInt8], _ random: inout Seeded) -> [UInt8] {
    var bytes = bytes
    for _ in 0..<Int.random(in: 1...6, using: &random) {
      let position = Int.random(in: 0...bytes.count, using: &random)
      let end = min(bytes.count, position + Int.random(in: 0...12, using: &random))
      switch Int.random(in: 0..<5, using: &random) {
      case 0: bytes.removeSubrange(position..<end)
      case 1: bytes.insert(contentsOf: bytes[position..<end], at: Int.random(in: 0...bytes.count, using: &random))
      case 2: bytes.insert(UInt8.random(in: 0...255, using: &random), at: position)
      case 3 where position < bytes.count: bytes[position] ^= 1 << UInt8.random(in: 0..<8, using: &random)
      default: bytes.insert(contentsOf: Self.tokens.randomElement(using: &random)!.utf8, at: position)
      }
    }
    return bytes
  }

  @Test func everyHeadIsRead() {
    let seed = UInt64.random(in: 0 ... .max)
    print("FuzzTests.everyHeadIsRead: seed \(seed)")
    var random = Seeded(state: seed)
    let starts: [[UInt8]] = [
      [0, 0, 0, 24] + Array("ftypmif1".utf8), [0x1A, 0x45, 0xDF, 0xA3], Array("OggS".utf8), Array("RIFF".utf8), [0x47],
      Array("ID3".utf8), [0xFF, 0xFB, 0x90], [0xFF, 0xF1, 0x50, 0x80], [0x0B, 0x77], Array("PK\u{3}\u{4}".utf8),
      Array("<?xml".utf8), [],
    ]
    for round in 0..<6000 {
      var head = starts[round % starts.count]
      for _ in 0..<Int.random(in: 0...400, using: &random) { head.append(UInt8.random(in: 0...255, using: &random)) }
      head = mutated(head, &random)
      let found = head.withUnsafeBytes { FileType.fileExtension(head: $0, suggestedName: nil, mediaType: nil) }
      if let found { #expect(FileType.mediaType(forExtension: found) != nil, "seed \(seed), round \(round)") }
    }
  }
}
