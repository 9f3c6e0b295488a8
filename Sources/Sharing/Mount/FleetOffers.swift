import Base
import Reading

/// What is here and is not known to be in the store: what it did not take, what came while it was not used, what was
/// here before. It goes up by and by, while the mount lives.
struct FleetOffers {
  /// When the next file is offered; never: none owes anything.
  var next = Instant.never
  /// How long the store is left alone after it did not take something, in seconds; 0: it takes all.
  var pause = 0.0
  /// Until when failures belong to the pause that has begun: of blocks that go up together, one lengthens it.
  var failsUntil = Instant(nanoseconds: 0)
  /// Why the store refused the last block that it answered; empty: it took that.
  var refusal = ""
  /// When the log was told of one.
  var refusalToldAt: Instant?
  /// The file whose blocks' names are asked for before it is offered.
  var listing: Int64?

  /// The file that was offered last: the next one follows, so that one that the store never takes holds up no other.
  var last: Int64 = 0
  /// When what is stored here is looked through for what the store lacks, and whether something was left out since.
  var nextRound = Instant(nanoseconds: 0)
  var hasLeftOut = false
  /// How many files that nobody opened wait at once, and how long the next round waits, in seconds.
  static let mostRecalled = 16
  static let roundPause = 600.0
  /// The most bytes of them that go up at once: what is read meanwhile goes up beside them.
  static let recalledLimit: Int64 = 32 << 20

  /// Files of which all is here and in the store, as was seen since the mount began.
  private(set) var complete: Set<Int64> = []
  private static let mostComplete = 65_536

  mutating func isComplete(_ number: Int64) {
    if complete.count >= Self.mostComplete { complete = [] }
    complete.insert(number)
  }

  /// Of closed files, so many may wait, and each for so many seconds. Whoever reads one later offers it again.
  static let mostFiles = 256
  static let longest = 3600.0
  /// Who stores for others is given so many seconds before others offer the same.
  static let delay = 3.0
  /// The longest pause, and how many blocks go up at once while the store is not used for reading, or has just not
  /// taken one.
  static let longestPause = 60.0
  static let mostAtTrial = 2
}

extension FleetMember {
  /// Notes what a file has that the store may not have. `isAgain`: the store has just not taken something.
  func owe(_ file: SharedFile, _ now: Instant, isAgain: Bool = false) {
    guard !setup.isReadOnly, file.ending == nil, file.served != nil, !offers.complete.contains(file.number) else {
      return file.owed = 0
    }
    let lacking = file.lacking(segment: layout.segment)
    file.owed = lacking.reduce(0) { $0 + Int64($1.blocks.count) } * file.block
    guard file.owed > 0 else { return }
    if isAgain, now >= offers.failsUntil {
      offers.pause = min(max(2 * offers.pause, 1), FleetOffers.longestPause)
      offers.failsUntil = now.adding(seconds: offers.pause)
    }
    // Many nodes do not begin at the same moment.
    let spread = Double(fleet.identity.node % 1024) / 1024
    let due = now.adding(seconds: max(offers.pause, FleetOffers.delay) + spread)
    if isAgain || offers.next == .never { offers.next = due }
  }

  /// Offers the next file that owes something, once the names of its blocks are known anew. Returns when the next one
  /// is due. The store need not be in use: one that is too slow for readers takes blocks all the same.
  func offerOwed(_ now: Instant) -> Instant {
    guard case .ready = phase, offers.next <= now else { return offers.next }
    offers.next = .never
    let full = breaker.fullUntil ?? now
    guard full <= now else {
      offers.next = full
      return full
    }
    guard offers.listing == nil else { return .never }
    if !breaker.isUp, uploads.budget.waiting > 0 {
      offers.next = now.adding(seconds: 1)
      return offers.next
    }
    let owing = files.values.filter { $0.owed > 0 }.sorted { $0.number < $1.number }
    guard let file = owing.first(where: { $0.number > offers.last }) ?? owing.first else { return .never }
    guard uploads.budget.waiting < limit(of: file) else {
      offers.next = now.adding(seconds: 1)
      return offers.next
    }
    offers.last = file.number
    // A block is as cheap as a list, unless it is there.
    if file.blocks == 1, !file.isRecalled {
      offer(file)
      return offers.next
    }
    offers.listing = file.number
    if !file.isListing {
      file.isListing = true
      list(file, after: nil)
    }
    return .never
  }

