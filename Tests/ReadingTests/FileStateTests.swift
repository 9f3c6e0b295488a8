import Base
import Glibc
import Manifest
import Storing
import TestSupport
import Testing

@testable import Reading

extension GenerationRecord {
  /// A generation of `size` bytes, of which nothing is stored.
  static func of(_ size: Int64?) -> GenerationRecord {
    let validators = Validators(etag: "\"1\"")
    return GenerationRecord(
      id: 7, key: ResourceKey(high: 1, low: 1), validators: validators, size: size, mediaType: nil)
  }
}

extension ServedFile {
  /// A file that is told from others, and never read.
  static var untouched: ServedFile {
    guard let null = try? FileDescriptor.open("/dev/null", O_RDONLY) else { preconditionFailure("no /dev/null") }
    return ServedFile(copy: null)
  }
}

/// What is held of a file: the table above ``FileState`` holds for each state and event, and no sequence of events
/// leads to an illegal state.
@Suite struct FileStateTests {
  /// The events of the table.
  enum Event: String, CaseIterable {
    case identified, landed, snapshot, synced, committed, syncFailed, withdrawn, becameWhole, taken, released, rejected
    case placed, copyChanged, frozen, dropped, evicted, thawed, putAway, superseded
    case reopened
    // Of the length, the wish, the origin, a program and the bytes in memory.
    case grow, ended, continues, pinned, checked, used, kept, shrankMemory, emptiedMemory
  }

  /// A file that lives through events as the room sends them.
  struct Life {
    static let size: Int64 = 4 << 16
    let now = Instant(nanoseconds: 5_000_000_000)
    var held = FileState()
    var snapshot: FileState.Snapshot?

    private var copy: LibraryCopy {
      LibraryCopy(path: "a", size: Self.size, modified: 1, changed: 1, device: 1, inode: 1)
    }

    /// Sends `event`; `amount` chooses its details.
    mutating func send(_ event: Event, _ amount: Int = 0) {
      switch event {
      case .identified: _ = held.identified(.of(Self.size), file: .untouched)
      case .landed:
        let range = ByteRange(at: Int64(amount % 4) << 16, count: 1 << 16)
        if let file = held.file { _ = held.landed(range, in: file, now: now) }
      case .snapshot: snapshot = held.snapshot(isNoted: held.claim == .behind || held.claim == .committingBehind)
      case .synced: if let snapshot { held.synced(snapshot, now: now) }
      case .committed: held.committed()
      case .syncFailed:
        if let file = held.file { _ = held.syncFailed(file, reopened: amount % 3 == 0 ? nil : .untouched) }
      case .withdrawn: _ = held.withdrawn()
      case .becameWhole: _ = held.becameWhole()
      case .taken: _ = held.taken()
      case .released: held.released()
      case .rejected: held.rejected()
      case .placed: if let file = held.file { _ = held.placed(copy, from: file, as: .untouched) }
      case .copyChanged: _ = held.copyChanged(isModified: amount % 2 == 0, file: .untouched)
      case .frozen: _ = held.frozen()
      case .dropped:
        if held.dropped() != nil { held.serves(.untouched) }
      case .evicted: _ = held.evicted(ByteRangeSet(ByteRange(0, 1 << 16)), file: .untouched)
      case .thawed: held.thawed()
      case .putAway: _ = held.putAway()
      case .superseded: held.superseded()
      case .reopened: _ = held.reopened(.untouched)
      case .grow: held.grow(to: Int64(amount) << 16)
      case .ended: _ = held.ended(at: Self.size)
      case .continues: _ = held.continues(amount % 2 == 1)
      case .pinned: _ = held.pinned(amount % 2 == 1)
      case .checked: held.checked(at: now)
      case .used: held.used()
      case .kept:
        let bytes = [UInt8](repeating: 1, count: 1 << 10)
        bytes.withUnsafeBytes { _ = held.kept($0, at: Int64(amount) << 10, most: 1 << 20, waited: []) }
      case .shrankMemory: _ = held.shrankMemory(to: 0, waited: [])
      case .emptiedMemory: _ = held.emptiedMemory()
      }
    }

    /// What an event may change, for comparing.
    var description: String {
      let file = held.file.map { ObjectIdentifier($0).debugDescription } ?? "none"
      return "\(held.holding) \(held.claim) \(held.removal) \(held.isSuperseded) \(held.stored) \(held.synced) \(file)"
    }
  }

  /// The events of the length, the wish, the origin, a program and the bytes in memory, which every state takes.
  static let ofEveryState: Set<Event> = [
    .grow, .ended, .continues, .pinned, .checked, .used, .kept, .shrankMemory, .emptiedMemory,
  ]

  /// The states that the table names, each with the events that lead to it.
  static let states: [(name: String, events: [Event])] = {
    let whole: [Event] = [.identified, .landed, .landed, .landed, .landed]
    let copy = whole + [.becameWhole, .taken, .placed]
    let told: [Event] = [.snapshot, .synced, .committed]
    return [
      ("unknown", []), ("begun", [.identified]), ("partial", [.identified, .landed]),
      ("committing", [.identified, .landed, .snapshot]), ("synced", [.identified, .landed] + told),
      ("overclaimed", [.identified, .landed, .syncFailed]), ("whole", whole), ("whole and synced", whole + told),
      ("completing", whole + [.becameWhole]), ("verifying", whole + [.becameWhole, .taken]), ("copy", copy),
      ("modified", copy + [.copyChanged]), ("frozen", [.identified, .landed, .frozen]),
      ("frozen copy", copy + [.frozen]),
      ("put away", [.identified, .landed] + told + [.putAway]), ("superseded", [.identified, .landed, .superseded]),
    ]
  }()

