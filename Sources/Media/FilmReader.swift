import Base

/// Reads a file's own index from the bytes that are stored. It goes on where it stopped when more are: what it did is
/// linear in the bytes of the index. A value; it asks nobody for bytes.
package struct FilmReader: Sendable {
  private enum Format: Sendable {
    case unknown
    case mp4(MP4Reader)
    case matroska(MatroskaReader)
    case head(HeadReader)
    case none
  }

  private var format = Format.unknown
  /// What is known so far.
  package private(set) var index: FilmIndex?
  /// With any of these ranges stored it gets further. Empty: it is through.
  package private(set) var needs = [ByteRange(0, 0)]

  package init() {}

  /// Whether ``read(_:)`` would get further.
  package func canGoOn(_ stored: ByteRangeSet) -> Bool { needs.contains { stored.contains($0) } }

  /// About how many bytes of memory it takes.
  package var weight: Int {
    let kept = index.map { $0.lanes.count * $0.slots * 16 } ?? 0
    switch format {
    case .mp4(let reader): return 256 + kept + reader.weight
    case .matroska(let reader): return 256 + kept + reader.weight
    default: return 256 + kept
    }
  }

  /// Reads what is stored.
  package mutating func read(_ bytes: StoredBytes) {
    guard canGoOn(bytes.stored) else { return }
    needs = []
    do throws(IndexGap) {
      if case .unknown = format { format = try Self.format(bytes) }
    } catch {
      if case .missing(let range) = error { needs = [range] }
      return
    }
    switch format {
    case .mp4(var reader):
      format = .none  // so that the reader's arrays are not copied
      reader.read(bytes)
      (index, needs) = (reader.index ?? index, reader.needs)
      if !needs.isEmpty { format = .mp4(reader) }
    case .matroska(var reader):
      format = .none
      reader.read(bytes)
      (index, needs) = (reader.index ?? index, reader.needs)
      if !needs.isEmpty { format = .matroska(reader) }
    case .head(let reader):
      do throws(IndexGap) { index = try reader.read(bytes) } catch {
        if case .missing(let range) = error { needs = [range] }
      }
    case .unknown, .none: break
    }
  }

  /// The format by the first bytes.
  private static func format(_ bytes: StoredBytes) throws(IndexGap) -> Format {
    // Beyond 2^60 no sum of offsets would be safe.
    if bytes.size < 16 || bytes.size > 1 << 60 { return .none }
    var cursor = ByteCursor(bytes, piece: 64)
    let (first, second) = (try cursor.number(4, at: 0), try cursor.number(4, at: 4))
    if first == 0x1A45_DFA3 { return .matroska(MatroskaReader()) }
    if MP4Reader.begins(with: UInt32(second)) { return .mp4(MP4Reader()) }
    return HeadReader(first: UInt32(first), third: UInt32(try cursor.number(4, at: 8))).map(Format.head) ?? .none
  }
}
