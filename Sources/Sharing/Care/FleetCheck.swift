import Base
import Fetching

/// Reads what lies in a fleet's bucket, and says what is not as it was written. Blocks come in pieces: none is in
/// memory, and of a list a page at a time.
package final class FleetCheck: Sendable {
  /// What is wrong with an object.
  package struct Finding: Sendable, Equatable {
    package var key: String
    package var reason: String
    /// Whether it was removed; nil: it stays whatever was asked for, since another program or version wrote it.
    package var isRemoved: Bool?
  }

  package struct Sums: Sendable, Equatable {
    package var blocks: Int64 = 0
    package var objects: Int64 = 0
    package var bytes: Int64 = 0
    package var findings: Int64 = 0
  }

  /// What the blocks of one generation are compared with.
  private struct Expected: Sendable {
    var generation: FleetID
    var size: Int64?
    var done: DoneObject?
  }

  private static let timeout: Double = 60

  private let bucket: FleetBucket
  private let repairs: Bool
  private let found: @Sendable (Finding) -> Void
  private let progress: @Sendable (Sums) -> Void
  private let sums = Lock(Sums())

  /// - Parameters:
  ///   - repairs: whether wrong objects are removed, so that nodes store them anew.
  ///   - found, progress: called on any thread, by several at once.
  package init(
    _ bucket: FleetBucket, repairs: Bool, found: @escaping @Sendable (Finding) -> Void,
    progress: @escaping @Sendable (Sums) -> Void
  ) { (self.bucket, self.repairs, self.found, self.progress) = (bucket, repairs, found, progress) }

  package func run() throws(FleetCareError) -> Sums {
    var expected: Expected?
    var count: Int64 = 0
    func close() throws(FleetCareError) {
      if let expected { try compare(count, expected) }
    }
    try bucket.pages("mfs1/") { page throws(FleetCareError) in
      var blocks: [(StoreListing.Entry, Int, Expected)] = []
      var others: [StoreListing.Entry] = []
      for entry in page.entries {
        guard case .block(let id, let index)? = ObjectName(key: entry.key) else {
          others.append(entry)
          continue
        }
        if expected?.generation != id {
          try close()
          (expected, count) = (try facts(id), 0)
        }
        count += 1
        if let expected { blocks.append((entry, index, expected)) }
      }
      try bucket.each(blocks) { [self] entry, index, expected throws(FleetCareError) in
        try check(entry, index, expected)
      }
      try bucket.each(others) { [self] entry throws(FleetCareError) in try check(entry) }
    }
    try close()
    return sums.withLock { $0 }
  }

  /// What is known of a generation. Of a head or digests that cannot be read, their own check says so.
  private func facts(_ id: FleetID) throws(FleetCareError) -> Expected {
    let head = try bucket.object(.head(id)).flatMap { try? GenerationHead($0.body) }
    let done = try bucket.object(.done(id)).flatMap { try? DoneObject($0.body, of: id, key: bucket.key) }
    return Expected(generation: id, size: done?.size ?? head?.size, done: done)
  }

  /// Digests say that every block is there.
  private func compare(_ count: Int64, _ expected: Expected) throws(FleetCareError) {
    guard let done = expected.done, Int64(done.crc32c.count) != count else { return }
    let name = ObjectName.done(expected.generation)
    guard let object = try bucket.object(name) else { return }
    try tell(name.text, "it has the checksums of \(done.crc32c.count) blocks, and \(count) are there", object.etag)
  }

  // MARK: Blocks

  /// The checksums of a block whose bytes come in pieces of any length.
  private struct Digest: Sendable {
    var whole = CRC32C()
    var pieces: [UInt32] = []
    var length = 0
    private var piece = CRC32C()
    private var rest: Int
    private let size: Int

    init(piece: Int) { (size, rest) = (piece, piece) }

    mutating func add(_ bytes: UnsafeRawBufferPointer) {
      whole.add(bytes)
      length += bytes.count
      var left = bytes
      while !left.isEmpty {
        let part = min(rest, left.count)
        piece.add(UnsafeRawBufferPointer(rebasing: left[..<part]))
        left = UnsafeRawBufferPointer(rebasing: left[part...])
        rest -= part
        if rest == 0 { endPiece() }
      }
    }

    mutating func end() { if rest < size { endPiece() } }

    private mutating func endPiece() {
      pieces.append(piece.value)
      (piece, rest) = (CRC32C(), size)
    }
  }

  private func check(_ entry: StoreListing.Entry, _ index: Int, _ expected: Expected) throws(FleetCareError) {
    let digest = Lock(Digest(piece: bucket.format.block / PieceSums.count))
    let limit = bucket.format.block
    let request = StoreRequest.get(StoreCalls.anyID, entry.key, inPieces: true, timeout: Self.timeout)
    let outcome: StoreOutcome
    do throws(FleetCareError) {
      outcome = try bucket.ask(request) {
        digest.withLock { $0 = Digest(piece: limit / PieceSums.count) }
        return { bytes, _ in
          digest.withLock { digest in
            digest.add(bytes)
            return digest.length <= limit
          }
        }
      }
    } catch {
      if digest.withLock({ $0.length }) > limit {
        return try tell(entry.key, "it is longer than a block", entry.etag)
      }
      // One that cannot be read may be alone; or the store is gone.
      guard try bucket.exists(.format) else { throw error }
      return try tell(entry.key, "it cannot be read: \(error)", entry.etag)
    }
    var read = digest.withLock { $0 }
    read.end()
    sums.withLock { sums in
      sums.blocks += 1
      sums.bytes += Int64(read.length)
    }
    progress(sums.withLock { $0 })
    switch outcome {
    case .found(let object):
      if let reason = fault(of: object, read, index, expected) { try tell(entry.key, reason, object.etag) }
    case .rotten(let etag, let reason): try tell(entry.key, reason, etag)
    default: break  // a node or a rule removed it meanwhile
    }
  }

  /// Why readers refuse a block, or should; nil: it is what it says.
  private func fault(of object: StoredObject, _ read: Digest, _ index: Int, _ expected: Expected) -> String? {
    guard let label = object.meta["mfs"].flatMap({ BlockLabel($0) }) else {
      return "its metadata do not say which block it is"
    }
    if label.generation != expected.generation || label.index != index {
      return "it is the block \(label.index) of the generation \(label.generation)"
    }
    if label.length != read.length { return "it has \(read.length) bytes, and was \(label.length) long" }
    if label.crc32c != read.whole.value { return "its bytes are not those that were stored" }
    let piece = bucket.format.block / PieceSums.count
    guard let sums = object.meta["mfs-pieces"].flatMap({ PieceSums($0, length: read.length, piece: piece) }) else {
      return "its metadata lack the checksums of its pieces"
    }
    if sums.sums != read.pieces { return "the checksums of its pieces are not those of its bytes" }
    if let size = expected.size {
      let length = min(Int64(bucket.format.block), size - Int64(index) * Int64(bucket.format.block))
      if length != Int64(read.length) {
        return "it has \(read.length) bytes, and a file of \(size) bytes has \(max(0, length)) there"
      }
    }
    if let done = expected.done, index >= done.crc32c.count || done.crc32c[index] != read.whole.value {
      return "its checksum is not the one among its file's digests"
    }
    return nil
  }

  // MARK: Other objects

  private func check(_ entry: StoreListing.Entry) throws(FleetCareError) {
    sums.withLock { $0.objects += 1 }
    progress(sums.withLock { $0 })
    guard let name = ObjectName(key: entry.key) else {
      if ObjectName.kind(of: entry.key) == .conditions { return }
      return tell(Finding(key: entry.key, reason: "no mediafs of this version wrote it", isRemoved: nil))
    }
    switch name.kind {
    case .blocks, .format, .nodes, .seen: return  // the name says all that the object says
    default: break
    }
    if let limit = name.kind.limit, entry.size > limit {
      return try tell(entry.key, "it is longer than \(limit) bytes", entry.etag)
    }
    switch try bucket.ask(.get(StoreCalls.anyID, entry.key, timeout: Self.timeout)) {
    case .found(let object):
      sums.withLock { $0.bytes += Int64(object.body.count) }
      let reason: String?
      do throws(ObjectRefusal) { reason = try fault(of: name, object.body) } catch {
        switch error {
        case .damaged: reason = "\(error)"
        case .notOurs, .version, .otherKey:
          return tell(Finding(key: entry.key, reason: "\(error)", isRemoved: nil))
        }
      }
      if let reason { try tell(entry.key, reason, object.etag) }
    case .rotten(let etag, let reason): try tell(entry.key, reason, etag)
    default: break  // a node or a rule removed it meanwhile
    }
  }

  private func fault(of name: ObjectName, _ bytes: [UInt8]) throws(ObjectRefusal) -> String? {
    switch name {
    case .pointer(let entry):
      let pointer = try Pointer(bytes)
      let id = bucket.key.generation(of: entry, validator: pointer.validator, size: pointer.size)
      return id == pointer.generation ? nil : "its generation does not follow from its size and validator"
    case .head: _ = try GenerationHead(bytes)
    case .lease: _ = try Lease(bytes)
    case .claim: _ = try HelperClaim(bytes)
    case .probe(let id): _ = try ProbeSet(bytes, of: id, key: bucket.key)
    case .done(let id): _ = try DoneObject(bytes, of: id, key: bucket.key)
    case .format, .block, .seen, .node: break
    }
    return nil
  }

  // MARK: Findings

  private func tell(_ key: String, _ reason: String, _ etag: String?) throws(FleetCareError) {
    var finding = Finding(key: key, reason: reason, isRemoved: false)
    // Without an ETag it might be another one by now.
    if repairs, let etag { finding.isRemoved = try bucket.delete(key, ifMatch: etag) }
    tell(finding)
  }

  private func tell(_ finding: Finding) {
    sums.withLock { $0.findings += 1 }
    found(finding)
  }
}
