import Base
import Fetching
import Manifest
import Media
import Storing
import Testing

@testable import Reading

// The only file of the scenarios that reaches into the reading room: all others import it as any room above does, so
// that whoever rebuilds the room has this one file to rewrite. Its verbs say what the room does, not how.

/// The figures that bound the room.
enum RoomLimits {
  static let syncSeconds = Keeper.syncSeconds
  static let refusedSeconds = StoreHealth.refusedSeconds
  static let keptOfOneFile = MemoryWindow.most
  static let keptInAll = MemoryWindow.mostInAll
  static let resumedAtOnce = TransferThread.resumedAtOnce
  static let mostUnfinished = TransferThread.mostUnfinished
  static let questions = StatWaits.mostQuestions
  static let silenceSeconds = Silence.remembered
  static let streamsOfHTTP2 = Line.streamLimit
  /// What opening and first reading a file may fetch of it.
  static let firstTouch = Planner.headLength + Planner.lookAhead + Planner.tailLength

  /// What is believed of `stored` when a sync fails, and `synced` was synced before.
  static func believed(_ stored: ByteRangeSet, synced: ByteRangeSet) -> ByteRangeSet {
    FileState.onDisk(stored, synced: synced)
  }
}

extension MediaFileSystem {
  /// A room without threads of its own, in the simulated `time`. It calls `looks` before each look at the time, and
  /// `wakes` when the transfer thread, which has nothing to do, is told something.
  static func simulated(
    _ store: StoreAccess, _ options: ReadingOptions, time: Lock<Instant>, looks: Lock<(() -> Void)?>,
    wakes: Lock<(() -> Void)?>
  ) throws(StoreError) -> MediaFileSystem {
    let clock = Clock(
      {
        looks.withLock { $0 }?()
        return time.withLock { $0 }
      }, date: { time.withLock { Int64($0.nanoseconds / 1_000_000_000) } })
    return try MediaFileSystem(store: store, options: options, clock: clock) { wakes.withLock { $0 }?() }
  }

  /// Begins to take away what is stored of a file that is in memory; `then` follows on the keeper's thread. False when
  /// it is not in memory.
  func beginClearing(_ inode: Inode, then: @escaping @Sendable () -> Void = {}) -> Bool {
    guard let content = room.table.withLock({ $0.contents[inode] }) else { return false }
    room.transfers.post(.clear(content, then: then))
    return true
  }
}

/// The room's threads in the hand of a test: all of them are the test's own.
final class RoomThreads {
  fileprivate let room: ReadingRoom
  fileprivate let transfers: TransferThread
  fileprivate let keeper: Keeper
  fileprivate let finisher: Finisher

  init(
    _ system: MediaFileSystem, port: any ReplyPort, service: any TransferService, second: (any SecondSource)? = nil
  ) {
    room = system.room
    transfers = TransferThread(room: room, port: port, service: service, second: second, jitter: { 0.5 })
    keeper = Keeper(room: room)
    finisher = Finisher(room: room)
  }

  var client: any TransferClient { transfers }

  /// Whether the transfer thread looks at the resource in its sweeps alone; nil: it is not in memory.
  func isDormant(_ key: ResourceKey) -> Bool? { transfers.downloads[key]?.isDormant }

  /// One turn of the keeper.
  func turnKeeper() { _ = keeper.turn() }

  /// The finisher takes the next file; false when there is none.
  func turnFinisher() -> Bool { finisher.turn() }

  /// The finisher is told to end.
  func stopFinisher() { room.beginEnding() }

  /// The end. The service must have stopped. Killed, nothing is committed.
  func end(killed: Bool) {
    if killed { return }
    room.beginEnding()
    room.keeper.post(.stop)
    turnKeeper()
  }
}

/// The file that the bytes of a resource are written to and read from.
struct StoredFile: Equatable {
  fileprivate let file: ServedFile
  /// Its descriptor.
  var descriptor: Int32 { file.number }
  /// Whether the room has found out that the disk lost bytes of it.
  var isInvalid: Bool { file.isInvalid }
  /// Whether a read from it at `offset` gives bytes that may be believed.
  func isReadable(at offset: Int64) -> Bool {
    var byte: UInt8 = 0
    return withUnsafeMutableBytes(of: &byte) { file.fill($0, at: offset) }
  }
  static func == (left: Self, right: Self) -> Bool { left.file === right.file }
}

