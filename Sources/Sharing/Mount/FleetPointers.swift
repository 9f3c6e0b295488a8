import Base
import Fetching
import Glibc
import Manifest
import Reading

/// What the fleet knows of entries: their pointers, read for files of which nothing is known here, and written when the
/// origin has told this node what a file is.
struct FleetPointers {
  enum State {
    case asking
    case told(SecondFacts, at: Instant)
  }

  /// What was asked of late.
  var known: [ResourceKey: State] = [:]
  /// What the origin told, in order, until it is written. One that is told again meanwhile is in it once.
  var waiting: [SecondFile] = []
  var waits: Set<ResourceKey> = []
  /// How many are being written.
  var writing = 0

  /// How long an answer counts, in seconds: as long as who asked needs to come back.
  static let fresh = 1.0
  /// How many are written at once, and how many wait at most: what is beyond that, another node tells.
  static let mostWriting = 8
  static let mostWaiting = 16_384
}

/// A pointer that is being written.
struct PointerWrite: Sendable {
  let file: SecondFile
  let entry: FleetID
  let id: FleetID
}

extension FleetMember {
  private func entry(_ key: ResourceKey) -> FleetID {
    setup.key.entry([key.high, key.low].flatMap(\.bigEndianBytes))
  }

  /// This moment by the store's clock.
  private var storeTime: Int64 { Int64(time(nil)) + start.clockAhead }

  package func facts(of key: ResourceKey, now: Instant) -> SecondFacts {
    switch phase {
    case .refused: return .none
    case .asking: return start.failures == 0 && now.seconds(since: begun) < Self.detection ? .wait : .none
    case .ready: break
    }
    guard breaker.isUp else { return .none }
    switch pointers.known[key] {
    case .asking: return .wait
    case .told(let facts, let at) where now.seconds(since: at) < FleetPointers.fresh: return facts
    case .told, nil:
      pointers.known[key] = .asking
      ask(.facts(key)) { .get($0, ObjectName.pointer(entry(key)).text, timeout: Self.detection) }
      return .wait
    }
  }

  func factsRead(_ outcome: StoreOutcome, _ key: ResourceKey) {
    heard(outcome)
    let now = Instant.now
    var facts = SecondFacts.none
    if case .found(let object) = outcome, let pointer = read(object.body, entry(key)) {
      let age = max(0, storeTime - pointer.checked)
      facts = .found(
        SecondFile(
          key: key, generation: 0, etag: pointer.validator, size: pointer.size, modified: pointer.modified,
          mediaType: pointer.type), checkedAt: now.adding(seconds: -Double(age)))
    }
    pointers.known[key] = .told(facts, at: now)
    hasChanged = true
    onChange(key)
  }

  /// A pointer that holds what it says; nil: none.
  private func read(_ bytes: [UInt8], _ entry: FleetID) -> Pointer? {
    do throws(ObjectRefusal) {
      let pointer = try Pointer(bytes)
      let id = setup.key.generation(of: entry, validator: pointer.validator, size: pointer.size)
      return id == pointer.generation ? pointer : nil
    } catch {
      Log.debug("a pointer of the fleet counts as absent: \(error)")
      return nil
    }
  }

  /// Forgets answers that are too old to count.
  func sweepPointers(_ now: Instant) {
    pointers.known = pointers.known.filter { _, state in
      if case .told(_, let at) = state { now.seconds(since: at) < FleetPointers.fresh } else { true }
    }
  }

  // MARK: Writing

  package func confirmed(_ file: SecondFile) {
    guard !setup.isReadOnly, case .ready = phase, breaker.isUp, pointers.waiting.count < FleetPointers.mostWaiting,
      pointers.waits.insert(file.key).inserted
    else { return }
    pointers.waiting.append(file)
    writeNext()
  }

  private func writeNext() {
    while pointers.writing < FleetPointers.mostWriting, !pointers.waiting.isEmpty {
      let file = pointers.waiting.removeFirst()
      pointers.waits.remove(file.key)
      let entry = entry(file.key)
      let write = PointerWrite(
        file: file, entry: entry,
        id: setup.key.generation(of: entry, validator: file.etag, size: file.size))
      pointers.writing += 1
      ask(.pointer(write)) { .get($0, ObjectName.pointer(entry).text, timeout: 5) }
    }
  }

  /// What the pointer says so far is known: it is written if it says something else, or was checked long ago.
  func pointerRead(_ outcome: StoreOutcome, _ write: PointerWrite) {
    heard(outcome, isTimed: false)
    switch outcome {
    case .absent:
      let head = GenerationHead(size: write.file.size, validator: write.file.etag, type: write.file.mediaType)
      ask(.head(write)) {
        .putIfAbsent($0, ObjectName.head(write.id).text, StoreBody(head.bytes), timeout: 10)
      }
    case .found(let object):
      let pointer = read(object.body, write.entry)
      if pointer?.generation == write.id, let pointer, storeTime - pointer.checked < Self.recheck { return written() }
      guard let etag = object.etag else { return written() }
      if pointer?.generation == write.id { return swap(write, etag) }
      let head = GenerationHead(size: write.file.size, validator: write.file.etag, type: write.file.mediaType)
      ask(.headOfNext(write, etag)) {
        .putIfAbsent($0, ObjectName.head(write.id).text, StoreBody(head.bytes), timeout: 10)
      }
    default: written()
    }
  }
  /// A pointer that was checked in the last so many seconds need not say so again.
  private static let recheck: Int64 = 10

  func headWritten(_ outcome: StoreOutcome, _ write: PointerWrite, replacing etag: String?) {
    heard(outcome, isTimed: false)
    switch outcome {
    case .written, .conflict: break
    default: return written()
    }
    if let etag { return swap(write, etag) }
    ask(.pointerWrite) {
      .putIfAbsent($0, ObjectName.pointer(write.entry).text, body(write), timeout: 10)
    }
  }

  private func swap(_ write: PointerWrite, _ etag: String) {
    ask(.pointerWrite) {
      .swap($0, ObjectName.pointer(write.entry).text, body(write), etag: etag, timeout: 10)
    }
  }

  private func body(_ write: PointerWrite) -> StoreBody {
    let file = write.file
    var pointer = Pointer(generation: write.id, size: file.size, validator: file.etag, checked: storeTime)
    (pointer.type, pointer.modified) = (file.mediaType, file.modified)
    return StoreBody(pointer.bytes)
  }

  /// One is over. Who lost a race leaves it to the winner: it heard from the origin at the same time.
  func written() {
    pointers.writing -= 1
    writeNext()
  }
}
