import Base
import Media

/// What was read of the indexes of files, by generation. In memory only: after a restart it is read again. Any thread
/// may ask; the one that asks reads, from stored bytes, without a lock.
final class FilmIndexes: Sendable {
  /// The most bytes of all of them together. Beyond that, those that were asked for least recently go.
  private static let most = 16 << 20
  /// How many ranges of bytes are remembered of an index: in a film of fragments it lies all over the file.
  private static let mostRanges = 4096

  private struct Entry {
    /// nil while a thread reads with it.
    var reader: FilmReader?
    var index: FilmIndex?
    var weight = 0
    /// The bytes that the index was read from.
    var bytes = ByteRangeSet()
    /// When it was asked for last, and its number: a generation that was forgotten may be here again.
    var used: UInt64
    let number: UInt64
  }

  private struct State {
    var entries: [Int64: Entry] = [:]
    var weight = 0
    var uses: UInt64 = 0

    mutating func remove(_ generation: Int64) {
      if let entry = entries.removeValue(forKey: generation) { weight -= entry.weight }
    }
  }

  private let state = Lock(State())

  /// The index of a generation as far as it was read. It is not read on.
  func known(of generation: Int64) -> FilmIndex? { state.withLock { $0.entries[generation]?.index } }

  /// What has to be stored so that the index of a generation can be read further. Empty: nobody has begun to read it,
  /// or it is read.
  func needs(of generation: Int64) -> [ByteRange] { state.withLock { $0.entries[generation]?.reader?.needs ?? [] } }

  /// The index of a generation, as far as its stored bytes tell; nil when they do not. Blocks for the disk.
  func index(of generation: Int64, _ bytes: StoredBytes) -> FilmIndex? {
    let (index, taken, number) = take(generation, bytes.stored)
    guard var reader = taken else { return index }
    var read = ByteRangeSet()
    reader.read(bytes.noting { if read.ranges.count < Self.mostRanges { read.insert($0) } })
    put(reader, generation, number, read)
    return reader.index
  }

  /// The same of a file in memory. Blocks for the disk.
  func index(of content: Content) -> FilmIndex? {
    let (id, size, stored) = content.guarded.withLock { ($0.held.generation?.id, $0.held.size, $0.held.stored) }
    guard let id, let size else { return nil }
    let bytes = StoredBytes(size: size, stored: stored) { buffer, offset in
      // Whoever asks counts no open: the file may be put away meanwhile, and then the keeper punches blocks out of it.
      content.fill(buffer, at: offset) == .whole && !content.guarded.withLock { $0.held.isPutAway }
    }
    return index(of: id, bytes)
  }

  /// The bytes that the index of a generation was read from, as far as it was.
  func bytes(of generation: Int64) -> ByteRangeSet {
    state.withLock { $0.entries[generation]?.bytes ?? ByteRangeSet() }
  }

  /// The bytes of a generation were removed, and may come back as others.
  func forget(_ generation: Int64) { state.withLock { $0.remove(generation) } }

  /// What is known, and the reader when it can get further.
  private func take(_ generation: Int64, _ stored: ByteRangeSet) -> (FilmIndex?, FilmReader?, UInt64) {
    state.withLock { state in
      state.uses += 1
      guard var entry = state.entries[generation] else {
        state.entries[generation] = Entry(used: state.uses, number: state.uses)
        return (nil, FilmReader(), state.uses)
      }
      entry.used = state.uses
      var reader: FilmReader?
      if entry.reader?.canGoOn(stored) == true { swap(&reader, &entry.reader) }
      state.entries[generation] = entry
      return (entry.index, reader, entry.number)
    }
  }

  private func put(_ reader: FilmReader, _ generation: Int64, _ number: UInt64, _ read: ByteRangeSet) {
    state.withLock { state in
      guard var entry = state.entries[generation], entry.number == number else { return }
      state.weight -= entry.weight
      if entry.bytes.ranges.count < Self.mostRanges { entry.bytes.formUnion(read) }
      (entry.reader, entry.index) = (reader, reader.index)
      entry.weight = reader.weight + entry.bytes.ranges.count * MemoryLayout<ByteRange>.size
      state.weight += entry.weight
      state.entries[generation] = entry
      while state.weight > Self.most,
        let oldest = state.entries.filter({ $0.key != generation }).min(by: { $0.value.used < $1.value.used })
      {
        state.remove(oldest.key)
      }
    }
  }
}
