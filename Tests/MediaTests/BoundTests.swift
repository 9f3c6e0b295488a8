import Base
import TestSupport
import Testing

@testable import Media

/// What an index takes of memory and time.
@Suite struct BoundTests {
  private func read(_ bytes: [UInt8], size: Int64) -> (FilmReader, copied: Int) {
    var copied = 0
    var reader = FilmReader()
    reader.read(
      StoredBytes(size: size, stored: ByteRangeSet(ByteRange(0, Int64(bytes.count)))) { buffer, offset in
        buffer.copyBytes(from: bytes[Int(offset)..<Int(offset) + buffer.count])
        copied += buffer.count
        return true
      })
    return (reader, copied)
  }

  @Test("Eight tracks that play for a day take less than a megabyte, and their tables are read once")
  func memory() throws {
    let samples = 40_000
    let offsets = (0..<samples).map { Int64(1000 + $0 * 10) }
    let track = MovieHead.Track(sizes: (0..<samples).map { $0 % 10 + 5 }, offsets: offsets)
    let bytes = MovieHead.bytes([MovieHead.Track](repeating: track, count: 8))
    let (reader, copied) = read(bytes, size: 1 << 40)
    let index = try #require(reader.index)
    #expect(index.duration == Double(samples))
    #expect(index.slots <= FilmBuilder.most && index.lanes.count <= FilmBuilder.keptLanes)
    #expect(reader.weight <= 1 << 20, "\(reader.weight) bytes")
    #expect(copied < 2 * bytes.count + 1 << 20, "\(copied) bytes read of \(bytes.count)")
    for lane in index.lanes { #expect(lane.ends == lane.ends.sorted()) }
  }

  @Test("Billions of samples that a few bytes claim cost nothing")
  func claims() throws {
    var bytes = MovieHead.bytes([MovieHead.Track(sizes: [1], offsets: (0..<100).map { Int64(1000 + $0) })])
    // All samples have one size, and there are 2^32 of them: in the track, in each chunk, and in the table of times.
    for (table, place) in [("stsz", 8), ("stsz", 12), ("stsc", 16), ("stts", 12)] {
      let start = try #require(bytes.indices.dropLast(4).first { Array(bytes[$0..<$0 + 4]) == Array(table.utf8) })
      bytes.replaceSubrange(start + place..<start + place + 4, with: [0xFF, 0xFF, 0xFF, 0xFF])
    }
    let (reader, copied) = read(bytes, size: 1 << 40)
    #expect(reader.index != nil && copied < 1 << 20)
  }

  @Test("Tracks that lie one behind the other have a lane each")
  func apart() throws {
    var builder = FilmBuilder()
    for second in 0..<600 {
      let (time, start) = (Double(second), Int64(second) * 1_000_000)
      builder.add(lane: 0, from: time, to: time + 1, bytes: start, start + 1_000_000)
      builder.add(
        lane: 1, from: time, to: time + 1, bytes: 600_000_000 + start / 10, 600_000_000 + start / 10 + 100_000)
    }
    let index = try #require(builder.index(duration: 600, size: 660_000_000, isWhole: true))
    #expect(index.lanes.count == 2)
    #expect(index.bytes(ofSecond: 100) == 1_100_000)
    #expect(index.needed(at: 0) >= 600_000_000)
    #expect(abs(index.time(at: 300_000_000) - 300) < 1)
    #expect(abs(index.time(at: 630_000_000) - 300) < 1)
  }
}
