import Base
import Manifest
import Media
import Storing

/// The state that all of the room's threads share. Any thread may use it.
///
/// Three threads own state that no other thread can reach: ``TransferThread`` (plans, starts and follows transfers,
/// stores their bytes, answers the readers), ``Keeper`` (commits, syncs, makes room, removes) and ``Finisher``
/// (verifies and places). The other threads send them messages through the mailboxes here.
///
/// Lock order (docs/ARCHITECTURE.md): `table` before a content's lock; never two contents at once; no syscall, no
/// callback and no reply under either.
final class ReadingRoom: Sendable {
  let store: StoreAccess
  let options: ReadingOptions
  let clock: Clock
  let beginning: MountBeginning
  let table = Lock(Table())
  /// What the user wants for paths, folders and patterns. The keeper changes them.
  let rules: Lock<Rules>
  /// The limits of now. The keeper changes them.
  let limits: Lock<ReadingLimits>
  /// Whether the store takes new bytes.
  let health: StoreHealth
  /// What it has on disk.
  let ledger: StoreLedger
  /// What happened so far, in numbers.
  let counters = Counters()
  /// Who is told what happens.
  let happenings = Happenings()
  /// The indexes of the files that were asked about.
  let films = FilmIndexes()
  /// What each line brings, as far as that is known, by ``Line/key(of:)``.
  let supplies = Lock<[String: FilmSupply]>([:])
  /// What `status` shows of the lines.
  let lines = LineReports()
  let transfers: Mailbox<TransferMessage>
  let keeper: Mailbox<KeeperMessage>
  let keeperSignal = Signal()
  let finisher: Mailbox<Content>
  let finisherSignal = Signal()
  /// Who asks for links; nil without `--resolver`.
  let resolver = Lock<(any LinkResolver)?>(nil)
  private let ending = Lock(false)

  /// `wake` makes the transfer thread take its next turn soon. `beginning`: nil for the mount's first server.
  init(
    store: StoreAccess, options: ReadingOptions, clock: Clock, beginning: MountBeginning? = nil,
    wake: @escaping @Sendable () -> Void
  ) throws(StoreError) {
    self.store = store
    self.options = options
    self.clock = clock
    if let beginning {
      self.beginning = beginning
    } else {
      self.beginning = MountBeginning(firstID: try store.changes.nextID(), mountedAt: clock.date)
    }
    limits = Lock(options.limits)
    rules = Lock(try store.notes.rules())
    health = StoreHealth(clock: clock)
    ledger = StoreLedger(limit: options.maximumSize)
    ledger.limit(options.maximumSize, copiesStay: options.limits.evicts == .partial)
    transfers = Mailbox(wake: wake)
    keeper = Mailbox { [keeperSignal] in keeperSignal.raise() }
    finisher = Mailbox { [finisherSignal] in finisherSignal.raise() }
    try measureStore()
    keeper.post(.measureSpace)  // the limit may be lower than at the last mount
  }

  /// Whether the server is shutting down: no thread starts to wait for long work, and the finisher stops.
  var isEnding: Bool { ending.withLock { $0 } }
  func beginEnding() {
    ending.withLock { $0 = true }
    finisherSignal.raise()
  }

  /// The modification time of files whose origin names none, in seconds since 1970.
  var mountedAt: Int64 { beginning.mountedAt }

  /// Has the keeper write `change` to the catalog within a second, or at once.
  func record(_ change: CatalogChange, promptly: Bool = false) { keeper.post(.record(change, promptly: promptly)) }

  /// The keeper has committed `changes`.
  func recorded(_ changes: [CatalogChange]) {
    for case .learned(let generation) in changes {
      table.withLock { table in
        if table.unrecorded[generation.key]?.id == generation.id { table.unrecorded[generation.key] = nil }
      }
    }
  }

  /// What stat shows of a file in memory: the real size when it is known, else a placeholder that is not 0.
  func attributes(of content: Content, inode: Inode) -> Attributes {
    let now = clock.now
    return content.guarded.withLock { attributes(of: &$0.held, inode: inode, now: now) }
  }

  /// The same, for a caller who holds the file's lock.
  func attributes(of held: inout FileState, inode: Inode, now: Instant) -> Attributes {
    let modified = held.generation?.validators.lastModified ?? mountedAt
    return Attributes(
      inode: inode, isFolder: false, size: held.size ?? 1, modified: modified, isFinal: held.size != nil,
      isCacheable: held.showsSize(at: now))
  }

  /// The end of a message about an error that a program gets for `path`: the command that tells more.
  func explanation(of path: String) -> String {
    if options.mountpoint.isEmpty { return "" }
    let whole = "\(options.mountpoint)/\(path)"
    let isPlain = whole.utf8.allSatisfy { byte in
      (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
        || "/._-+,@:=".utf8.contains(byte)
    }
    return "; more: mediafs status \(isPlain ? whole : "'\(whole.replacing("'", with: "'\\''"))'")"
  }

  /// Counts one open less, of a handle that `wasClosing` or another one. After the last close of a superseded
  /// generation it is dropped.
  func uncount(_ content: Content, wasClosing: Bool = false) {
    let isUnused = content.guarded.withLock { guarded in
      guarded.waiters.closed(wasClosing: wasClosing)
      return guarded.waiters.opens == 0 && guarded.held.isSuperseded
    }
    if isUnused { dropIfUnused(content) }
  }

  /// Drops a superseded generation that no handle has open: from memory here, from the store by the keeper.
  func dropIfUnused(_ content: Content) {
    let generation = table.withLock { table -> GenerationRecord? in
      let unused = content.guarded.withLock { guarded in
        guarded.held.isSuperseded && guarded.waiters.opens == 0 ? guarded.held.generation : nil
      }
      if unused != nil { table.remove(content) }
      return unused
    }
    guard let generation else { return }
    keeper.post(
      .job { keeper in
        do throws(StoreError) {
          try keeper.forget(generation.id)
        } catch {
          let name = keeper.room.store.name(of: generation.key, generation.id)
          Log.error("\(name): its old version cannot be removed: \(error.message)")
        }
      })
  }
}
