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

  /// An element of EBML.
  private func element(_ id: [UInt8], _ contents: [UInt8]) -> [UInt8] {
    id + [0x10 | UInt8(contents.count >> 24 & 0xF)] + [16, 8, 0].map { UInt8(contents.count >> $0 & 0xFF) } + contents
  }

  /// A Matroska file of a minute with one cue, of `place`, in Cues that a seek head leads to.
  private func matroska(cueAt place: [UInt8], duration: [UInt8] = [0x47, 0x6A, 0x60, 0]) -> [UInt8] {
    let info = element([0x15, 0x49, 0xA9, 0x66], element([0x44, 0x89], duration))
    let point = element([0xB3], [0]) + element([0xB7], element([0xF1], place))
    let cues = element([0x1C, 0x53, 0xBB, 0x6B], element([0xBB], point))
    let cluster = element([0x1F, 0x43, 0xB6, 0x75], element([0xE7], [0]) + [UInt8](repeating: 0xEC, count: 100))
    return element([0x1A, 0x45, 0xDF, 0xA3], []) + element([0x18, 0x53, 0x80, 0x67], info + cues + cluster)
  }

  @Test("A cue that lies behind every file is left out")
  func cueBehindTheEnd() throws {
    for place in [[UInt8](repeating: 0xFF, count: 8), [0x7F] + [UInt8](repeating: 0xFF, count: 7), [0xFF, 0xFF, 0xFF]] {
      let bytes = matroska(cueAt: place)
      let (reader, _) = read(bytes, size: Int64(bytes.count))
      #expect(reader.index.map { $0.lanes.allSatisfy { $0.ends.allSatisfy { $0 <= bytes.count } } } ?? true)
    }
    let bytes = matroska(cueAt: [40])
    #expect(read(bytes, size: Int64(bytes.count)).0.index?.duration == 60)
  }

  @Test("Cues of no use are read once, and the clusters tell what they can")
  func uselessCues() throws {
    let bytes = matroska(cueAt: [UInt8](repeating: 0xFF, count: 8))
    let (reader, copied) = read(bytes, size: Int64(bytes.count))
    #expect(reader.index?.duration == 60 && copied < 64 << 10, "\(copied) bytes were read of \(bytes.count)")
    // The same without a duration.
    let (none, more) = read(matroska(cueAt: [40], duration: [0, 0, 0, 0]), size: Int64(bytes.count))
    #expect(none.index == nil && more < 64 << 10, "\(more)")
  }

  @Test("An index of more than 64 MiB is not read: whoever asks waits for the reading")
  func largeIndex() {
    let bytes = MovieHead.bytes([MovieHead.Track(sizes: [1], offsets: [1000])])
    // moov claims to be larger, and is stored.
    for (size, isRead) in [(60 << 20, true), (70 << 20, false)] {
      var large = bytes + [UInt8](repeating: 0, count: size - bytes.count)
      let length = UInt32(size - 16)
      large.replaceSubrange(16..<20, with: [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: length >> $0) })
      // What follows the tables is one box.
      let rest = UInt32(size - bytes.count)
      large.replaceSubrange(
        bytes.count..<bytes.count + 8,
        with: [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: rest >> $0) } + Array("free".utf8))
      #expect((read(large, size: Int64(size)).0.index != nil) == isRead, "\(size)")
    }
  }
}
