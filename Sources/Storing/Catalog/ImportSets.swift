import Base

/// The ids that an import has seen, as bits in chunks: an eighth of a byte each, because ids are dense.
struct IDSet {
  /// A power of two. Ids are positive, but a damaged catalog may have others.
  private static let chunkBits: Int64 = 4096
  private var chunks: [Int64: [UInt64]] = [:]

  /// Inserts `id`; whether it was not in the set before.
  mutating func insert(_ id: Int64) -> Bool {
    let bit = UInt64(1) << UInt64(id & 63)
    return update(&chunks[Self.chunk(id), default: Self.empty][Self.word(id)], bit)
  }

  private static var empty: [UInt64] { Array(repeating: 0, count: Int(chunkBits / 64)) }

  private func update(_ word: inout UInt64, _ bit: UInt64) -> Bool {
    defer { word |= bit }
    return word & bit == 0
  }

  func contains(_ id: Int64) -> Bool {
    guard let chunk = chunks[Self.chunk(id)] else { return false }
    return chunk[Self.word(id)] & (1 << UInt64(id & 63)) != 0
  }

  /// Its ids that `other` does not have, in order.
  func subtracting(_ other: IDSet) -> [Int64] {
    var ids: [Int64] = []
    for (chunk, words) in chunks.sorted(by: { $0.key < $1.key }) {
      let others = other.chunks[chunk] ?? Self.empty
      for (index, word) in words.enumerated() {
        var rest = word & ~others[index]
        while rest != 0 {
          ids.append(chunk + Int64(index * 64 + rest.trailingZeroBitCount))
          rest &= rest - 1
        }
      }
    }
    return ids
  }

  private static func chunk(_ id: Int64) -> Int64 { id & ~(chunkBits - 1) }
  private static func word(_ id: Int64) -> Int { Int(id & (chunkBits - 1)) / 64 }
}

/// Distinguishes names that are certainly new from those that may have come before, without storing them: a Bloom
/// filter.
///
/// It has 8 MiB. The three bits of a name are in one cache line of the processor, because the load of that line is what
/// costs time. Of a million names, the filter takes fewer than one in five thousand for an old one by mistake; of ten
/// million, one in forty. Each mistake costs some index lookups.
struct NameFilter {
  private static let wordsOfLine: UInt64 = 8
  private static let lines: UInt64 = 1 << 17
  private var words = [UInt64](repeating: 0, count: Int(lines * wordsOfLine))

  /// Whether this name certainly did not come before in this folder.
  mutating func insert(_ name: UnsafeRawBufferPointer, in parent: Int64) -> Bool {
    let hash = Self.hash(name, UInt64(bitPattern: parent))
    let line = (hash % Self.lines) * Self.wordsOfLine
    var isNew = false
    var rest = hash / Self.lines
    for _ in 0..<3 {
      let bit = rest % 512
      rest /= 512
      let mask = UInt64(1) << (bit & 63)
      let index = Int(line + (bit >> 6))
      if words[index] & mask == 0 {
        isNew = true
        words[index] |= mask
      }
    }
    return isNew
  }

  /// Mixes eight bytes at a time with a wide multiplication (as wyhash does). Names made to collide only cost time.
  private static func hash(_ raw: UnsafeRawBufferPointer, _ seed: UInt64) -> UInt64 {
    var state = mix(seed &+ 0x9E37_79B9_7F4A_7C15, UInt64(raw.count) ^ 0xA076_1D64_78BD_642F)
    var offset = 0
    while offset + 8 <= raw.count {
      state = mix(state ^ raw.loadUnaligned(fromByteOffset: offset, as: UInt64.self), 0xE703_7ED1_A0B4_28DB)
      offset += 8
    }
    var tail: UInt64 = 0
    while offset < raw.count {
      tail = tail << 8 | UInt64(raw[offset])
      offset += 1
    }
    return mix(state ^ tail, 0x8EBC_6AF0_9C88_C6E3)
  }

  private static func mix(_ left: UInt64, _ right: UInt64) -> UInt64 {
    let product = left.multipliedFullWidth(by: right)
    return product.high ^ product.low
  }
}

/// The ids of recent folders, because most manifests are in folder order. The size is limited, so that a manifest may
/// have a million folders.
struct FolderCache {
  private static let limit = 8192
  /// Compares bytes: as Strings, names that differ only in their normalization are equal.
  private var ids: [[UInt8]: Int64] = [:]
  private var lastPath: [String] = []
  private var lastID = Int64(rootInode)

  mutating func find(_ path: [String]) -> Int64? {
    if path.isEmpty { return Int64(rootInode) }
    if path.elementsEqual(lastPath, by: { $0.utf8.elementsEqual($1.utf8) }) { return lastID }
    guard let known = find(path[...]) else { return nil }
    lastPath = path
    lastID = known
    return known
  }

  func find(_ path: ArraySlice<String>) -> Int64? { ids[Self.joined(path)] }

  mutating func insert(_ path: ArraySlice<String>, _ id: Int64) {
    // Clearing it is as good as dropping the oldest, if the lines of one folder are together.
    if ids.count >= Self.limit { ids.removeAll(keepingCapacity: true) }
    ids[Self.joined(path)] = id
  }

  private static func joined(_ path: ArraySlice<String>) -> [UInt8] {
    var bytes: [UInt8] = []
    for name in path {
      bytes += name.utf8
      bytes.append(UInt8(ascii: "/"))
    }
    return bytes
  }
}
