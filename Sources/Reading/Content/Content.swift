import Base
import Glibc
import Manifest
import Storing
import Synchronization

/// The file that reads of a content are answered from: the partial file while it grows, the library's copy once
/// complete.
public final class ServedFile: Sendable {
  /// The partial file, nil when this is a completed copy.
  let partial: PartialFile?
  private let copy: FileDescriptor?
  /// For pread(2); valid as long as this object.
  public let number: Int32
  private let distrusted = Atomic<Bool>(false)

  init(partial: PartialFile) {
    self.partial = partial
    copy = nil
    number = partial.fileDescriptor
  }

  /// A completed copy, open for reading.
  public init(copy: consuming FileDescriptor) {
    partial = nil
    number = copy.rawValue
    self.copy = consume copy
  }

  /// Whether the disk lost what was written to it: another object has taken its place.
  var isDistrusted: Bool { distrusted.load(ordering: .acquiring) }
  /// What is read from it from now on counts for nothing.
  func distrust() { distrusted.store(true, ordering: .releasing) }

  /// pread(2) until `buffer` is full; false when the file ends before, cannot be read, or was not to be trusted by
  /// then: what was stored is gone.
  func fill(_ buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Bool {
    var filled = 0
    while filled < buffer.count {
      let count = pread(number, buffer.baseAddress! + filled, buffer.count - filled, Int(offset) + filled)
      if count > 0 {
        filled += count
      } else if count == 0 || errno != EINTR {
        return false
      }
    }
    return !isDistrusted
  }
}

/// What the transfer thread knows of a content at the moment, for status.
struct Activity: Sendable, Equatable {
  /// Bytes a second of late.
  var rate: Double = 0
  /// Transfers under way.
  var transfers = 0
  /// Whether it failed for good, until someone opens the file again.
  var isFailed = false
  /// Whether a read, an open or a stat waits for it.
  var hasWaiters = false
  /// Whether the rest of it is to be fetched, as far as the policy and users say.
  var isWanted = false
  /// Whether its own partial file takes nothing for a while.
  var isPaused = false
  /// Whether its own partial file takes nothing until it is opened again.
  var cannotBeStored = false
  /// When its origin may be asked again; nil: now.
  var retryAt: Instant?
  /// Whether the last plan wanted a transfer that could not start.
  var standsBack = false
  /// Whether that was because no connection to its origin is free.
  var lacksConnection = false
}

/// One generation of a resource, shared by every inode that shows it.
///
/// Lock order (docs/ARCHITECTURE.md): the file system's table before a content's lock; never two contents at once; no
/// syscall and no reply under either.
final class Content: Sendable {
  /// How far it has come.
  enum Phase: Sendable {
    /// Bytes are missing.
    case partial
    /// All are here and being verified and placed.
    case completing
    /// It is in the library.
    case complete
  }

  /// What the lock guards.
  struct Guarded: Sendable {
    var state = ContentState()
    /// nil until there is something to read or to write to.
    var file: ServedFile?
    /// nil until the origin answered for the first time.
    var generation: GenerationRecord?
    /// The catalog's generation, when that is of no use any more: forgotten once another is known.
    var abandoned: Int64?
    var phase = Phase.partial
    /// The part of `state.stored` that is known to be on disk.
    var synced = ByteRangeSet()
    /// Bytes written since, and when that began.
    var unsynced: Int64 = 0
    var unsyncedSince: Instant?
    /// Whether its extents are on the way into the catalog.
    var isCommitting = false
    /// Whether the finisher has it in its hands.
    var isFinishing = false
    /// Whether the catalog claims more than is stored: a sync failed, and the catalog has not been told. Nothing may be
    /// written until it is: behind a lost range that would look stored to whoever believes the claim.
    var isOverclaimed = false
    /// Whether its file is being taken away: nothing may be written until that is done.
    var isFrozen = false
    /// Whether a user asked for it by name, as the catalog knows it: also at the next mount policies do not stop it.
    var isPinned = false
    /// Whether a user changed its completed copy: the inode's page cache may have what they made of it.
    var isTouched = false
    /// Whether it was put away: whoever still holds it is to ask for the resource again. What is parked here would be
    /// lost.
    var isAway = false
    /// nil until the transfer thread has looked at it.
    var activity: Activity?
  }

