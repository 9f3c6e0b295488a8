import Base
import Glibc
import TestSupport
import Testing

@testable import Media

@Suite("Mutated media")
struct FuzzTests {
  private static let words =
    tokens(
      "moov", "moof", "mdat", "sidx", "mvhd", "mvex", "mehd", "trex", "trak", "tkhd", "edts", "elst", "mdia", "mdhd",
      "hdlr", "vide", "soun", "minf", "stbl", "stts", "stsz", "stz2", "stsc", "stco", "co64", "traf", "tfhd", "tfdt",
      "trun", "tfra", "mfro", "mfra", "free", "Xing", "VBRI", "fmt ", "data", "OggS", "COMM", "LIST", "strh", "duration"
    )
    + [
      [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 8], [0xFF, 0xFF, 0xFF, 0xFF], [0x7F, 0xFF, 0xFF, 0xFF],
      [0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], [0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
      [0x1F, 0x43, 0xB6, 0x75], [0x1C, 0x53, 0xBB, 0x6B], [0x11, 0x4D, 0x9B, 0x74], [0xBB, 0x80], [0xB7, 0x80],
      [0xE7, 0x81], [0xF1, 0x88, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
      [0x44, 0x89, 0x88, 0x7F, 0xF0, 0, 0, 0, 0, 0, 0],
    ]

  /// Small files of every kind.
  private static func seeds() throws -> [[UInt8]] {
    try withTemporaryFolder { folder in
      let source = [
        "ffmpeg", "-nostdin", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc=s=32x32:r=5:d=4", "-f", "lavfi", "-i",
        "sine=d=4:r=8000",
      ]
      let film = ["-c:v", "mpeg4", "-q:v", "31", "-g", "5", "-c:a", "aac", "-b:a", "16k"]
      let made: [(String, [String])] = [
        ("first.mp4", film + ["-movflags", "+faststart"]), ("last.mov", film), ("film.mkv", film),
        ("fragments.mp4", film + ["-movflags", "frag_keyframe+empty_moov"]),
        ("segments.mp4", film + ["-movflags", "frag_keyframe+empty_moov+dash+global_sidx"]),
        ("cues.mkv", film + ["-cues_to_front", "1"]),
        ("film.webm", ["-c:v", "libvpx", "-deadline", "realtime", "-g", "5", "-b:v", "20k", "-an"]),
        ("pcm.mov", ["-vn", "-c:a", "pcm_u8"]), ("song.mp3", ["-vn", "-c:a", "libmp3lame", "-b:a", "8k"]),
        ("song.wav", ["-vn", "-c:a", "pcm_u8"]), ("song.flac", ["-vn", "-c:a", "flac"]),
        ("song.opus", ["-vn", "-c:a", "libopus", "-b:a", "8k"]), ("song.aiff", ["-vn"]), ("song.wv", ["-vn"]),
        ("song.tta", ["-vn"]), ("film.avi", ["-c:v", "mpeg4", "-q:v", "31", "-an"]), ("song.wma", ["-vn"]),
        ("film.flv", ["-c:v", "flv", "-q:v", "31", "-an"]),
      ]
      return try made.map { name, arguments in
        try Command.succeed(source + arguments + [folder.file(name)], timeout: 60)
        let file = try FileDescriptor.open(folder.file(name), O_RDONLY)
        var bytes = [UInt8](repeating: 0, count: Int(try file.status().st_size))
        _ = try bytes.withUnsafeMutableBytes { try file.readFully(at: 0, into: $0) }
        return bytes
      }
    }
  }

  @Test func everyIndexIsBounded() throws {
    let seeds = try Self.seeds()
    var indexes = 0
    let cases = Fuzzing("media", cases: 2000).run { random, place in
      var bytes = random.mutated(seeds[place.index % seeds.count], tokens: Self.words)
      // Numbers of tables and boxes are changed most often where they are: in the head and in the tail.
      for _ in 0..<Int.random(in: 0..<6, using: &random) where bytes.count > 64 {
        let offset =
          random.oneIn(2)
          ? Int.random(in: 0..<min(2000, bytes.count), using: &random)
          : bytes.count - 1
            - Int.random(in: 0..<min(2000, bytes.count), using: &random)
        bytes[offset] = random.oneIn(2) ? 0xFF : UInt8.random(in: 0...255, using: &random)
      }
      // The origin may name a size that is none.
      let size = random.oneIn(8) ? Int64.random(in: 0 ... .max, using: &random) : Int64(bytes.count)
      var stored = ByteRangeSet()
      var copied = 0
      var reader = FilmReader()
      // First parts, then all.
      let rounds = Int.random(in: 1...4, using: &random)
      for round in 1...rounds {
        let all = min(Int64(bytes.count), size)
        if round == rounds {
          stored.insert(ByteRange(0, all))
        } else if all > 0 {
          let start = random.oneIn(2) ? 0 : Int64.random(in: 0..<all, using: &random)
          stored.insert(ByteRange(start, Int64.random(in: start...all, using: &random)))
        }
        reader.read(
          StoredBytes(size: size, stored: stored) { buffer, offset in
            buffer.copyBytes(from: bytes[Int(offset)..<Int(offset) + buffer.count])
            copied += buffer.count
            return true
          })
        #expect(reader.weight <= 1 << 20, "\(place)")
        if let index = reader.index { check(index, size: size, "\(place)") }
      }
      // Through a buffer of 4 KiB, backwards at worst once for each structure.
      #expect(copied <= 64 * bytes.count + 1 << 20, "\(place): \(copied) bytes of \(bytes.count)")
      if reader.index != nil { indexes += 1 }
    }
    #expect(indexes > cases / 4, "the mutations leave nothing to check: \(indexes) of \(cases)")
  }

  private func check(_ index: FilmIndex, size: Int64, _ place: Comment) {
    #expect(index.duration.isFinite && index.duration > 0 && index.slot > 0, place)
    #expect(
      (1...FilmBuilder.most).contains(index.slots) && (1...FilmBuilder.keptLanes).contains(index.lanes.count), place)
    for lane in index.lanes {
      #expect(lane.ends.count == index.slots && lane.starts.count == index.slots, place)
      #expect(zip(lane.ends, lane.ends.dropFirst()).allSatisfy { $0 <= $1 }, place)
      #expect(lane.ends.allSatisfy { (0...size).contains($0) } && lane.starts.allSatisfy { $0 >= 0 }, place)
    }
    for time in [-1, 0, index.duration / 2, index.duration, 1e18] {
      #expect((0...size).contains(index.needed(at: time)), place)
    }
    for offset in [0, size / 2, size, .max] {
      #expect((0...index.duration).contains(index.time(at: offset)), place)
    }
    _ = index.bytes(ofSecond: 0)
    _ = index.bytes(ofSecond: Int(min(index.duration, 1e9)))
  }
}