/// What a thread holds of a file while the room puts it away.
struct HeldFile {
  fileprivate let content: Content
  fileprivate let room: ReadingRoom
  /// A read by who holds it; nil when that is told to look the file up again.
  func read(_ offset: Int64, _ count: Int, ticket: Ticket, now: Instant) -> Answer<Int>? {
    var buffer = [UInt8](repeating: 0, count: count)
    return buffer.withUnsafeMutableBytes {
      content.read(at: offset, into: $0, ticket: ticket, process: 0, now: now, in: room)
    }
  }
}

extension HeldFile {
  /// The bytes of a read that is answered at once.
  func bytes(_ offset: Int64, _ count: Int, ticket: Ticket, now: Instant) -> [UInt8]? {
    var buffer = [UInt8](repeating: 0, count: count)
    let answer = buffer.withUnsafeMutableBytes {
      content.read(at: offset, into: $0, ticket: ticket, process: 0, now: now, in: room)
    }
    if case .now = answer { return buffer }
    return nil
  }
}

/// What the room thinks of an origin.
struct OriginView {
  /// The most transfers at once, and how many of them the origin's refusals have left.
  var most: Int
  var limit: Int
  /// Whether it does not answer, and whether that is more than a hiccup.
  var isUnreachable: Bool
  var isUnreachableForLong: Bool
  /// Whether it is known to answer.
  var answers: Bool
  /// When a file was closed last whose reader passed by.
  var passedAt: Instant?
}

// MARK: - What can be seen

extension Bench {
  private func content(_ inode: Inode) -> Content? { system.room.table.withLock { $0.contents[inode] } }

  private func known(_ inode: Inode, _ location: SourceLocation) throws -> Content {
    try #require(content(inode), "inode \(inode) is not in memory", sourceLocation: location)
  }

  private func look(_ inode: Inode, _ isSo: (inout Content.Guarded) -> Bool) -> Bool {
    content(inode)?.guarded.withLock(isSo) ?? false
  }

  /// Whether a file is in memory.
  func isInMemory(_ inode: Inode) -> Bool { content(inode) != nil }
  /// The resources in memory.
  var inMemory: Set<ResourceKey> { system.room.table.withLock { Set($0.current.keys) } }
  /// Whether nothing is in memory: no file, no resource, nothing that is being fetched.
  var isEmpty: Bool {
    system.room.table.withLock { $0.contents.isEmpty && $0.current.isEmpty }
      && threads?.transfers.downloads.all.isEmpty == true
  }
  /// Whether two inodes, both in memory, show the same bytes of one resource.
  func isOneFile(_ first: Inode, _ second: Inode) -> Bool {
    content(first).map { $0 === content(second) } ?? false
  }
  /// Whether the list of unfinished files is still gone through.
  var isResuming: Bool { threads?.transfers.resuming.goesOn == true }

