/// The head of an MP4 file that a test makes up: ftyp and moov, with one sample for each second.
package enum MovieHead {
  /// One track: sample n plays in second n.
  package struct Track: Sendable {
    /// The size of each sample.
    var sizes: [Int]
    /// Where each lies.
    var offsets: [Int64]
    /// What of it is played, in seconds, part by part; empty: all of it.
    var edits: [(start: Int, length: Int)]
    /// How many samples lie one behind the other at each offset.
    package var samplesOfAChunk = 1

    package init(sizes: [Int], offsets: [Int64], edits: [(start: Int, length: Int)] = []) {
      self.sizes = sizes
      self.offsets = offsets
      self.edits = edits
    }

    fileprivate var samples: Int { offsets.count * samplesOfAChunk }
    fileprivate var seconds: Int { edits.isEmpty ? samples : edits.reduce(0) { $0 + $1.length } }
  }

  /// The bytes of the head.
  package static func bytes(_ tracks: [Track]) -> [UInt8] {
    let duration = UInt64(tracks.map(\.seconds).max() ?? 0)
    let movie = box("mvhd", number(0, 12) + number(1, 4) + number(duration, 4))
    return box("ftyp", Array("isom".utf8) + number(0, 4))
      + box("moov", movie + tracks.enumerated().flatMap { box(of: $1, id: UInt64($0 + 1)) })
  }

  private static func box(of track: Track, id: UInt64) -> [UInt8] {
    let (count, samples) = (UInt64(track.offsets.count), UInt64(track.samples))
    let times = box("stts", number(0, 4) + number(1, 4) + number(samples, 4) + number(1, 4))
    let each = number(UInt64(track.samplesOfAChunk), 4)
    let chunks = box("stsc", number(0, 4) + number(1, 4) + number(1, 4) + each + number(1, 4))
    let sizes = box(
      "stsz", number(0, 8) + number(UInt64(track.sizes.count), 4) + track.sizes.flatMap { number(UInt64($0), 4) })
    let offsets = box(
      "co64", number(0, 4) + number(count, 4) + track.offsets.flatMap { number(UInt64($0), 8) })
    let media = box("mdhd", number(0, 12) + number(1, 4) + number(samples, 4) + number(0, 4))
    let kind = box("hdlr", number(0, 8) + Array("vide".utf8) + number(0, 12))
    let table = box("minf", box("stbl", times + chunks + offsets + sizes))
    let list = track.edits.flatMap { edit in
      number(UInt64(edit.length), 4) + number(UInt64(edit.start), 4) + number(1 << 16, 4)
    }
    let edits =
      track.edits.isEmpty ? [] : box("edts", box("elst", number(0, 4) + number(UInt64(track.edits.count), 4) + list))
    let head = box("tkhd", number(0, 12) + number(id, 4) + number(0, 64))
    return box("trak", head + edits + box("mdia", media + kind + table))
  }

  private static func box(_ type: String, _ contents: [UInt8]) -> [UInt8] {
    number(UInt64(contents.count + 8), 4) + Array(type.utf8) + contents
  }

  private static func number(_ value: UInt64, _ count: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: value >> UInt64(8 * (count - 1 - $0))) }
  }
}
