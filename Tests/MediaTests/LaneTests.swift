import Base
import TestSupport
import Testing

@testable import Media

/// Films of several tracks, and those of which an edit list leaves parts out: each byte is needed once, when it plays.
@Suite struct LaneTests {
  private static let size: Int64 = 1 << 30

  /// A second of pictures and one of sound take turns in the file. The sound plays in some seconds.
  private func interleaved(sound: Range<Int>, of seconds: Int) throws -> FilmIndex {
    var builder = FilmBuilder()
    var place: Int64 = 0
    for second in 0..<seconds {
      for (lane, bytes) in [(0, 900_000), (1, sound.contains(second) ? 100_000 : 0)] as [(Int, Int64)] {
        builder.add(
          lane: lane, from: Double(second), to: Double(second + 1), bytes: place, place + bytes)
        place += bytes
      }
    }
    return try #require(builder.index(duration: Double(seconds), size: place, isWhole: true))
  }

  private func missing(_ index: FilmIndex, rate: Double) -> FilmForecast.Verdict {
    FilmForecast(index: index, stored: ByteRangeSet(), supply: FilmSupply(rate: rate)).verdict(from: 0)
  }

  @Test("Sound that ends before the pictures, or begins after them, counts once", arguments: [0..<300, 300..<600])
  func partOfTheTime(sound: Range<Int>) throws {
    let index = try interleaved(sound: sound, of: 600)
    #expect(index.lanes.count == 1)
    #expect(missing(index, rate: 1_050_000).playsThrough)
    for second in [0, 100, 299, 300, 301, 599] {
      let expected: Int64 = 900_000 + (sound.contains(second) ? 100_000 : 0)
      #expect(abs(index.bytes(ofSecond: second) - expected) <= 100_000, "second \(second)")
    }
  }

  @Test("Sound behind all pictures that begins a little later needs none of them at its start")
  func apart() throws {
    var builder = FilmBuilder()
    for second in 0..<600 {
      let time = Double(second)
      let (picture, sound) = (Int64(second) * 900_000, 540_000_000 + Int64(second) * 100_000)
      builder.add(lane: 0, from: time, to: time + 1, bytes: picture, picture + 900_000)
      builder.add(lane: 1, from: time + 0.3, to: time + 1.3, bytes: sound, sound + 100_000)
    }
    let index = try #require(builder.index(duration: 601, size: 600_000_000, isWhole: true))
    #expect(index.lanes.count == 2)
    #expect(missing(index, rate: 1_050_000).playsThrough)
    #expect(missing(index, rate: 950_000).stallsAt != nil)
  }

  @Test("Tracks that lie in one another, far apart in time, count once where they overlap")
  func overlapping() throws {
    var builder = FilmBuilder()
    for second in 0..<600 {
      let (time, start) = (Double(second), Int64(second) * 1_000_000)
      builder.add(lane: 0, from: time, to: time + 1, bytes: start, start + 1_000_000)
      // Its bytes lie between those of the first, a hundred seconds before they are played.
      let other = max(0, start - 100_000_000)
      builder.add(lane: 1, from: time, to: time + 1, bytes: other, other + 1_000_000)
    }
    let index = try #require(builder.index(duration: 600, size: 600_000_000, isWhole: true))
    #expect(index.lanes.count == 2)
    #expect(missing(index, rate: 1_010_000).playsThrough)
  }

  private func index(of track: MovieHead.Track) throws -> FilmIndex {
    let bytes = MovieHead.bytes([track])
    var reader = FilmReader()
    reader.read(
      StoredBytes(size: Self.size, stored: ByteRangeSet(ByteRange(0, Int64(bytes.count)))) { buffer, offset in
        buffer.copyBytes(from: bytes[Int(offset)..<Int(offset) + buffer.count])
        return true
      })
    return try #require(reader.index)
  }

  @Test("Edits that play a part of a film from before the first one leave nothing out; the whole plays as long as they")
  func severalEdits() throws {
    let offsets = (0..<600).map { 100_000 + Int64($0) * 1_000_000 }
    let sizes = [Int](repeating: 1_000_000, count: 600)
    let index = try index(of: MovieHead.Track(sizes: sizes, offsets: offsets, edits: [(300, 10), (0, 10)]))
    #expect(index.duration == 20)
    #expect(index.lanes.first?.starts.first == offsets[0])
    #expect(!FilmForecast(index: index, stored: ByteRangeSet(), supply: nil).verdict(from: 0).playsThrough)
  }

  @Test("An edit ends within a chunk too")
  func editWithinAChunk() throws {
    // All of a minute in one chunk.
    var track = MovieHead.Track(sizes: [Int](repeating: 10_000, count: 60), offsets: [100_000], edits: [(0, 10)])
    track.samplesOfAChunk = 60
    let index = try index(of: track)
    #expect(index.duration == 10)
    #expect(try #require(index.lanes.first?.ends.last) == 200_000)
  }

  @Test("What an edit list leaves out before and behind a film is not needed")
  func edits() throws {
    let offsets = (0..<1000).map { 100_000 + Int64($0) * 1_000_000 }
    let sizes = [Int](repeating: 1_000_000, count: 1000)
    let index = try index(of: MovieHead.Track(sizes: sizes, offsets: offsets, edits: [(300, 10)]))
    #expect(index.duration == 10)
    let lane = try #require(index.lanes.first)
    let (first, last) = (try #require(lane.starts.first), try #require(lane.ends.last))
    #expect(first >= offsets[289] && first <= offsets[300], "a group of pictures before the edit at most")
    #expect(last >= offsets[310] && last <= offsets[312])
    let stored = ByteRangeSet(ByteRange(offsets[289], offsets[312]))
    #expect(FilmForecast(index: index, stored: stored, supply: nil).verdict(from: 0).playsThrough)
  }
}