  /// The resource.
  let key: ResourceKey
  /// What the manifest says of it.
  let source: ManifestEntry
  /// The path in the mount of the entry that brought it here: where its completed copy goes.
  let path: String
  let guarded: Lock<Guarded>

  init(entry: EntryRecord, guarded: Guarded) {
    key = entry.node.key
    source = entry.source
    path = entry.path
    self.guarded = Lock(guarded)
  }

  /// The successor of `old` under a new generation.
  init(replacing old: Content, guarded: Guarded) {
    key = old.key
    source = old.source
    path = old.path
    self.guarded = Lock(guarded)
  }

  /// A read; `.parked` means that the planner must be woken. nil when the content was put away meanwhile.
  func read(
    at offset: Int64, into buffer: UnsafeMutableRawBufferPointer, ticket: Ticket, process: Int32, now: Instant
  ) -> Answer<Int>? {
    var file: ServedFile?
    let (decision, isInMemory) = guarded.withLock { guarded -> (ContentState.ReadDecision?, Bool) in
      if guarded.isAway { return (nil, false) }
      let decision = guarded.state.read(
        at: offset, count: buffer.count, ticket: ticket, process: process, now: now)
      if case .hit(let count) = decision, count > 0 {
        file = guarded.file
        // Almost always false, so that a stored range costs no look at the window.
        return (decision, !guarded.state.memory.isEmpty)
      }
      return (decision, false)
    }
    switch decision {
    case nil: return nil
    case .hit(0): return .now(0)
    case .hit(let count):
      let part = UnsafeMutableRawBufferPointer(rebasing: buffer[..<count])
      let isFilled = isInMemory ? fill(part, at: offset) : file?.fill(part, at: offset) ?? false
      guard isFilled else {
        if let file, file.isDistrusted {
          let range = ByteRange(at: offset, count: Int64(count))
          if parkAgain(ParkedRead(ticket: ticket, range: range, since: now, process: process)) { return .parked }
          return read(at: offset, into: buffer, ticket: ticket, process: process, now: now)
        }
        Log.error("\(path): \(count) stored bytes at \(offset) cannot be read from the store: \(Errno.current)")
        return .failed(.io)
      }
      return .now(count)
    case .park: return .parked
    case .fail(let error): return .failed(error)
    }
  }

  /// Parks a read again that was to be answered, because what it waited for is not stored any more. False when it is,
  /// or cannot be waited for.
  func parkAgain(_ read: ParkedRead) -> Bool {
    guarded.withLock { guarded in
      // Until another file takes the place of one that lost bytes, nobody knows which are left.
      let isLost = guarded.file?.isDistrusted ?? false
      if guarded.isAway { return false }
      if !isLost, guarded.state.isSuperseded || guarded.state.has(read.range) { return false }
      guarded.state.parkAgain(read)
      return true
    }
  }

  /// Fills `buffer` from what is stored and what is in memory. False when neither has it (any more) or the file fails.
  func fill(_ buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Bool {
    let wanted = ByteRange(at: offset, count: Int64(buffer.count))
    let (file, memory) = guarded.withLock { guarded -> (ServedFile?, ByteRangeSet?) in
      if guarded.state.memory.isEmpty || guarded.state.stored.contains(wanted) {
        return (guarded.file, guarded.state.stored.contains(wanted) ? ByteRangeSet() : nil)
      }
      guard guarded.state.available.contains(wanted) else { return (nil, nil) }
      guarded.state.memory.copy(into: buffer, at: offset)
      return (guarded.file, guarded.state.memory.ranges)
    }
    guard let memory else { return false }
    var position = wanted.start
    while let gap = memory.firstGap(in: ByteRange(position, wanted.end)) {
      let part = UnsafeMutableRawBufferPointer(rebasing: buffer[Int(gap.start - offset)..<Int(gap.end - offset)])
      guard let file, file.fill(part, at: gap.start) else { return false }
      position = gap.end
    }
    return true
  }
}
