import Base
import Fetching
import Glibc
import Manifest
import Media
import Storing
import Synchronization

/// The file from which reads of a content are answered: the partial file at first, the library's copy once complete.
package final class ServedFile: Sendable {
  /// The partial file, nil when this is a completed copy.
  let partial: (any OpenPartialFile)?
  private let copy: FileDescriptor?
  /// The file whose descriptor this one reads from; nil: it has its own.
  private let lender: ServedFile?
  /// How the copy was when it was opened.
  private let opened: LibraryCopy?
  /// The descriptor for pread(2). It stays open as long as this object exists.
  package let number: Int32
  private let invalid = Atomic<Bool>(false)

  init(partial: any OpenPartialFile) {
    self.partial = partial
    copy = nil
    lender = nil
    opened = nil
    number = partial.fileDescriptor
  }

  /// A completed copy that cannot be opened, read from `file`, which was placed as this copy.
  init(placed file: ServedFile) {
    partial = nil
    copy = nil
    lender = file
    number = file.number
    var status = stat()
    opened = fstat(file.number, &status) == 0 ? LibraryCopy(at: "", status) : nil
  }

  /// A completed copy, open for reading.
  package init(copy: consuming FileDescriptor) {
    partial = nil
    lender = nil
    number = copy.rawValue
    opened = (try? copy.status()).map { LibraryCopy(at: "", $0) }
    self.copy = consume copy
  }

  /// Whether nobody has written to a completed copy since it was opened: users may.
  package var isAsOpened: Bool {
    if partial != nil { return true }
    var now = stat()
    return fstat(number, &now) == 0 && LibraryCopy(at: "", now) == opened
  }

  /// Whether the disk lost bytes that were written to the file: another object has replaced this one.
  var isInvalid: Bool { invalid.load(ordering: .acquiring) }
  /// From now on no read from the file counts.
  func invalidate() { invalid.store(true, ordering: .releasing) }

  /// pread(2) until `buffer` is full. False when the file ends before that, cannot be read, or was invalidated
  /// meanwhile because stored bytes are gone.
  package func fill(_ buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Bool {
    var filled = 0
    while filled < buffer.count {
      let count = pread(number, buffer.baseAddress! + filled, buffer.count - filled, Int(offset) + filled)
      if count > 0 {
        filled += count
      } else if count == 0 || errno != EINTR {
        return false
      }
    }
    return !isInvalid
  }
}

/// What the transfer thread does for a content at the moment, for `status`.
struct Activity: Sendable, Equatable {
  /// What its transfers bring.
  var received = RecentRate(slice: 1)
  /// Transfers in flight.
  var transfers = 0
  /// Whether the download failed for good, until someone opens the file again.
  var isFailed = false
  /// Whether a read, an open or a stat waits for it.
  var hasWaiters = false
  /// Whether the policy or a user wants the rest of the file, or a listing its size.
  var isWanted = false
  /// Whether nothing of the file is stored for a while.
  var isPaused = false
  /// Whether nothing of the file is stored until someone opens it again.
  var cannotBeStored = false
  /// When its origin may be requested again; nil: now.
  var retryAt: Instant?
  /// Whether the last plan wanted a transfer that could not start.
  var standsBack = false
  /// Whether that was because no connection to its origin is free.
  var lacksConnection = false
  /// The mirror that is asked, by its place in the list's line.
  var mirror = 0
  /// Why mirrors were given up, by their places; empty while none was.
  var refusals: [String?] = []
  /// Whether the origin serves ranges; nil: not known.
  var servesRanges: Bool?
  /// What was fetched of it.
  var fetched = FetchedBytes()
  /// What the line to its origin brings while bytes are due; nil: not known, or it brings none.
  var supply: FilmSupply?
  /// What the program that read last shows of it as a film; nil: not known.
  var film: FilmClock?

  /// Bytes a second, over the last seconds: between two requests nothing comes for a moment.
  func rate(now: Instant) -> Double { received.rate(now: now, pause: 1) }
}

/// One generation (version) of a resource: what is held of it and who waits for it. All inodes that show it share it.
///
/// Lock order (docs/ARCHITECTURE.md): the room's table before a content's lock; never two contents at once; no syscall
/// and no reply under either.
final class Content: Sendable {
  /// What the lock guards: what is held of the file, who waits for it, and what `status` shows of it.
  struct Guarded: Sendable {
    var held = FileState()
    var waiters = Waiters()
    /// What the user's rules say of it.
    var rules = FileRules()
    /// When its blocks were used.
    var uses = UseTrace()
    /// nil until the transfer thread has looked at it.
    var activity: Activity?
    /// The digest that the resolver's links told of it.
    var linkChecksum: Checksum?
    /// What the second source told of its bytes.
    var shared = SecondDigest.none
  }

  /// The resource.
  let key: ResourceKey
  /// What its name says of its kind (``MediaKind``).
  let kind: String?
  let guarded: Lock<Guarded>
  private let source: Lock<(entry: ManifestEntry, path: String)>

  init(record: EntryRecord, held: FileState, rules: FileRules = FileRules()) {
    key = record.node.key
    kind = MediaKind.name(of: record.path)
    var waiters = Waiters()
    waiters.isUnlisted = !record.isListed
    guarded = Lock(Guarded(held: held, waiters: waiters, rules: rules))
    source = Lock((record.source, record.path))
  }

  /// The content of the new generation that replaces `old`.
  init(replacing old: Content, held: FileState) {
    key = old.key
    kind = old.kind
    let (rules, waiters) = old.guarded.withLock { ($0.rules, Waiters(replacing: $0.waiters)) }
    guarded = Lock(Guarded(held: held, waiters: waiters, rules: rules))
    source = Lock(old.source.withLock { $0 })
  }

  /// The resource's entry in the list, or the last one that it had there.
  var entry: ManifestEntry { source.withLock { $0.entry } }
  /// The path in the mount of that entry: its completed copy gets this path.
  var path: String { source.withLock { $0.path } }

  /// The list says something else of the resource; nil: it does not have it any more.
  func listed(as record: EntryRecord?, _ rules: FileRules) {
    if let record { source.withLock { $0 = (record.source, record.path) } }
    guarded.withLock { guarded in
      guarded.waiters.isUnlisted = record == nil
      guarded.rules = rules
    }
  }

  /// Answers a read or parks it, and counts it in `room`. `.parked`: the caller wakes the transfer thread. nil when the
  /// content was put away.
  func read(
    at offset: Int64, into buffer: UnsafeMutableRawBufferPointer, ticket: Ticket, process: Int32, now: Instant,
    in room: ReadingRoom
  ) -> Answer<Int>? {
    var file: ServedFile?
    var isScan = false
    let (decision, isInMemory) = guarded.withLock { guarded -> (Waiters.ReadDecision?, Bool) in
      if guarded.held.isPutAway { return (nil, false) }
      let decision = guarded.read(
        at: offset, count: buffer.count, ticket: ticket, process: process, now: now)
      if case .hit(let count) = decision, count > 0 {
        file = guarded.held.file
        isScan = guarded.waiters.isLooking(process)
        // Almost always false, so that reads of stored bytes skip the memory window.
        return (decision, !guarded.held.memory.isEmpty)
      }
      return (decision, false)
    }
    switch decision {
    case nil: return nil
    case .hit(0): return .now(0)
    case .hit(let count):
      let part = UnsafeMutableRawBufferPointer(rebasing: buffer[..<count])
      let filled: Filling =
        isInMemory ? fill(part, at: offset) : file?.fill(part, at: offset) ?? false ? .whole : .failed
      if filled == .whole {
        let source: ReadSource = isInMemory ? .memory : file?.partial == nil ? .copy : .store
        room.counters.read(count, from: source, isScan: isScan)
        return .now(count)
      }
      guard filled == .gone || file?.isInvalid ?? false else {
        Log.error(
          "\(path): \(count) stored bytes at \(offset) cannot be read from the store: \(Errno.current)"
            + room.explanation(of: path))
        room.counters.readFailed(.io)
        return .failed(.io)
      }
      let range = ByteRange(at: offset, count: Int64(count))
      if parkAgain(ParkedRead(ticket: ticket, range: range, since: now, process: process)) { return .parked }
      // The bytes are there again, in the file or in memory.
      return read(at: offset, into: buffer, ticket: ticket, process: process, now: now, in: room)
    case .park: return .parked
    case .fail(let error):
      room.counters.readFailed(error)
      return .failed(error)
    }
  }

  /// Parks a released read again because its bytes are not stored any more. False when they are, or when the content
  /// cannot serve them any more.
  func parkAgain(_ read: ParkedRead) -> Bool {
    guarded.withLock { guarded in
      // Until the keeper replaces a file that lost bytes, nobody knows which bytes are left.
      let isLost = guarded.held.file?.isInvalid ?? false
      if guarded.held.isPutAway { return false }
      if !isLost, guarded.held.isSuperseded || guarded.held.has(read.range) { return false }
      guarded.waiters.parkAgain(read)
      return true
    }
  }

  /// What became of a buffer that was to be filled.
  enum Filling {
    case whole
    /// A byte is neither stored nor in memory, or the file was invalidated.
    case gone
    /// The file cannot be read.
    case failed
  }

  /// Fills `buffer` from the stored bytes and those in memory.
  func fill(_ buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Filling {
    let wanted = ByteRange(at: offset, count: Int64(buffer.count))
    let (file, memory) = guarded.withLock { guarded -> (ServedFile?, ByteRangeSet?) in
      if guarded.held.memory.isEmpty || guarded.held.stored.contains(wanted) {
        return (guarded.held.file, guarded.held.stored.contains(wanted) ? ByteRangeSet() : nil)
      }
      guard guarded.held.available.contains(wanted) else { return (nil, nil) }
      guarded.held.memory.copy(into: buffer, at: offset)
      return (guarded.held.file, guarded.held.memory.ranges)
    }
    guard let memory else { return .gone }
    var position = wanted.start
    while let gap = memory.firstGap(in: ByteRange(position, wanted.end)) {
      let part = UnsafeMutableRawBufferPointer(rebasing: buffer[Int(gap.start - offset)..<Int(gap.end - offset)])
      guard let file, file.fill(part, at: gap.start) else { return file?.isInvalid ?? false ? .gone : .failed }
      position = gap.end
    }
    return .whole
  }
}

extension Content {
  /// Whether a program that has the file open has read more of it than a look takes.
  var isReadOn: Bool {
    guarded.withLock { guarded in
      guarded.waiters.opens > 0 && guarded.waiters.runs.runs.contains { $0.length >= Planner.lookAhead }
    }
  }
}

/// Events that change both what is held and who waits, in one critical section.
extension Content.Guarded {
  /// A read of `count` bytes at `offset`.
  mutating func read(
    at offset: Int64, count: Int, ticket: Ticket, process: Int32, now: Instant
  ) -> Waiters.ReadDecision {
    let wanted: ByteRange
    switch held.length {
    case .known(let size):
      if offset >= size || count == 0 { return .hit(0) }
      wanted = ByteRange(offset, min(offset + Int64(count), size))
    case .growing, .unknown:
      // A program may read anywhere. Near Int64.max, the sum of offset and count would overflow.
      if count == 0 || offset >= longestResource { return .hit(0) }
      wanted = ByteRange(offset, offset + Int64(count))
    }
    if let size = held.size { uses.note(wanted, size: size, now) }
    waiters.noteRead(offset: offset, count: wanted.count, size: held.size, process: process, now: now)
    if held.has(wanted) { return .hit(Int(wanted.count)) }
    if held.isSuperseded { return .fail(.stale) }
    return waiters.wait(for: wanted, ticket: ticket, process: process, now: now)
  }

  /// `range` was written to `file`. Returns the reads that it completes, and whether the keeper has to be told. nil
  /// when the write does not count.
  mutating func landed(
    _ range: ByteRange, in file: ServedFile, now: Instant
  ) -> (released: [ParkedRead], isNews: Bool, stalled: UInt64)? {
    guard let isNews = held.landed(range, in: file, now: now) else { return nil }
    if let size = held.size { uses.note(range, size: size, now) }
    let released = waiters.releaseWhole(held)
    for read in released { waiters.answered(read, now) }
    return (released, isNews, waiters.takeStall(now))
  }

  /// Keeps `bytes`, which cannot be stored, in memory: at most `most` for this content. Returns the reads that they
  /// complete; nil when there is no space.
  mutating func kept(_ bytes: UnsafeRawBufferPointer, at offset: Int64, most: Int64) -> [ParkedRead]? {
    let waited = waiters.parkedReads.map(\.range)
    guard held.kept(bytes, at: offset, most: most, waited: waited) else { return nil }
    return waiters.releaseWhole(held)
  }

  /// Whether part of the file may be stored, and nobody has it open or waits for it.
  var isIdle: Bool { waiters.opens == 0 && waiters.isEmpty && held.isPartial && held.removal == .none }
}