  /// The generation that a file in memory shows, by its id in the catalog.
  func generationInMemory(_ inode: Inode, sourceLocation: SourceLocation = #_sourceLocation) throws -> Int64 {
    try #require(
      known(inode, sourceLocation).guarded.withLock { $0.held.generation?.id }, sourceLocation: sourceLocation)
  }

  /// Whether all of a file is stored and it waits for the finisher, or is in its hands.
  func isCompleting(_ inode: Inode) -> Bool {
    look(inode) { $0.held.holding == .completing || $0.held.holding == .verifying }
  }
  /// Whether a file is open for storing.
  func isPartial(_ inode: Inode) -> Bool { look(inode) { $0.held.isPartial } }
  /// Whether a file in memory is known to be online only.
  func isOnline(_ inode: Inode) -> Bool { look(inode) { $0.rules.storage == .online } }
  /// Whether the finisher has a file in its hands.
  func isInFinishersHands(_ inode: Inode) -> Bool { look(inode) { $0.held.holding == .verifying } }
  /// Whether the bytes of a file are being taken away.
  func isBeingCleared(_ inode: Inode) -> Bool { look(inode) { $0.held.removal == .frozen } }
  /// Whether a clearing waits for the finisher.
  func isClearingPostponed(_ inode: Inode) -> Bool {
    content(inode).flatMap { threads?.transfers.downloads[$0.key] }.map { !$0.postponed.isEmpty } ?? false
  }

  /// What is known to be on disk of a file.
  func synced(_ inode: Inode, sourceLocation: SourceLocation = #_sourceLocation) throws -> ByteRangeSet {
    try known(inode, sourceLocation).guarded.withLock { $0.held.synced }
  }
  /// Whether all that is stored of a file is on disk.
  func isSynced(_ inode: Inode) -> Bool { look(inode) { $0.held.unsynced == 0 && $0.held.synced == $0.held.stored } }
  /// Whether the catalog claims more of a file than is stored, and is still to be told.
  func isOverclaimed(_ inode: Inode) -> Bool { look(inode) { $0.held.claim == .overclaimed } }
  /// Whether the catalog was told of all that is lost and of all that was on its way to it.
  func isTold(_ inode: Inode) -> Bool { look(inode) { $0.held.claim == .current || $0.held.claim == .behind } }
  /// What is kept of a file in memory, as it cannot be stored.
  func kept(_ inode: Inode, sourceLocation: SourceLocation = #_sourceLocation) throws -> ByteRangeSet {
    try known(inode, sourceLocation).guarded.withLock { $0.held.memory.ranges }
  }
  /// How many bytes are kept in memory of all files.
  var keptInAll: Int64 {
    guard let downloads = threads?.transfers.downloads.all else { return 0 }
    return downloads.reduce(0) { sum, download in
      sum + download.content.guarded.withLock { $0.held.memory.count }
    }
  }
  /// How many handles a file in memory has; nil when it is not there.
  func opens(_ inode: Inode) -> Int? { content(inode)?.guarded.withLock { $0.waiters.opens } }
  /// The file that is read and written for an inode.
  func storedFile(_ inode: Inode) -> StoredFile? {
    content(inode)?.guarded.withLock { $0.held.file }.map { StoredFile(file: $0) }
  }

  /// Whether the store takes what readers want, and what is fetched ahead.
  var hasRoom: Bool { system.room.health.intake == .everything }
  /// For how many more seconds nothing is stored of a file because its syncs fail; 0 when it may be.
  func pause(of inode: Inode) -> Double {
    guard let key = content(inode)?.key else { return 0 }
    return system.room.health.pause(of: key)?.seconds(since: now) ?? 0
  }
  /// Whether what comes of a file is stored; nil when it is not being looked after.
  func isStoring(_ inode: Inode) -> Bool? {
    content(inode).flatMap { threads?.transfers.downloads[$0.key] }.map {
      threads?.transfers.landing.isUnstored($0) == false
    }
  }
  /// Whether a reader of a file waits that has its line's credit, as one that has just begun.
  func isNewcomer(_ inode: Inode) -> Bool {
    content(inode).flatMap { threads?.transfers.downloads[$0.key] }?.lineUse.standing?.isNew == true
  }
  /// When the origin of a file may be asked again; nil when it is not being looked after.
  func asksAgainAt(_ inode: Inode) -> Instant? {
    content(inode).flatMap { threads?.transfers.downloads[$0.key] }?.attempts.retry.due(readerWaits: false)
  }
  /// How many background requests to the second source have no answer yet; nil before the first request.
  var secondAsking: Int? { threads?.transfers.lines.known(Line.second)?.asking }
  /// What the room thinks of an origin, `http://host`; nil before the first request.
  func origin(_ url: String) -> OriginView? {
    threads?.transfers.lines.known(url).map {
      OriginView(
        most: $0.most, limit: $0.limit, isUnreachable: $0.isUnreachable, isUnreachableForLong: $0.isUnreachableForLong,
        answers: $0.isKnownToAnswer, passedAt: $0.readers.lastPassing)
    }
  }
}

// MARK: - What can happen

extension Bench {
  /// Begins to take away what is stored of a file; `then` follows when that is done.
  func clear(
    _ inode: Inode, sourceLocation: SourceLocation = #_sourceLocation,
    then: @escaping @Sendable () -> Void = {}
  ) throws {
    try #require(system.beginClearing(inode, then: then), sourceLocation: sourceLocation)
  }

