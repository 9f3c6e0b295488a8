import Base
import TestSupport
import Testing

@testable import Media

/// The index of real media, compared with what ffprobe says of every packet.
///
/// What is needed at a time is the end of the last packet that is shown until then, in the order of the file.
@Suite struct IndexTests {
  /// What the files' pictures allow to be off: two seconds between whole pictures (which begin a fragment or a cluster
  /// of Matroska), and half a second by which a group of them is taken earlier.
  private static let group = 2.5

  private func withFilm(_ kind: FilmKind, _ body: (Film) throws -> Void) throws {
    try withTemporaryFolder { folder in try body(Film(kind.make(in: folder))) }
  }

  @Test("For every second, no byte that is needed lies behind the offset, and it is at most a group too far")
  func offsets() throws {
    for kind in FilmKind.allCases { try withFilm(kind) { try compare($0, kind) } }
  }

  private func compare(_ film: Film, _ kind: FilmKind) throws {
    let index = try film.index()
    let packets = try film.packets()
    #expect(packets.count > 300, "\(kind)")
    let duration = try #require(
      Double(
        try Command.succeed(
          ["ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0", film.path], timeout: 60
        ).filter { !$0.isWhitespace }))
    #expect(abs(index.duration - duration) < 0.1, "\(kind): \(index.duration), not \(duration)")
    #expect(index.isExact, "\(kind)")
    func needed(_ time: Double) -> Int64 { packets.reduce(0) { $1.time <= time ? max($0, $1.end) : $0 } }
    for second in stride(from: 0, to: duration, by: 1) {
      let found = index.needed(at: second)
      #expect(found >= needed(second), "\(kind) at \(second): too low")
      // The heads of packets lie between the packets.
      let latest = needed(second + index.slot + Self.group) + 4096
      #expect(found <= latest, "\(kind) at \(second): \(found - latest) bytes too far")
    }
    // Back: at the offset of a packet the time is near.
    for packet in packets where packet.size > 2000 {
      let time = index.time(at: packet.end - packet.size)
      #expect(abs(time - packet.time) < index.slot + Self.group, "\(kind): \(time) for \(packet.time)")
    }
    // Bytes of each second: together all bytes of the packets, and nearly those of the second.
    let seconds = (0..<Int(duration.rounded(.up))).map { index.bytes(ofSecond: $0) }
    let all = packets.reduce(0) { $0 + $1.size }
    #expect(abs(seconds.reduce(0, +) - all) < all / 50 + 20_000, "\(kind): \(seconds) of \(all)")
    if kind == .first {
      for (second, bytes) in seconds.enumerated() {
        let shown = packets.filter { Int($0.time) == second }.reduce(0) { $0 + $1.size }
        #expect(abs(bytes - shown) < shown / 2 + 20_000, "second \(second): \(bytes), not \(shown)")
      }
    }
  }

  @Test("The index is read from the bytes that are stored, as soon as they are")
  func needs() throws {
    try withFilm(.last) { film in
      var reader = FilmReader()
      reader.read(film.bytes(ByteRangeSet()))
      #expect(reader.index == nil && reader.needs == [ByteRange(0, 4)])
      var stored = ByteRangeSet(ByteRange(0, 4096))
      reader.read(film.bytes(stored))
      let header = try #require(reader.needs.first)
      #expect(reader.index == nil && header.start > film.size / 2, "moov lies behind the pictures")
      stored.insert(header)
      reader.read(film.bytes(stored))
      let moov = try #require(reader.needs.first)
      #expect(reader.index == nil && moov.end == film.size, "\(moov)")
      stored.insert(ByteRange(moov.start, moov.end - 1))
      #expect(!reader.canGoOn(stored))
      stored.insert(moov)
      #expect(reader.canGoOn(stored))
      reader.read(film.bytes(stored))
      #expect(reader.needs.isEmpty)
      #expect(try reader.index == film.index())
    }
  }

  @Test("What is read of a growing file is what would be read of the whole, and no byte is read often")
  func growing() throws {
    for kind in FilmKind.allCases {
      try withFilm(kind) { film in
        var reader = FilmReader()
        var before = -1.0
        for end in stride(from: 0, through: film.size + 65_535, by: 65_536) {
          reader.read(film.bytes(ByteRangeSet(ByteRange(0, min(end, film.size)))))
          // Every index on the way is of the same film.
          if let index = reader.index {
            #expect(index.lanes.allSatisfy { $0.ends.count == index.slots && $0.ends.last ?? 0 <= film.size })
            if before < 0 { before = index.duration }
          }
        }
        #expect(reader.needs.isEmpty, "\(kind)")
        let whole = try film.index()
        let index = try #require(reader.index)
        #expect(abs(index.duration - whole.duration) < 0.1, "\(kind)")
        for second in stride(from: 0, to: whole.duration, by: 1) {
          #expect(index.needed(at: second) >= whole.needed(at: second) - film.size / 100, "\(kind) at \(second)")
        }
        #expect(film.copied < 2 * film.size, "\(kind): \(film.copied) bytes read of \(film.size)")
      }
    }
  }

  @Test("Before the cues of Matroska are stored, its clusters tell what is known, and the rest follows by the mean")
  func clusters() throws {
    try withFilm(.matroska) { film in
      let whole = try film.index()
      var reader = FilmReader()
      reader.read(film.bytes(ByteRangeSet(ByteRange(0, film.size / 2))))
      let index = try #require(reader.index)
      #expect(!index.isExact && abs(index.duration - whole.duration) < 0.001)
      #expect(index.needed(at: whole.duration) == film.size)
      for second in 0..<4 {
        let (found, exact) = (index.needed(at: Double(second)), whole.needed(at: Double(second)))
        #expect(found == exact, "second \(second)")
      }
      // With the tail it is exact, though a hole is between.
      var stored = ByteRangeSet(ByteRange(0, film.size / 2))
      stored.insert(ByteRange(film.size - 65_536, film.size))
      #expect(reader.canGoOn(stored))
      reader.read(film.bytes(stored))
      #expect(reader.index == whole && reader.needs.isEmpty)
    }
  }

  @Test("Fragments that name no duration are told by the table in the file's tail")
  func fragmentsTail() throws {
    try withFilm(.fragments) { film in
      let whole = try film.index()
      var reader = FilmReader()
      var stored = ByteRangeSet(ByteRange(0, 16_384))
      reader.read(film.bytes(stored))
      #expect(reader.index == nil, "how long it plays is not known")
      #expect(reader.needs.contains(ByteRange(film.size - 16, film.size)))
      stored.insert(ByteRange(film.size - 65_536, film.size))
      reader.read(film.bytes(stored))
      let index = try #require(reader.index)
      #expect(abs(index.duration - whole.duration) < 2.1)
      for second in stride(from: 0.0, to: 9, by: 1) {
        #expect(abs(index.needed(at: second) - whole.needed(at: second)) < film.size / 4)
      }
    }
  }

  @Test("A file of whose kind no index is read has its mean rate, where its head tells how long it plays")
  func meanRates() throws {
    try withTemporaryFolder { folder in
      let source = try MediaFactory.file(.flac)
      let film = try ["-i", MediaFactory.file(.mp4IndexFirst), "-map", "1:v", "-map", "0:a"]
      let made: [(String, [String])] = [
        ("cbr.mp3", ["-c:a", "libmp3lame", "-b:a", "128k", "-write_xing", "0", "-id3v2_version", "0"]),
        ("vbr.mp3", ["-c:a", "libmp3lame", "-q:a", "4"]), ("song.wav", []), ("song.flac", ["-c:a", "copy"]),
        ("song.ogg", ["-c:a", "libvorbis"]), ("song.opus", ["-c:a", "libopus"]), ("song.aiff", []),
        ("large.wav", ["-rf64", "always"]), ("song.wv", []), ("song.tta", []), ("song.wma", []),
        ("film.avi", film + ["-c:v", "mpeg4", "-c:a", "libmp3lame"]),
        ("film.flv", film + ["-c:v", "flv", "-c:a", "libmp3lame", "-ar", "44100"]),
        ("film.wmv", film + ["-c:v", "wmv2", "-c:a", "wmav2"]),
      ]
      for (name, arguments) in made {
        let path = folder.file(name)
        try Command.succeed(
          ["ffmpeg", "-nostdin", "-v", "error", "-y", "-i", source] + arguments + [path], timeout: 60)
        let film = try Film(path)
        let index = try film.index()
        let error = abs(index.duration - Double(MediaFactory.seconds))
        #expect(error < (name.hasPrefix("film") ? 0.5 : 0.2), "\(name): \(index.duration)")
        #expect(!index.isExact && index.needed(at: index.duration) == film.size)
        let middle = Double(index.needed(at: index.duration / 2)) / Double(film.size)
        #expect(abs(middle - 0.5) < 0.1, "\(name): \(middle) of the file is needed in the middle")
      }
    }
  }

  @Test("A file of another kind has no index, and after its head nothing of it is looked at")
  func others() throws {
    for head in ["%PDF-1.7 and so on and on", "PK\u{3}\u{4} ................", "plain text, nothing else", "short"] {
      try withTemporaryFolder { folder in
        let path = folder.file("other")
        try folder.write(Array(head.utf8), to: "other")
        let film = try Film(path)
        var reader = FilmReader()
        reader.read(film.bytes(ByteRangeSet(ByteRange(0, film.size))))
        #expect(reader.index == nil && reader.needs.isEmpty)
        #expect(film.copied <= 64)
      }
    }
  }
}