  /// What a file owes goes up, as much as leaves room for what is fetched now.
  func offer(_ file: SharedFile) {
    let lacking = file.ending == nil ? file.lacking(segment: layout.segment) : []
    if (0..<file.blocks).allSatisfy(file.inTier.contains) { offers.isComplete(file.number) }
    // Each node begins elsewhere.
    let first = lacking.isEmpty ? 0 : Int(truncatingIfNeeded: fleet.identity.node >> 1) & 0xFFFF % lacking.count
    var left = breaker.isUp && offers.pause == 0 ? Int.max : FleetOffers.mostAtTrial
    file.owed = 0
    for (segment, blocks) in lacking[first...] + lacking[..<first] {
      for local in 0..<layout.segment where blocks.contains(local) {
        guard left > 0, uploads.budget.waiting < limit(of: file) else {
          owe(file, .now)
          return offered(isDone: true)
        }
        left -= 1
        upload(
          file, segment * layout.segment + local, FleetNode.Place(generation: file.generation, segment: segment),
          isOwed: true)
      }
    }
    offered(isDone: true)
  }

  /// How much may wait when more of a file is offered.
  private func limit(of file: SharedFile) -> Int64 {
    file.isRecalled ? FleetOffers.recalledLimit : FleetUploads.limit / 2
  }

  // MARK: What an earlier server owed

  package func takesStored(now: Instant) -> Instant {
    if case .refused = phase { return .never }
    if setup.isReadOnly { return .never }
    guard case .ready = phase, files.values.count(where: { $0.isRecalled }) < FleetOffers.mostRecalled else {
      return max(offers.nextRound, now.adding(seconds: 5))
    }
    return offers.nextRound
  }

  package func offer(_ known: SecondFile, _ view: SecondView, now: Instant) {
    guard files[known.generation] == nil, !offers.complete.contains(known.generation), hasNames(for: known) else {
      return
    }
    let file = make(known)
    (file.stored, file.served, file.isRecalled) = (view.stored, view.served, true)
    owe(file, now)
    if file.owed > 0 { recall(known) }
  }

  package func tookAllStored(now: Instant) {
    offers.nextRound = offers.hasLeftOut ? now.adding(seconds: FleetOffers.roundPause) : .never
    offers.hasLeftOut = false
  }

  /// Forgets the files that are closed and of which nothing is under way, or to go up.
  func sweep(_ now: Instant) {
    var kept = 0
    for (number, file) in files where file.isClosed && file.uploads == 0 && !fleet.isBusy(file.generation) {
      if file.owed > 0, file.isRecalled { continue }
      if file.owed > 0, kept < FleetOffers.mostFiles, now.seconds(since: file.closedAt) < FleetOffers.longest {
        kept += 1
        continue
      }
      if file.owed > 0 { leftOut(now) }
      fleet.forget(file.generation)
      for key in Array(timers.keys) where key.place?.generation == file.generation { timers[key] = nil }
      files[number] = nil
    }
  }

  /// A file is forgotten though it owes something: a later round finds it again.
  func leftOut(_ now: Instant) {
    if offers.nextRound == .never {
      offers.nextRound = now.adding(seconds: FleetOffers.roundPause)
    } else {
      offers.hasLeftOut = true
    }
  }

  /// A file was offered, or could not be. The next one follows.
  func offered(isDone: Bool) {
    offers.listing = nil
    if !isDone { offers.pause = min(max(2 * offers.pause, 1), FleetOffers.longestPause) }
    guard files.values.contains(where: { $0.owed > 0 }) else { return }
    offers.next = min(offers.next, Instant.now.adding(seconds: max(offers.pause, 0.2)))
  }

  /// What the mount still has to bring to the store.
  var owedBytes: Int64 { files.values.reduce(0) { $0 + $1.owed } }

  // MARK: Before the bucket is known

  /// Files that are read before the bucket has answered are offered once it has.
  func keepEarly(_ file: SecondFile, _ view: SecondView) {
    guard !setup.isReadOnly, case .asking = phase else { return }
    if early[file.generation] != nil || early.count < FleetOffers.mostFiles { early[file.generation] = (file, view) }
  }

  func takeEarly(_ now: Instant) {
    for (number, known) in early where files[number] == nil && hasNames(for: known.file) {
      let file = make(known.file)
      (file.stored, file.served) = (known.view.stored, known.view.served)
      owe(file, now)
    }
    early = [:]
  }
}
