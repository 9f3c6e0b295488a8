import Base
import Manifest
import Reading

/// What a file's digests in the store are known to be.
enum KnownDigests {
  /// A block that was read before the digests were known.
  struct Block {
    let index: Int, crc32c: UInt32, etag: String?
  }

  /// Nobody asked yet.
  case unknown
  case asking([Block], since: Instant)
  case absent
  case found(DoneObject, etag: String?)
  /// Blocks that were read from the store are not those of the digests.
  case wrong
}

/// Digests: who completes a file of which every block is in the store notes the checksums of all of them, and the
/// SHA-256 that the list has. Who reads blocks from the store compares.
extension FleetMember {
  // MARK: Reading

  /// How long a complete file waits for its digests, in seconds.
  private static let patience = 5.0

  /// Asks for the digests of a file of which a block is about to be read from the store.
  func askForDigests(of file: SharedFile) {
    guard case .unknown = file.digests else { return }
    file.digests = .asking([], since: .now)
    ask(.digests(file)) { .get($0, ObjectName.done(file.id).text, timeout: 5) }
  }

  func digestsRead(_ outcome: StoreOutcome, _ file: SharedFile) {
    heard(outcome, isTimed: false)
    guard case .asking(let blocks, _) = file.digests else { return }
    file.digests = .absent
    defer { changed(file) }
    guard case .found(let object) = outcome else { return }
    let done: DoneObject
    do throws(ObjectRefusal) {
      done = try DoneObject(object.body, of: file.id, key: setup.key)
      guard done.size == file.size, done.crc32c.count == file.blocks else { throw .damaged("size") }
    } catch {
      Log.debug("digests of the fleet count as absent: \(error)")
      return
    }
    file.digests = .found(done, etag: object.etag)
    let wrong = blocks.filter { !allows($0.crc32c, at: $0.index, of: file, $0.etag) }
    if wrong.isEmpty { return }
    // Their bytes are here already: the file does not become complete with them.
    file.digests = .wrong
    Log.warning("blocks of the fleet's store are not those of their file's digests: both are removed")
    for block in wrong { remove(.block(file.id, block.index), block.etag) }
  }

  /// Whether a block with that checksum may be the file's. If not, the digests are removed too, and count no more:
  /// nothing says which of them is wrong.
  func allows(_ crc32c: UInt32, at block: Int, of file: SharedFile, _ etag: String?) -> Bool {
    switch file.digests {
    case .asking(let blocks, let since):
      file.digests = .asking(blocks + [.init(index: block, crc32c: crc32c, etag: etag)], since: since)
    case .found(let done, let etag) where done.crc32c[block] != crc32c:
      file.sums[block] = nil
      file.digests = .absent
      remove(.done(file.id), etag)
      return false
    case .found, .unknown, .absent, .wrong: break
    }
    file.sums[block] = crc32c
    return true
  }

  /// Removes an object while it is the one that was read.
  private func remove(_ name: ObjectName, _ etag: String?) {
    guard !setup.isReadOnly, let etag else { return }
    ask(.removal) { .delete($0, name.text, ifMatch: etag, timeout: 5) }
  }

  package func digest(of generation: Int64) -> SecondDigest {
    guard let file = files[generation] else { return .none }
    switch file.digests {
    // A store that is away, or late, holds up no file.
    case .asking(_, let since):
      guard breaker.isUp, Instant.now.seconds(since: since) < Self.patience else { return .none }
      digestWaits[generation] = since.adding(seconds: Self.patience)
      return .wait
    case .found(let done, _): return done.sha256.map { .sha256(Self.checksum($0)) } ?? .none
    case .wrong: return .differs
    case .unknown, .absent: return .none
    }
  }

  /// Has complete files planned anew whose digests are late: Reading goes on without them. Returns when the next are.
  func endDigestWaits(_ now: Instant) -> Instant {
    for (generation, until) in digestWaits where until <= now {
      digestWaits[generation] = nil
      if let file = files[generation] { changed(file) }
    }
    return digestWaits.values.min() ?? .never
  }

  /// 64 digits as a digest.
  private static func checksum(_ digits: String) -> Checksum {
    let words = stride(from: 0, to: 64, by: 16).map { UInt64(hex: digits.dropFirst($0).prefix(16), digits: 16) ?? 0 }
    return Checksum(algorithm: .sha256, digest: words.flatMap(\.bigEndianBytes))
  }

  // MARK: Writing

  /// Has the digests of a file written once it is complete here, and each of its blocks was seen in the store. Nodes
  /// that complete it at one moment do not write them at one moment.
  func offerDigests(of file: SharedFile) {
    guard !setup.isReadOnly, file.isComplete, file.ending == nil, !file.hasOfferedDigests,
      file.sums.count == file.blocks
    else { return }
    if case .found = file.digests { return }
    file.hasOfferedDigests = true
    let spread = Double(fleet.identity.node >> 10 % 1024) / 1024 * Double(min(fleet.nodes.count - 1, 8))
    digestsDue.append((Instant.now.adding(seconds: spread), file))
  }

  /// Looks whether another node has written those that are due. Returns when the next are.
  func writeDigests(_ now: Instant) -> Instant {
    let due = digestsDue.filter { $0.at <= now }
    digestsDue.removeAll { $0.at <= now }
    for (_, file) in due { ask(.digestsDue(file)) { .head($0, ObjectName.done(file.id).text, timeout: 5) } }
    return digestsDue.map(\.at).min() ?? .never
  }

  /// What fails here, the next node that completes the file does.
  func digestsSought(_ outcome: StoreOutcome, _ file: SharedFile) {
    heard(outcome, isTimed: false)
    guard case .absent = outcome, file.sums.count == file.blocks else { return }
    let sums = file.sums.sorted { $0.key < $1.key }.map(\.value)
    let done = DoneObject(size: file.size, crc32c: sums, sha256: file.sha256.map { hexadecimal($0.digest) })
    guard let bytes = done.bytes(of: file.id, key: setup.key) else { return }
    ask(.digestsWrite) { .putIfAbsent($0, ObjectName.done(file.id).text, StoreBody(bytes), timeout: 10) }
  }
}
