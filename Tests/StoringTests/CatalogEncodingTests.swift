import Base
import Manifest
import TestSupport
import Testing

@testable import Storing

@Suite struct CatalogEncodingTests {
  @Test func extentsAreAsTheFormatSays() {
    var set = ByteRangeSet(ByteRange(0, 100))
    set.insert(ByteRange(150, 200))
    #expect(set.encoded == [0, 100, 50, 50])
    #expect(ByteRangeSet().encoded == [])
    #expect(ByteRangeSet(ByteRange(300, 301)).encoded == [0xac, 0x02, 1])
  }

  @Test func extentsRoundTrip() {
    var generator = SeededRandom.fromEnvironment(for: "extents")
    for _ in 0..<200 {
      var set = ByteRangeSet()
      for _ in 0..<Int.random(in: 0...20, using: &generator) {
        let start = Int64.random(in: 0...(1 << Int64.random(in: 0...62, using: &generator)), using: &generator)
        set.insert(ByteRange(start, min(.max, start + .random(in: 1...1_000_000, using: &generator))))
      }
      #expect(set.encoded.withUnsafeBytes { ByteRangeSet(encoded: $0) } == set)
    }
  }

  @Test func noiseIsNoExtents() {
    let tooLong = [UInt8](repeating: 0xff, count: 12)
    let beyond: [UInt8] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1]
    for bytes in [[5], [0, 0], [0x80], tooLong, beyond] as [[UInt8]] {
      #expect(bytes.withUnsafeBytes { ByteRangeSet(encoded: $0) } == nil)
    }
    // Whatever comes: an answer, not a crash.
    var generator = SeededRandom.fromEnvironment(for: "noise")
    for _ in 0..<2000 {
      let bytes = (0..<Int.random(in: 0...40, using: &generator)).map { _ in
        UInt8.random(in: 0...255, using: &generator)
      }
      bytes.withUnsafeBytes {
        _ = ByteRangeSet(encoded: $0)
        var reader = BlobReader($0)
        _ = reader.source(line: 1, folder: [], name: "a", key: key(1))
      }
    }
  }

  @Test func aWholeEntryComesBack() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    let full = ManifestEntry(
      line: 7, urls: ["https://a.example/ä?token=1", "http://b.example/x"], folder: ["films", "été"], name: "film.mkv",
      mayGainExtension: true, headers: [HTTPHeader(name: "X-A", value: "1"), HTTPHeader(name: "X-B", value: "")],
      userAgent: "agent", referer: "https://r.example/",
      checksum: Checksum(algorithm: .md5, digest: (0..<16).map { UInt8($0) }), resolver: "name",
      key: key(1))
    var plain = line("song.mp3", 2)
    plain.line = 9
    var facts = EntryFacts()
    (facts.size, facts.date) = (123_456_789_012, 1_700_000_000)
    var known = full
    (known.name, known.line, known.key, known.facts) = ("known.mkv", 10, key(3), facts)
    try catalog.load([full, plain, known])
    #expect(try catalog.tree.entries(of: key(3)).first?.source == known)
    let record = try #require(try catalog.tree.entries(of: key(1)).first)
    #expect(record.source == full)
    #expect(record.path == "films/été/film.mkv")
    #expect(try catalog.tree.entry(record.node.inode)?.source == full)
    #expect(try catalog.tree.entries(of: key(2)).first?.source == plain)
    #expect(try catalog.tree.entry(record.node.parent) == nil)
  }

  /// What a list says counts until the origin has answered. Sizes and dates that no file has are not kept.
  @Test func listedSizesAndDates() throws {
    func node(_ catalog: Catalog, _ number: UInt64) throws -> Node {
      try #require(try catalog.tree.entries(of: key(number)).first).node
    }
    let catalog = try CatalogFolder().open()
    let given: [(size: Int64?, date: Int64?)] = [
      (5, 6), (7, nil), (nil, 8), (0, -1), (-5, .max), (.max, .min), (1 << 50, 253_402_300_799),
    ]
    let entries = given.enumerated().map { index, facts in
      var entry = line("\(index)", UInt64(index + 1))
      var known = EntryFacts()
      (known.size, known.date) = (facts.size, facts.date)
      entry.facts = known
      return entry
    }
    try catalog.load(entries)
    let nodes = try given.indices.map { try node(catalog, UInt64($0 + 1)) }
    #expect(nodes.map(\.listedSize) == [5, 7, nil, nil, nil, nil, 1 << 50])
    #expect(nodes.map(\.listedDate) == [6, nil, 8, nil, nil, nil, 253_402_300_799])
    #expect(nodes.allSatisfy { $0.size == nil })
    let survey = try #require(try catalog.tree.list(rootInode, after: 0, limit: 1).first)
    #expect(survey.listedSize == 5)
  }
}
