import Base
import Fetching
import Glibc
import Storing

/// The filesystem as the kernel sees it, without a kernel: the mount decodes a request, calls, and replies.
///
/// Every method may be called from any thread and none waits for the network. What takes a ticket either answers now or
/// keeps the ticket and answers through the ``ReplyPort`` later, exactly once.
package final class MediaFileSystem: Sendable {
  let room: ReadingRoom
  let store: StoreAccess
  private let siblings: SiblingProbe
  private let threads = Lock<(keeper: OwnedThread, finisher: OwnedThread)?>(nil)

  /// A filesystem over an open store whose manifest is imported. `wake` makes the transfer thread turn soon; any thread
  /// calls it.
  package convenience init(
    store: StoreAccess, options: ReadingOptions, wake: @escaping @Sendable () -> Void
  ) throws(StoreError) {
    try self.init(store: store, options: options, clock: .system, wake: wake)
  }

  init(
    store: StoreAccess, options: ReadingOptions, clock: Clock, wake: @escaping @Sendable () -> Void
  ) throws(StoreError) {
    self.store = store
    room = try ReadingRoom(store: store, options: options, clock: clock, wake: wake)
    siblings = SiblingProbe(room: room)
  }

  /// What the transfers call: made on their thread, to be used there alone. `port` gets the answers that come later.
  package func makeClient(port: any ReplyPort, service: any TransferService) -> any TransferClient {
    TransferThread(room: room, port: port, service: service)
  }

  /// Starts the keeper and the finisher. To be called once, before the first request.
  package func start() {
    let keeper = OwnedThread(name: "keeper") { [room] in Keeper(room: room).run() }
    let finisher = OwnedThread(name: "finisher") { [room] in Finisher(room: room).run() }
    threads.withLock { $0 = (keeper, finisher) }
  }

  /// Goes on with what was being fetched when it was mounted last. The transfers must be running.
  package func resume() { room.keeper.post(.job { $0.resumeMore(after: .pins(after: nil)) }) }

  /// The server is about to end: calls that wait for long work return, and the finisher ends.
  package func beginEnding() { room.beginEnding() }

  /// Commits everything with its data synced and ends the threads. The transfers must have ended.
  package func stop() {
    room.beginEnding()
    let running = threads.withLock { threads in
      defer { threads = nil }
      return threads
    }
    running?.finisher.join()
    room.keeper.post(.stop)
    running?.keeper.join()
  }

  /// The network changed: connections are made anew and who waits gets a fresh deadline.
  package func reconnect() { room.transfers.post(.reconnect) }

  // MARK: Names

  /// The node `name` (raw bytes, any) in `parent`. ENOENT when there is none.
  package func lookup(parent: Inode, name: UnsafeBufferPointer<UInt8>) throws(Errno) -> Attributes {
    guard let node = try room.io({ () throws(StoreError) in try store.catalog.lookup(parent: parent, name: name) })
    else { throw .notFound }
    return attributes(of: node)
  }

  /// The names of `folder` behind `cookie` (0: from the first), until `visit` returns false or there are no more. `.`
  /// and `..` are not among them.
  package func list(_ folder: Inode, after cookie: Int64, _ visit: (DirectoryItem) -> Bool) throws(Errno) {
    // An empty page is also what a file has: it must not pass for an empty folder.
    guard let node = try room.io({ () throws(StoreError) in try store.catalog.node(folder) }) else { throw .stale }
    if node.kind != .folder { throw .notDirectory }
    var position = cookie
    while true {
      let from = position
      let nodes = try room.io { () throws(StoreError) in
        try store.catalog.list(folder, after: from, limit: Self.page)
      }
      for node in nodes {
        let item = DirectoryItem(cookie: node.entry, name: node.name, attributes: attributes(of: node))
        if !visit(item) { return }
        position = node.entry
      }
      if nodes.count < Self.page { return }
    }
  }

  /// As many names fill a kernel's buffer for a listing.
  private static let page = 128

  /// Where `..` of `folder` leads.
  package func parent(of folder: Inode) -> Inode {
    (try? room.io { () throws(StoreError) in try store.catalog.parent(of: folder) }) ?? rootInode  // logged by io
  }

  // MARK: Attributes

  /// What the catalog knows of a node, and what memory knows better.
  private func attributes(of node: Node) -> Attributes {
    if node.kind == .folder {
      return Attributes(inode: node.inode, isFolder: true, size: 0, modified: room.mountedAt, isFinal: true)
    }
    if let size = node.size {
      return Attributes(
        inode: node.inode, isFolder: false, size: size, modified: node.modified ?? room.mountedAt, isFinal: true)
    }
    if let content = room.table.withLock({ $0.contents[node.inode] ?? $0.current[node.key] }) {
      return room.attributes(of: content, inode: node.inode)
    }
    return Attributes(inode: node.inode, isFolder: false, size: 1, modified: room.mountedAt, isFinal: false)
  }

  /// What stat shows. Parks when the size is to be found first.
  package func attributes(of inode: Inode, ticket: Ticket, caller: Caller) -> Answer<Attributes> {
    do throws(Errno) {
      if let content = room.table.withLock({ $0.contents[inode] }) {
        let known = room.attributes(of: content, inode: inode)
        if known.isFinal { return .now(known) }
        let node = try room.io({ () throws(StoreError) in try store.catalog.node(inode) })
        if let node { siblings.looked(at: node, process: caller.process) }
        return try probe(content, inode, folder: node?.parent ?? 0, ticket, caller)
      }
      if let node = try room.io({ () throws(StoreError) in try store.catalog.node(inode) }) {
        let known = attributes(of: node)
        if known.isFinal { return .now(known) }
        siblings.looked(at: node, process: caller.process)
        return try probe(try room.content(of: inode), inode, folder: node.parent, ticket, caller)
      }
      guard let (_, old) = try room.io({ () throws(StoreError) in try store.catalog.superseded(inode: inode) }),
        let size = old.size
      else { return .failed(.stale) }
      let modified = old.validators.lastModified ?? room.mountedAt
      return .now(Attributes(inode: inode, isFolder: false, size: size, modified: modified, isFinal: true))
    } catch {
      return .failed(error)
    }
  }

  private func probe(
    _ first: Content, _ inode: Inode, folder: Inode, _ ticket: Ticket, _ caller: Caller
  ) throws(Errno) -> Answer<Attributes> {
    var content = first
    while true {
      let known = room.attributes(of: content, inode: inode)
      if known.isFinal { return .now(known) }
      let now = room.clock.now
      // A body without a length goes on without one: a stat that waited for its end would wait for the whole download.
      let (isPutAway, decision) = content.guarded.withLock { guarded -> (Bool, Waiters.ReadDecision?) in
        if guarded.held.isPutAway { return (true, nil) }
        guard case .unknown = guarded.held.length else { return (false, nil) }
        let probe = ParkedProbe(
          ticket: ticket, kind: .attributes, inode: inode, since: now, process: caller.process, folder: folder)
        return (false, guarded.waiters.probe(probe))
      }
      if isPutAway {
        content = try room.content(of: inode)
        continue
      }
      guard case .park = decision else { return .now(known) }
      room.transfers.post(.changed(content))
      return .parked
    }
  }

  // MARK: Files

  /// Opens a file; every successful open (also a parked one that the port took) is matched by one ``release(_:)``.
  package func open(_ inode: Inode, ticket: Ticket, caller: Caller) -> Answer<OpenMode> {
    do throws(Errno) {
      let content = try room.content(of: inode, opening: true)
      var isCounted = true
      defer { if !isCounted { room.uncount(content) } }
      do throws(Errno) {
        try room.recheck(content)
      } catch {
        isCounted = false
        throw error
      }
      let now = room.clock.now
      let (answer, isComplete) = content.guarded.withLock { guarded -> (Answer<OpenMode>, Bool) in
        if guarded.held.isSuperseded { return (.failed(.stale), false) }
        switch guarded.held.length {
        case .known:
          let isComplete = guarded.held.isCopy
          // One whose bytes are being removed is read through us: its copy will not do for the next open.
          let copy = isComplete && guarded.held.removal == .none ? guarded.held.file : nil
          return (.now(OpenMode(directIO: false, copy: copy)), isComplete)
        case .growing: return (.now(OpenMode(directIO: true)), false)
        case .unknown:
          guarded.waiters.clearRefusal()
          // Counted when it is answered: a parked open may still fail.
          guarded.waiters.opens -= 1
          _ = guarded.waiters.probe(
            ParkedProbe(ticket: ticket, kind: .open, inode: inode, since: now, process: caller.process))
          return (.parked, false)
        }
      }
      if case .failed = answer { isCounted = false }
      // What the kernel remembers of this inode may be what a user made of the copy: the origin's bytes get another
      // one.
      if content.guarded.withLock({ $0.held.holding == .touched && !$0.held.isSuperseded }), isCounted {
        room.transfers.post(.renew(content, inode, ticket))
        return .parked
      }
      if !isComplete { room.transfers.post(.opened(content)) }
      return answer
    } catch {
      return .failed(error)
    }
  }

  /// Answers `ticket`, of an open that was answered here, with ESTALE, once the file has another inode: the kernel then
  /// looks its name up again and opens that. For a file whose open handles the kernel reads from a copy that is not the
  /// origin's any more, or is gone, so that it could give new ones nothing else either.
  ///
  /// False: there is no such file open, and the caller is to answer with ESTALE itself.
  package func renew(_ inode: Inode, ticket: Ticket) -> Bool {
    guard let content = room.table.withLock({ $0.contents[inode] }) else { return false }
    room.transfers.post(.renew(content, inode, ticket))
    return true
  }

  /// Reads into `buffer` (as long as the request): `.now(count)` bytes are there, fewer than asked only at the end.
  package func read(
    _ inode: Inode, at offset: Int64, into buffer: UnsafeMutableRawBufferPointer, ticket: Ticket, caller: Caller
  ) -> Answer<Int> {
    while true {
      let content: Content
      do {
        content = try room.content(of: inode)
      } catch {
        return .failed(error)
      }
      let answer = content.read(
        at: offset, into: buffer, ticket: ticket, process: caller.process, now: room.clock.now)
      guard let answer else { continue }  // put away since
      if case .parked = answer { room.transfers.post(.changed(content)) }
      return answer
    }
  }

  /// A handle was closed for good.
  package func release(_ inode: Inode) {
    guard let content = room.table.withLock({ $0.contents[inode] }) else { return }
    let (generation, isLast, isComplete) = content.guarded.withLock { guarded in
      (guarded.held.generation?.id, guarded.waiters.opens == 1, guarded.held.isCopy)
    }
    // A complete file is nothing to plan for, but must be put away, too; while it still counts as open it cannot be.
    if isLast, isComplete { room.transfers.post(.changed(content)) }
    room.uncount(content)
    if isLast, let generation { room.record(.used(generation: generation, at: room.clock.date)) }
  }

  /// The kernel sent INTERRUPT for a parked ticket. `isKilled`: its caller has a SIGKILL pending.
  ///
  /// A caller that only got a signal keeps waiting: a stat that fails with EINTR breaks programs that never expect it.
  ///
  /// True: it is parked no more, and the caller is to answer it with EINTR.
  package func interrupt(_ ticket: Ticket, isKilled: Bool) -> Bool {
    guard isKilled else { return false }
    let contents = room.table.withLock { table in Array(table.contents.values) }
    return contents.contains { content in content.guarded.withLock { $0.waiters.take(ticket) } }
  }

  /// What statfs shows.
  package func capacity() throws(Errno) -> Capacity {
    let space = try room.io { () throws(StoreError) in try store.folder.space() }
    let counts = try room.io { () throws(StoreError) in try store.catalog.counts() }
    return Capacity(
      total: space.total, free: space.free, available: space.available, names: UInt64(clamping: counts.names))
  }
}