  /// Has the room read the index of a file from `head`, whether that is stored or not.
  func learn(_ inode: Inode, index head: [UInt8], sourceLocation: SourceLocation = #_sourceLocation) throws {
    let (id, size) = try known(inode, sourceLocation).guarded.withLock { ($0.held.generation?.id, $0.held.size) }
    let bytes = StoredBytes(
      size: try #require(size, sourceLocation: sourceLocation),
      stored: ByteRangeSet(ByteRange(0, Int64(head.count)))
    ) { buffer, offset in
      buffer.copyBytes(from: head[Int(offset)..<Int(offset) + buffer.count])
      return true
    }
    _ = system.room.films.index(of: try #require(id, sourceLocation: sourceLocation), bytes)
  }

  /// A user says what of the files of a pattern is stored.
  func rule(_ rule: StorageRule, _ pattern: String) throws { try change(.storage, rule.rawValue, pattern) }

  /// A user pauses the downloads of a pattern, or lets them go on.
  func pause(_ isPaused: Bool, _ pattern: String) throws { try change(.downloads, isPaused ? 1 : 0, pattern) }

  private func change(_ subject: RuleSubject, _ value: Int64, _ text: String) throws {
    let pattern = try PathPattern(text)
    try threads?.keeper.changeRules { rules in
      var rules = rules
      let number = (rules.all.last?.number ?? 0) + 1
      let rule = PathRule(subject: subject, pattern: pattern, value: value, number: number)
      rules.set(rule)
      return (rules, [.set(rule)])
    }
  }

  /// A user ends the download of a file.
  func cancel(_ name: String) throws { try threads?.keeper.cancel([try node(name).key]) }

  /// A full store drops what is stored of a file that is not in memory; false where that may not be.
  func evict(_ key: ResourceKey, generation: Int64) -> Bool {
    SpaceKeeping(room: system.room).evict(key, generation: generation)
  }

  /// A user changes the limits of the mount.
  func limit(_ change: (inout ReadingLimits) -> Void) {
    var limits = system.room.limits.withLock { $0 }
    change(&limits)
    system.room.limits.withLock { [limits] in $0 = limits }
    options.limits = limits
    system.room.ledger.limit(limits.maximumSize, copiesStay: options.limits.evicts == .partial)
    threads?.keeper.makeSpaceNow()
  }

  /// Blocks of a file in memory go, as if nobody had it open.
  func evict(
    _ inode: Inode, _ ranges: ByteRangeSet, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let content = try known(inode, sourceLocation)
    #expect(content.guarded.withLock { $0.held.frozen() }, sourceLocation: sourceLocation)
    threads?.keeper.evict(content, ranges, bytes: 0)
    content.guarded.withLock { $0.held.thawed() }
  }

  /// A full store asks for blocks of a file in memory. They go if nobody uses it.
  func askFor(
    _ ranges: ByteRangeSet, of inode: Inode, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let content = try known(inode, sourceLocation)
    system.room.transfers.post(.evict(content, ranges, bytes: ranges.count, endsDownload: false, isCopy: false))
  }

  /// Bytes of a file in memory are written again.
  func refill(
    _ inode: Inode, _ offset: Int64, _ bytes: [UInt8], sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let content = try known(inode, sourceLocation)
    let file = try #require(content.guarded.withLock { $0.held.file }, sourceLocation: sourceLocation)
    try bytes.withUnsafeBytes { try file.partial?.write($0, at: offset) }
    let range = ByteRange(at: offset, count: Int64(bytes.count))
    content.guarded.withLock { _ = $0.landed(range, in: file, now: now) }
  }

  /// The disk refuses a write, as a full one does.
  func refuseWrite() {
    system.room.health.writeFailed()
    system.room.keeper.post(.measureSpace)
  }

  /// The file of one inode refuses a write.
  func refuseWrite(of inode: Inode, _ error: Errno, sourceLocation: SourceLocation = #_sourceLocation) throws {
    let source = try #require(
      threads?.transfers.downloads[known(inode, sourceLocation).key], sourceLocation: sourceLocation)
    threads?.transfers.landing.cannotStore(source, error)
  }

  /// A sync of a file, as the keeper makes it, ends with an error now.
  func failSync(_ inode: Inode, sourceLocation: SourceLocation = #_sourceLocation) throws {
    let content = try known(inode, sourceLocation)
    let file = try #require(content.guarded.withLock { $0.held.file }, sourceLocation: sourceLocation)
    file.invalidate()
    threads?.keeper.syncFailed(content, file, .io)
  }

  /// A sync of `former`, which another file has replaced since then, ends with an error now.
  func failSync(_ inode: Inode, of former: StoredFile, sourceLocation: SourceLocation = #_sourceLocation) throws {
    threads?.keeper.syncFailed(try known(inode, sourceLocation), former.file, .io)
  }

