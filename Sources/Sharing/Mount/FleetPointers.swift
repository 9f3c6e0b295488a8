import Base
import Fetching
import Manifest
import Reading

/// What the fleet knows of entries: their pointers, read for files of which nothing is known here, and written when the
/// origin has told this node what a file is.
struct FleetPointers {
  enum State {
    case asking(since: Instant)
    /// Another node asks the origin: this one reads the pointer again soon (``FleetPointers/looks``).
    case waiting
    /// `isFinal`: it is new enough, or this node is to ask the origin.
    case told(SecondFacts, at: Instant, isFinal: Bool)
  }

  /// What was asked of late.
  var known: [ResourceKey: State] = [:]
  /// Those that are read again, and when: each waits for the same time, so the first one is the first that is due.
  var looks: [(key: ResourceKey, at: Instant)] = []
  /// Pointers that are too old: since when this node waits for others, and when it took the turn to ask.
  var stale: [ResourceKey: Instant] = [:]
  var turns: [ResourceKey: Instant] = [:]
  /// Those about which somebody here asks whether the file changed.
  var checks: Set<ResourceKey> = []
  /// What the origin told, in order, until it is written. One that is told again meanwhile is in it once.
  var waiting: [SecondFile] = []
  var waits: Set<ResourceKey> = []
  /// Those of which an earlier server heard: they are written only where there is none.
  var recalled: Set<ResourceKey> = []
  /// How many are being written.
  var writing = 0
  /// When the next ones may be written, and how long the store is left alone after one that failed, in seconds.
  var next = Instant(nanoseconds: 0)
  var pause = 0.0
  static let longestPause = 60.0

  /// How long an answer counts, in seconds: as long as who asked needs to come back.
  static let fresh = 1.0
  /// How long a node waits for the one that asks the origin, and from one look to the next, in seconds.
  static let patience = 2.0
  static let nextLook = 0.2
  /// How many seconds a pointer's time may be ahead of the store's clock: nodes know that clock to a second or so.
  static let mostAhead: Int64 = 60
  /// How many are written at once, and how many wait at most: what is beyond that, another node tells.
  static let mostWriting = 8
  static let mostWaiting = 16_384
}

/// A pointer that is being written.
struct PointerWrite: Sendable {
  let file: SecondFile
  let entry: FleetID
  let id: FleetID
  /// Whether an earlier server heard it: nobody knows when.
  let isRecalled: Bool
  /// When the member began with it, by the store's clock.
  let began: Int64
  /// Whether the pointer is read again, as the store refused the write.
  var isSecond = false
}

extension FleetMember {
  private func entry(_ key: ResourceKey) -> FleetID {
    setup.key.entry([key.high, key.low].flatMap(\.bigEndianBytes))
  }

  /// This moment by the store's clock.
  private var storeTime: Int64 { store.time }

  /// When a node last heard from the origin of a pointer, by the store's clock; 0: nobody knows. A time to come is that
  /// of a node whose clock was wrong: otherwise nobody would ask the origin until then.
  private func checked(_ pointer: Pointer) -> Int64 {
    pointer.checked > storeTime + FleetPointers.mostAhead ? 0 : pointer.checked
  }

  package func facts(of key: ResourceKey, isCheck: Bool, now: Instant) -> SecondFacts {
    switch phase {
    case .refused: return .none
    case .asking: return start.failures == 0 && now.seconds(since: begun) < TierBreaker.shortest ? .wait : .none
    case .ready: break
    }
    guard breaker.isUp else { return .none }
    if isCheck { pointers.checks.insert(key) }
    switch pointers.known[key] {
    case .asking(let since) where now.seconds(since: since) >= FleetPointers.patience: return .none
    case .asking, .waiting: return .wait
    case .told(let facts, let at, let isFinal)
    where now.seconds(since: at) < FleetPointers.fresh && (isFinal || !isCheck):
      return facts
    case .told, nil:
      readPointer(key)
      return .wait
    }
  }

  private func readPointer(_ key: ResourceKey) {
    pointers.known[key] = .asking(since: .now)
    ask(.facts(key)) { .get($0, ObjectName.pointer(entry(key)).text, timeout: answerTime) }
  }

  /// Reads the pointers again about which others ask the origin. Returns when the next is due.
  func readAgain(_ now: Instant) -> Instant {
    let due = pointers.looks.prefix { $0.at <= now }
    pointers.looks.removeFirst(due.count)
    for (key, _) in due { readPointer(key) }
    return pointers.looks.first?.at ?? .never
  }