  /// The events that change each of those states: the table above ``FileState``, spelled out.
  static let taken: [String: Set<Event>] = [
    "unknown": [.identified, .frozen, .putAway, .superseded],
    "begun": [.landed, .syncFailed, .frozen, .putAway, .superseded],
    "partial": [.landed, .snapshot, .syncFailed, .frozen, .superseded],
    "committing": [.landed, .synced, .committed, .syncFailed, .frozen, .superseded],
    "synced": [.landed, .syncFailed, .frozen, .putAway, .superseded, .synced],
    "overclaimed": [.committed, .syncFailed, .withdrawn, .frozen, .superseded],
    "whole": [.snapshot, .syncFailed, .becameWhole, .frozen, .superseded],
    "whole and synced": [.syncFailed, .becameWhole, .frozen, .putAway, .superseded, .synced],
    "completing": [.snapshot, .syncFailed, .taken, .superseded],
    "verifying": [.snapshot, .syncFailed, .released, .rejected, .placed, .superseded],
    "copy": [.copyChanged, .frozen, .putAway, .superseded],
    "modified": [.landed, .syncFailed, .frozen, .putAway, .superseded],
    "frozen": [.dropped, .evicted, .thawed, .superseded],
    "frozen copy": [.copyChanged, .dropped, .thawed, .superseded],
    "put away": [.superseded],
    "superseded": [.landed, .snapshot, .syncFailed, .frozen],
  ]

  private func life(_ events: [Event]) -> Life {
    var life = Life()
    var landed = 0
    for event in events {
      life.send(event, event == .landed ? landed : 4)
      if event == .landed { landed += 1 }
    }
    return life
  }

  @Test("Each state takes the events of the table, and no others change it", arguments: states.map(\.name))
  func table(name: String) throws {
    let events = try #require(Self.states.first { $0.name == name }).events
    let expected = try #require(Self.taken[name])
    for event in Event.allCases where !Self.ofEveryState.contains(event) {
      var life = life(events)
      let before = life.description
      // A byte that is new: the last of the four pieces.
      life.send(event, 3)
      #expect(life.held.isLegal, "\(name), \(event)")
      #expect(
        (life.description != before) == expected.contains(event),
        "\(name), \(event): \(before) became \(life.description)")
    }
  }

  @Test("What every state takes changes no holding, removal or stored byte", arguments: states.map(\.name))
  func eventsOfEveryState(name: String) throws {
    let events = try #require(Self.states.first { $0.name == name }).events
    for event in Self.ofEveryState {
      var life = life(events)
      let before = life.description
      life.send(.kept, 3)
      life.send(event, 3)
      #expect(life.held.isLegal, "\(name), \(event)")
      #expect(life.description == before, "\(name), \(event): \(before) became \(life.description)")
      if life.held.isCopy { #expect(life.held.memory.isEmpty, "a copy keeps nothing in memory") }
    }
  }

  @Test("A body without a length: the file grows, ends, and is behind in the catalog until that has the length")
  func growing() {
    var held = FileState()
    _ = held.identified(.of(nil), file: .untouched)
    held.grow(to: 100)
    #expect(held.length == .growing(100) && held.size == nil && held.claim == .current)
    held.grow(to: 50)
    #expect(held.length == .growing(100), "a file never shrinks")
    #expect(held.ended(at: 200)?.size == 200 && held.size == 200)
    #expect(held.claim == .behind && held.isLegal && !held.putAway())
    #expect(held.ended(at: 300) == nil && held.size == 200, "a known length stays")
  }

  @Test("An empty file is whole at once, and is given to the finisher once it can be opened")
  func empty() {
    var held = FileState(beginning: .of(0), file: nil)
    #expect(held.isWhole && !held.becameWhole())
    #expect(held.reopened(.untouched) != nil && held.becameWhole())
    #expect(held.taken() != nil)
  }

  @Test("No sequence of events leads to an illegal state, and every state is met")
  func random() {
    var random = SeededRandom.fromEnvironment()
    var met: Set<String> = []
    for _ in 0..<2000 {
      var life = Life()
      for _ in 0..<60 {
        // Mostly the way to a copy, so that its later states are met.
        let isOnItsWay = Int.random(in: 0..<3, using: &random) > 0
        let events =
          isOnItsWay ? [.identified, .landed, .landed, .landed, .becameWhole, .taken, .placed] : Event.allCases
        let event = events[Int.random(in: 0..<events.count, using: &random)]
        // Once it is superseded or put away little happens any more.
        if event == .superseded || event == .putAway, Int.random(in: 0..<8, using: &random) > 0 { continue }
        life.send(event, Int.random(in: 0..<12, using: &random))
        guard life.held.isLegal else {
          Issue.record("\(event) led to \(life.description)")
          return
        }
        met.insert("\(life.held.holding) \(life.held.claim) \(life.held.removal)")
      }
    }
    for holding in FileState.Holding.allCases { #expect(met.contains { $0.hasPrefix("\(holding) ") }, "\(holding)") }
    for claim in FileState.Claim.allCases { #expect(met.contains { $0.contains(" \(claim) ") }, "\(claim)") }
    for removal in FileState.Removal.allCases { #expect(met.contains { $0.hasSuffix(" \(removal)") }, "\(removal)") }
  }
}