  /// Nothing is stored of a file for a while, as after a sync that failed.
  func pauseStoring(of inode: Inode, sourceLocation: SourceLocation = #_sourceLocation) throws {
    _ = system.room.health.syncFailed(try known(inode, sourceLocation).key)
  }

  /// The rest of a file is wanted, as after it was played; unlike ``MediaFileSystem/fetch(_:)`` this forgives nothing.
  func goOn(_ inode: Inode, sourceLocation: SourceLocation = #_sourceLocation) throws {
    try #require(threads?.transfers.downloads[known(inode, sourceLocation).key], sourceLocation: sourceLocation).wish
      .rest =
      true
  }

  /// Counts an open of a file that is about to fail, or its failure.
  func countStaleOpen(_ inode: Inode, by count: Int, sourceLocation: SourceLocation = #_sourceLocation) throws {
    try known(inode, sourceLocation).guarded.withLock { $0.waiters.opened(count) }
  }

  /// What a thread has in its hands of a file.
  func hold(_ inode: Inode, sourceLocation: SourceLocation = #_sourceLocation) throws -> HeldFile {
    HeldFile(content: try known(inode, sourceLocation), room: system.room)
  }

  /// How many files the transfer thread was told to be closed, since it took what it was told. It takes that now.
  func takeClosings() -> Int {
    system.room.transfers.takeAll().count { message in
      if case .closed = message { true } else { false }
    }
  }

  /// A thread that holds a file tells the room that something changed of it.
  func touch(_ held: HeldFile) { system.room.transfers.post(.changed(held.content)) }

  /// The finisher has a file in its hands, or not any more.
  func giveToFinisher(
    _ inode: Inode, _ isInHands: Bool, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    try known(inode, sourceLocation).guarded.withLock { guarded in
      if isInHands { _ = guarded.held.taken() } else { guarded.held.released() }
    }
  }

  /// The finisher is to take a file, once more where it is to take it already.
  func queueForFinisher(_ inode: Inode, sourceLocation: SourceLocation = #_sourceLocation) throws {
    system.room.finisher.post(try known(inode, sourceLocation))
  }

  /// Another version of a file, with the same head, takes the place of the known one.
  func supersede(_ inode: Inode, sourceLocation: SourceLocation = #_sourceLocation) throws {
    let transfers = try #require(threads?.transfers, sourceLocation: sourceLocation)
    let download = try transfers.downloads.download(of: known(inode, sourceLocation))
    try transfers.generations.supersede(download, by: #require(download.identity), nil)
  }

  /// Bytes that came are to count as stored, where they were written to `file`: whether they do.
  func write(
    _ bytes: [UInt8], at offset: Int64, to file: StoredFile, of inode: Inode,
    sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> Bool {
    let source = try #require(
      threads?.transfers.downloads[known(inode, sourceLocation).key], sourceLocation: sourceLocation)
    return bytes.withUnsafeBytes {
      threads?.transfers.landing.noteStored($0, at: offset, in: file.file, source) == true
    }
  }

  /// A parked read is answered, as when its last byte has come.
  func answerParked(
    _ ticket: Ticket, _ range: ByteRange, of inode: Inode, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    threads?.transfers.answers.answer(
      ParkedRead(ticket: ticket, range: range, since: now, process: 0), try known(inode, sourceLocation))
  }

  /// Forgets what is kept of a file in memory, and keeps `pieces` instead. False when not all of that fits, or a read
  /// is whole with it.
  func keep(
    _ pieces: [(offset: Int64, bytes: [UInt8])], of inode: Inode, sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> Bool {
    let content = try known(inode, sourceLocation)
    _ = content.guarded.withLock { $0.held.emptiedMemory() }
    return pieces.allSatisfy { offset, bytes in
      bytes.withUnsafeBytes { bytes in
        content.guarded.withLock { $0.kept(bytes, at: offset, most: MemoryWindow.most) }
      }?.isEmpty == true
    }
  }

  /// The keeper commits what is stored of a file by itself, as beside a change that the catalog refuses.
  func commitAlone(
    _ inode: Inode, _ change: CatalogChange, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    threads?.keeper.commitSingly(
      [], [.init(content: try known(inode, sourceLocation), change: change)], durably: false)
  }
}