  func factsRead(_ outcome: StoreOutcome, _ key: ResourceKey, after seconds: Double) {
    heard(outcome, after: seconds)
    let now = Instant.now
    var facts = SecondFacts.none
    var isFinal = true
    let isCheck = pointers.checks.remove(key) != nil
    if case .found(let object) = outcome, let pointer = read(object.body, entry(key)) {
      // A store may tell any time. Instants reach 292 years back.
      let age = min(max(0, storeTime - checked(pointer)), 1 << 32)
      facts = .found(
        SecondFile(
          key: key, generation: 0, etag: pointer.validator, size: pointer.size, modified: pointer.modified,
          mediaType: pointer.type), checkedAt: now.adding(seconds: -Double(age)))
      if Double(age) > max(setup.fresh, 1), let etag = object.etag {
        if isCheck, takesTurn(key, pointer, etag, facts, now) { return }
        isFinal = isCheck
      } else {
        (pointers.stale[key], pointers.turns[key]) = (nil, nil)
      }
    }
    pointers.known[key] = .told(facts, at: now, isFinal: isFinal)
    hasChanged = true
    onChange(key)
  }

  /// Of the nodes that find a pointer too old, one asks the origin, and the others see what it heard. Whether this one
  /// has to wait: for the answer whether it is the one, or for another.
  private func takesTurn(
    _ key: ResourceKey, _ pointer: Pointer, _ etag: String, _ facts: SecondFacts, _ now: Instant
  ) -> Bool {
    guard !setup.isReadOnly, fleet.identity.hasLeases, fleet.nodes.count > 1 else { return false }
    let since = pointers.stale[key] ?? now
    if pointers.stale[key] == nil { pointers.stale[key] = now }
    // It is this node's turn already, or it has waited for long enough.
    if pointers.turns[key].map({ now.seconds(since: $0) < 5 }) == true { return false }
    guard now.seconds(since: since) < FleetPointers.patience else {
      pointers.stale[key] = nil
      return false
    }
    if let asked = pointer.asked, abs(storeTime - asked) <= Int64(FleetPointers.patience) {
      look(again: key, now)
      return true
    }
    var mine = pointer
    mine.asked = storeTime
    let body = StoreBody(mine.bytes)
    ask(.turn(key, facts)) {
      .swap($0, ObjectName.pointer(entry(key)).text, body, etag: etag, timeout: 0.5)
    }
    return true
  }

  private func look(again key: ResourceKey, _ now: Instant) {
    pointers.known[key] = .waiting
    pointers.looks.append((key, now.adding(seconds: FleetPointers.nextLook)))
    pointers.checks.insert(key)
  }

