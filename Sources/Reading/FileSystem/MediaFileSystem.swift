import Base
import Fetching
import Glibc
import Storing

/// The filesystem's operations, independent of the kernel: Mount decodes a request, calls a method, and replies.
///
/// Any thread may call every method, and none waits for the network. A method that takes a ticket answers now, or keeps
/// the ticket and answers it later through the ``ReplyPort``, exactly once.
package final class MediaFileSystem: Sendable {
  let room: ReadingRoom
  let store: StoreAccess
  private let siblings: SiblingProbe
  /// Who knows the folders whose names come from elsewhere.
  let folders = Lock<(any FolderSource)?>(nil)
  private let threads = Lock<(keeper: OwnedThread, finisher: OwnedThread)?>(nil)

  /// A filesystem over an open store whose manifest is imported. `wake` makes the transfer thread take its next turn
  /// soon; any thread calls it. `beginning`: what the mount's first server began with; nil if this is the first.
  package convenience init(
    store: StoreAccess, options: ReadingOptions, beginning: MountBeginning? = nil, wake: @escaping @Sendable () -> Void
  ) throws(StoreError) {
    try self.init(store: store, options: options, clock: .system, beginning: beginning, wake: wake)
  }

  init(
    store: StoreAccess, options: ReadingOptions, clock: Clock, beginning: MountBeginning? = nil,
    wake: @escaping @Sendable () -> Void
  ) throws(StoreError) {
    self.store = store
    room = try ReadingRoom(store: store, options: options, clock: clock, beginning: beginning, wake: wake)
    siblings = SiblingProbe(room: room)
    room.keeper.post(.job { $0.tellHosts() })
  }

  /// The client of the transfers: made and used on their thread only. `port` gets the replies to parked requests.
  package func makeClient(
    port: any ReplyPort, service: any TransferService, second: (any SecondSource)? = nil
  ) -> any TransferClient {
    TransferThread(room: room, port: port, service: service, second: second)
  }

  /// What the mount began with, for the servers that follow.
  package var beginning: MountBeginning { room.beginning }

  /// Loads what readers opened before this server, with how often: they go on reading. Called before ``start()``.
  package func goOn(with open: [Inode: Int]) { room.goOn(with: open) }

  /// Says of a file that the mount answers a request for it with EIO, as it killed two servers. Called before
  /// ``start()``.
  package func refuses(_ request: String, of inode: Inode) { room.note(refused: request, of: inode) }

  /// Starts the keeper and the finisher, which note in their records what they are busy with. Called once, before the
  /// first request.
  package func start(keeperRecord: ThreadRecord? = nil, finisherRecord: ThreadRecord? = nil) {
    let keeper = OwnedThread(name: "keeper", record: keeperRecord, standsBack: true) { [room] in
      Keeper(room: room).run()
    }
    let finisher = OwnedThread(name: "finisher", record: finisherRecord, standsBack: true) { [room] in
      Finisher(room: room).run()
    }
    threads.withLock { $0 = (keeper, finisher) }
  }

  /// Resumes the downloads that earlier mounts did not finish. The transfers must be running.
  package func resume() { room.keeper.post(.job { $0.resumeMore(after: .pins(after: nil)) }) }

  /// Announces the end of the server: calls that wait for long work return, and the finisher ends.
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

  /// The network changed: new connections are made, and every wait gets its whole timeout again.
  package func reconnect() { room.transfers.post(.reconnect) }

  /// What `status` says of the files.
  package var reports: FileReports { FileReports(room) }

  // MARK: Names

  /// The node `name` (raw bytes, any) in `parent`. ENOENT when there is none.
  package func lookup(parent: Inode, name: UnsafeBufferPointer<UInt8>) throws(Errno) -> Attributes {
    shown(try find(name, in: parent))
  }

  /// The same for whoever does not tell the kernel.
  package func find(_ name: UnsafeBufferPointer<UInt8>, in parent: Inode) throws(Errno) -> Attributes {
    guard let node = try room.io({ () throws(StoreError) in try store.tree.lookup(parent: parent, name: name) })
    else { throw .notFound }
    return attributes(of: node)
  }

  /// What is known of a node now; nil if the catalog does not have it, or does not tell, which the log says.
  package func known(_ inode: Inode) -> Attributes? {
    (try? room.io { () throws(StoreError) in try store.tree.node(inode) }).flatMap { $0 }.map(attributes)
  }

  /// The names of `folder` after `cookie` (0: from the first), until `visit` returns false or there are no more. `.`
  /// and `..` are not among them.
  package func list(_ folder: Inode, after cookie: Int64, _ visit: (DirectoryItem) -> Bool) throws(Errno) {
    // An empty page is also what a file has: it must not pass for an empty folder.
    guard let node = try room.io({ () throws(StoreError) in try store.tree.node(folder) }) else { throw .stale }
    if node.kind != .folder { throw .notDirectory }
    var position = cookie
    while true {
      let from = position
      let nodes = try room.io { () throws(StoreError) in
        try store.tree.list(folder, after: from, limit: Self.page)
      }
      for node in nodes {
        let item = DirectoryItem(cookie: node.entry, name: node.name, attributes: attributes(of: node))
        if !visit(item) { return }
        position = node.entry
      }
      if nodes.count < Self.page { return }
    }
  }

  /// About as many names as fill the kernel's buffer for one readdir.
  private static let page = 128

  /// Where `..` of `folder` leads.
  package func parent(of folder: Inode) -> Inode {
    (try? room.io { () throws(StoreError) in try store.tree.parent(of: folder) }) ?? rootInode  // logged by io
  }

  /// The path of a node in the mount, without a slash before it; nil if the list has it no more.
  package func path(of inode: Inode) -> String? {
    if inode == rootInode { return "" }
    return try? room.io { () throws(StoreError) in try store.tree.path(of: inode) }  // logged by io
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
    let (content, unrecorded) = room.table.withLock { table in
      (table.contents[node.inode] ?? table.current[node.key], table.unrecorded[node.key])
    }
    if let content { return attributes(of: content, node) }
    if let unrecorded, let size = unrecorded.size {
      return Attributes(
        inode: node.inode, isFolder: false, size: size,
        modified: unrecorded.validators.lastModified ?? room.mountedAt, isFinal: true)
    }
    return listed(node)
      ?? Attributes(
        inode: node.inode, isFolder: false, size: 1, modified: room.mountedAt, isFinal: false)
  }

  /// What memory knows of a node's file; what the list says, while the origin has said nothing.
  private func attributes(of content: Content, _ node: Node) -> Attributes {
    let known = room.attributes(of: content, inode: node.inode)
    if known.isFinal { return known }
    // A body without a length has the placeholder: the origin has answered, and the list's size may be another's.
    // Nor while handles are open, which saw the origin's.
    guard content.guarded.withLock({ $0.held.generation == nil && $0.waiters.opens == 0 }) else { return known }
    return listed(node) ?? known
  }

  /// Notes that the kernel learns the origin's size of a file.
  private func shown(_ attributes: Attributes) -> Attributes {
    if attributes.isFinal { room.table.withLock { $0.listedSizes.showedOrigins(attributes.inode) } }
    return attributes
  }

  /// What the list says of the file; nil if it gives no size. The kernel does not cache it, as an open may find that
  /// the origin has another size.
  private func listed(_ node: Node) -> Attributes? {
    guard node.size == nil, let size = node.listedSize else { return nil }
    room.table.withLock { $0.listedSizes.showedListed(node.inode, size: size) }
    return Attributes(
      inode: node.inode, isFolder: false, size: size, modified: node.listedDate ?? room.mountedAt, isFinal: false)
  }

  /// What stat shows. Parks when the size has to be found out first.
  package func attributes(of inode: Inode, ticket: Ticket, caller: Caller) -> Answer<Attributes> {
    do throws(Errno) {
      if let content = room.table.withLock({ $0.contents[inode] }) {
        let known = room.attributes(of: content, inode: inode)
        if known.isFinal { return .now(shown(known)) }
        let node = try room.io({ () throws(StoreError) in try store.tree.node(inode) })
        if let node {
          let listed = attributes(of: content, node)
          if listed.size == node.listedSize { return .now(listed) }
          siblings.looked(at: node, process: caller.process)
        }
        return try probe(content, inode, folder: node?.parent ?? 0, ticket, caller)
      }
      if let node = try room.io({ () throws(StoreError) in try store.tree.node(inode) }) {
        let known = attributes(of: node)
        if known.isFinal || known.size == node.listedSize { return .now(shown(known)) }
        siblings.looked(at: node, process: caller.process)
        return try probe(try room.content(of: inode), inode, folder: node.parent, ticket, caller)
      }
      guard let (_, old) = try room.io({ () throws(StoreError) in try store.generations.superseded(inode: inode) }),
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
      let now = room.clock.now
      // One look decides: between two, the transfer thread may learn the length.
      let answer = content.guarded.withLock { guarded -> Answer<Attributes>? in
        let shown = room.attributes(of: &guarded.held, inode: inode, now: now)
        if shown.isFinal { return .now(shown) }
        if guarded.held.isPutAway { return nil }
        // A stat of a body without a length is answered at once: otherwise it would wait for the whole download.
        guard case .unknown = guarded.held.length, !guarded.waiters.isUnlisted else { return .now(shown) }
        let probe = ParkedProbe(
          ticket: ticket, kind: .attributes, inode: inode, since: now, process: caller.process, folder: folder)
        return guarded.waiters.probe(probe) == .park ? .parked : .now(shown)
      }
      guard let answer else {
        content = try room.content(of: inode)
        continue
      }
      if case .parked = answer { room.transfers.post(.changed(content)) }
      return answer
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
        // The kernel looks the name up again, which leads elsewhere, or to nothing.
        if guarded.held.isSuperseded || guarded.waiters.isUnlisted { return (.failed(.stale), false) }
        guarded.waiters.lastOpened = inode
        // A file that failed is tried again: its reads may come before the transfer thread knows of this open.
        guarded.waiters.clearRefusal()
        switch guarded.held.length {
        case .known:
          if guarded.held.isToBeChecked(now, after: max(room.options.fresh, OpenChecks.longest)),
            case .park = guarded.waiters.probe(
              ParkedProbe(ticket: ticket, kind: .check, inode: inode, since: now, process: caller.process))
          {
            // Counted when it is answered: another version may answer it with ESTALE.
            guarded.waiters.closed()
            return (.parked, false)
          }
          let isComplete = guarded.held.isCopy
          // While its bytes are being removed, reads go through the server: the next open could not use the copy.
          let copy = isComplete && guarded.held.removal == .none ? guarded.held.file : nil
          return (.now(OpenMode(directIO: false, copy: copy)), isComplete)
        case .growing: return (.now(OpenMode(directIO: true)), false)
        case .unknown:
          // Counted when it is answered: a parked open may still fail.
          guarded.waiters.closed()
          _ = guarded.waiters.probe(
            ParkedProbe(ticket: ticket, kind: .open, inode: inode, since: now, process: caller.process))
          return (.parked, false)
        }
      }
      // Looked at after the file: its size may have come just now.
      var isDirect = false
      if case .now = answer, let size = content.guarded.withLock({ $0.held.size }) {
        switch room.table.withLock({ $0.listedSizes.opens(inode, size: size) }) {
        case .open: break
        case .direct: isDirect = true
        case .stale:
          isCounted = false
          return .failed(.stale)
        }
      }
      if case .failed = answer { isCounted = false }
      // The kernel may have cached what a user wrote to the copy: the origin's bytes get another inode.
      if content.guarded.withLock({ $0.held.holding == .modified && !$0.held.isSuperseded }), isCounted {
        room.transfers.post(.renew(content, inode, ticket))
        return .parked
      }
      if !isComplete {
        room.transfers.post(.opened(content))
      } else if room.options.looksAhead || room.options.shares, !ScanPrograms.contains(process: caller.process) {
        room.transfers.post(.held(content))
      }
      if isDirect { return .now(OpenMode(directIO: true)) }
      // The kernel reads ahead for nobody where a program only looks at the file, and what it asks for is fetched.
      if !isComplete, case .now = answer, ScanPrograms.contains(process: caller.process) {
        content.guarded.withLock { $0.waiters.looks(caller.process) }
        return .now(OpenMode(directIO: true))
      }
      return answer
    } catch {
      return .failed(error)
    }
  }

  /// Gives the file of `inode`, for whose open the caller has not replied yet, another inode, and then answers `ticket`
  /// with ESTALE, so that the kernel looks its name up again. For a file whose open handles the kernel reads from a
  /// copy that was changed or is gone: it would read new handles from there too.
  ///
  /// False: the file is not in memory, and the caller answers with ESTALE itself.
  package func renew(_ inode: Inode, ticket: Ticket) -> Bool {
    guard let content = room.table.withLock({ $0.contents[inode] }) else { return false }
    room.transfers.post(.renew(content, inode, ticket))
    return true
  }

  /// Reads into `buffer` (as long as the request). `.now(count)`: so many bytes are there, fewer than requested only at
  /// the end of the file.
  package func read(
    _ inode: Inode, at offset: Int64, into buffer: UnsafeMutableRawBufferPointer, ticket: Ticket, caller: Caller
  ) -> Answer<Int> {
    while true {
      let content: Content
      do {
        content = try room.content(of: inode)
      } catch {
        room.counters.readFailed(error)
        return .failed(error)
      }
      let answer = content.read(
        at: offset, into: buffer, ticket: ticket, process: caller.process, now: room.clock.now, in: room)
      guard let answer else { continue }  // put away meanwhile
      if case .parked = answer { room.transfers.post(.changed(content)) }
      return answer
    }
  }

  /// The last reference to a handle was closed.
  package func release(_ inode: Inode) {
    let loaded = room.table.withLock { table in
      if table.contents[inode] == nil { table.closedUnloaded(inode) }
      return table.contents[inode]
    }
    guard let content = loaded else { return }
    let (now, date) = (room.clock.now, room.clock.date)
    let (generation, isLast, isComplete, uses) = content.guarded.withLock { guarded in
      // Of two threads that close the last two handles, one has the last.
      let isLast = guarded.waiters.closes()
      guarded.held.used()
      return (
        guarded.held.generation?.id, isLast, guarded.held.isCopy,
        isLast && !guarded.held.isCopy ? guarded.uses.taken(now, date: date) : nil
      )
    }
    // The transfer thread puts a complete file away after its last close; while it counts as open it cannot.
    if isLast { room.transfers.post(isComplete ? .changed(content) : .closed(content)) }
    room.uncount(content, wasClosing: true)
    guard isLast, let generation else { return }
    room.record(.used(generation: generation, at: date))
    if let uses { room.record(.usedBlocks(generation: generation, uses)) }
  }

  /// The kernel sent INTERRUPT for a parked ticket. `isKilled`: its caller has a SIGKILL pending.
  ///
  /// A caller that only got a signal keeps waiting: a stat that fails with EINTR breaks programs that never expect it.
  ///
  /// True: the ticket is not parked any more, and the caller answers it with EINTR.
  package func interrupt(_ ticket: Ticket, isKilled: Bool) -> Bool {
    guard isKilled else { return false }
    if folders.withLock({ $0 })?.interrupt(ticket) == true { return true }
    let contents = room.table.withLock { table in Array(table.contents.values) }
    return contents.contains { content in content.guarded.withLock { $0.waiters.take(ticket) } }
  }

  /// What statfs shows.
  package func capacity() throws(Errno) -> Capacity {
    let space = try room.io { () throws(StoreError) in try store.partials.space() }
    let counts = try room.io { () throws(StoreError) in try store.tree.counts() }
    return Capacity(
      total: space.total, free: space.free, available: space.available, names: UInt64(clamping: counts.names))
  }

  /// The value of an extended attribute; ENODATA when the node has none of that name.
  package func extendedAttribute(_ name: String, of inode: Inode) throws(Errno) -> [UInt8] {
    try ExtendedAttributes(room).value(of: name, inode)
  }

  /// The names of its extended attributes.
  package func extendedAttributes(of inode: Inode) throws(Errno) -> [String] {
    try ExtendedAttributes(room).names(of: inode)
  }
}
