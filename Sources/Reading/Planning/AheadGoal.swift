import Base
import Media

/// What of a file is fetched before a program opens it, because the file before it is being played.
struct AheadWish: Equatable, Sendable {
  /// Why nothing of it is requested for now.
  enum Hold: Equatable, Sendable {
    /// The rest of a file that is open comes first, or a player is short of bytes.
    case line
    /// The store has too little space left.
    case space
  }
  /// The ranges, in the order in which they are fetched. They may overlap.
  var ranges: [ByteRange]
  var hold: Hold?

  /// How many bytes of it are missing.
  func missing(in stored: ByteRangeSet) -> Int64 {
    var wanted = ByteRangeSet()
    for range in ranges { wanted.insert(range) }
    return wanted.count - wanted.intersection(stored).count
  }
}

/// Computes the ranges of an ``AheadWish``. Pure.
enum AheadGoal {
  /// How many seconds of a file are fetched ahead.
  static let seconds = 20.0
  /// Assumed for a file of which neither the index nor a pace is known, in bytes a second: that of good music.
  static let unknownRate = 250_000.0
  /// An index that has more bytes than this is left to the reader.
  private static let largestIndex: Int64 = 8 << 20
  /// The most of the first seconds, in bytes: a duration may be false.
  private static let most: Int64 = 256 << 20

  /// The probe set, what its index needs, and the first seconds. `film`: the file's own index, when it is known;
  /// else `needs` is what is to be stored to get further with it. `rate`: at which the file before it plays.
  static func ranges(
    size: Int64, probes: ProbeSet, film: FilmIndex?, needs: [ByteRange], rate: Double?
  ) -> [ByteRange] {
    var ranges = [ByteRange(0, min(size, probes.head)), ByteRange(max(0, size - probes.tail), size)]
    if let film {
      let slot = film.slot(at: seconds)
      for lane in film.lanes {
        let start = max(0, min(lane.starts[0], lane.ends[slot]))
        ranges.append(ByteRange(start, start + min(lane.ends[slot] - start, most)))
      }
    } else {
      if let next = needs.first, next.end <= size, next.count <= largestIndex { ranges.append(next) }
      let bytes = Int64(min((rate ?? unknownRate) * seconds, Double(most)))
      ranges.append(ByteRange(0, min(size, probes.head + bytes)))
    }
    return ranges.compactMap { ByteRange(0, size).intersection($0) }
  }
}