  /// Who changed the pointer asks the origin; who could not, looks what it says now.
  func turnTaken(_ outcome: StoreOutcome, _ key: ResourceKey, _ facts: SecondFacts) {
    heard(outcome, isTimed: false)
    let now = Instant.now
    switch outcome {
    case .conflict, .absent: return look(again: key, now)
    default: pointers.turns[key] = now
    }
    pointers.known[key] = .told(facts, at: now, isFinal: true)
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
      if case .told(_, let at, _) = state { now.seconds(since: at) < FleetPointers.fresh } else { true }
    }
    pointers.stale = pointers.stale.filter { now.seconds(since: $0.value) < 2 * FleetPointers.patience }
    pointers.turns = pointers.turns.filter { now.seconds(since: $0.value) < 10 }
  }

  // MARK: Writing

  package func confirmed(_ file: SecondFile) {
    if setup.isReadOnly { return }
    if case .refused = phase { return }
    pointers.recalled.remove(file.key)
    wait(file)
    _ = writePointers(.now)
  }

  /// An earlier server has stored something of the file here, and may not have told the others what it is.
  func recall(_ file: SecondFile) {
    if pointers.waits.contains(file.key) { return }
    pointers.recalled.insert(file.key)
    wait(file)
  }

  private func wait(_ file: SecondFile) {
    if pointers.waits.contains(file.key) {
      pointers.waiting.removeAll { $0.key == file.key }
    } else if pointers.waiting.count >= FleetPointers.mostWaiting {
      return
    }
    pointers.waits.insert(file.key)
    pointers.waiting.append(file)
  }

  /// Writes the pointers that wait, the first ones first. Returns when the next ones may be.
  func writePointers(_ now: Instant) -> Instant {
    guard case .ready = phase, !pointers.waiting.isEmpty else { return .never }
    guard pointers.next <= now else { return pointers.next }
    // A store that does not answer is tried with one.
    let most = pointers.pause > 0 || !breaker.isUp ? 1 : FleetPointers.mostWriting
    while pointers.writing < most, !pointers.waiting.isEmpty {
      let file = pointers.waiting.removeFirst()
      pointers.waits.remove(file.key)
      let entry = entry(file.key)
      let write = PointerWrite(
        file: file, entry: entry,
        id: setup.key.generation(of: entry, validator: file.etag, size: file.size),
        isRecalled: pointers.recalled.remove(file.key) != nil, began: storeTime)
      pointers.writing += 1
      ask(.pointer(write)) { .get($0, ObjectName.pointer(entry).text, timeout: 5) }
    }
    return .never
  }

  /// What the pointer says so far is known: it is written if it says something else, or was checked long ago.
  func pointerRead(_ outcome: StoreOutcome, _ write: PointerWrite) {
    heard(outcome, isTimed: false, isTrial: pointers.pause > 0)
    switch outcome {
    case .absent:
      let head = GenerationHead(size: write.file.size, validator: write.file.etag, type: write.file.mediaType)
      ask(.head(write)) {
        .putIfAbsent($0, ObjectName.head(write.id).text, StoreBody(head.bytes), timeout: 10)
      }
    case .found where write.isRecalled: over(write)
    case .found(let object):
      let pointer = read(object.body, write.entry)
      // Who won the race heard from the origin at the same time.
      if write.isSecond, let pointer, checked(pointer) >= write.began { return over(write) }
      if pointer?.generation == write.id, let pointer, storeTime - checked(pointer) < Self.recheck {
        return over(write)
      }
      // What another version wrote stays.
      guard let etag = object.etag, !Pointer.isOfAnotherVersion(object.body) else { return over(write) }
      if pointer?.generation == write.id { return swap(write, etag) }
      let head = GenerationHead(size: write.file.size, validator: write.file.etag, type: write.file.mediaType)
      ask(.headOfNext(write, etag)) {
        .putIfAbsent($0, ObjectName.head(write.id).text, StoreBody(head.bytes), timeout: 10)
      }
    default: over(write, isWritten: false)
    }
  }
  /// A pointer that was checked in the last so many seconds need not say so again.
  private static let recheck: Int64 = 10

  func headWritten(_ outcome: StoreOutcome, _ write: PointerWrite, replacing etag: String?) {
    heard(outcome, isTimed: false, isTrial: pointers.pause > 0)
    switch outcome {
    case .written, .conflict: break
    default: return over(write, isWritten: false)
    }
    if let etag { return swap(write, etag) }
    ask(.pointerWrite(write)) {
      .putIfAbsent($0, ObjectName.pointer(write.entry).text, body(write), timeout: 10)
    }
  }

  private func swap(_ write: PointerWrite, _ etag: String) {
    ask(.pointerWrite(write)) {
      .swap($0, ObjectName.pointer(write.entry).text, body(write), etag: etag, timeout: 10)
    }
  }

  private func body(_ write: PointerWrite) -> StoreBody {
    let file = write.file
    let checked = write.isRecalled ? 0 : storeTime
    var pointer = Pointer(generation: write.id, size: file.size, validator: file.etag, checked: checked)
    (pointer.type, pointer.modified) = (file.mediaType, file.modified)
    return StoreBody(pointer.bytes)
  }

  /// After a refusal the pointer is read once more: a store may refuse a write although nobody was faster.
  func pointerWritten(_ outcome: StoreOutcome, _ write: PointerWrite) {
    heard(outcome, isTimed: false, isTrial: pointers.pause > 0)
    switch outcome {
    case .written: over(write)
    case .conflict where write.isSecond: over(write)
    case .conflict:
      var second = write
      second.isSecond = true
      ask(.pointer(second)) { .get($0, ObjectName.pointer(write.entry).text, timeout: 5) }
    default: over(write, isWritten: false)
    }
  }

  /// One is over. What the store did not take is written later.
  private func over(_ write: PointerWrite, isWritten: Bool = true) {
    pointers.writing -= 1
    if isWritten {
      pointers.pause = 0
    } else {
      pointers.pause = min(max(2 * pointers.pause, 1), FleetPointers.longestPause)
      pointers.next = Instant.now.adding(seconds: pointers.pause)
      if !pointers.waits.contains(write.file.key) {
        if write.isRecalled { pointers.recalled.insert(write.file.key) }
        wait(write.file)
      }
    }
    _ = writePointers(.now)
  }
}
