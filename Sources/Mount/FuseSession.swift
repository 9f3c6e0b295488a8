import Base
import CFuse
import Glibc
import Reading

/// Serves one mount: reads requests from /dev/fuse and writes the replies. `docs/decisions` has the reasons for its
/// threads.
///
/// The thread that calls ``run(ready:)`` answers INIT, starts the others and waits for their end. The loop threads
/// (``LoopThreads``) serve requests. Two more threads are the ``Notifier``'s and the ``Waker``'s.
///
/// Locks: `Tickets`, `HandleTable`, `Notifier` and `Waker` have one each, `LoopThreads` and `Passthrough` two. No
/// thread takes a second lock while it holds one, and none holds one over a call that leaves the room.
package final class FuseSession: Sendable {
  private let options: MountOptions
  let operations: Operations
  let device: Device
  private let memory: SessionMemory
  private let notifier: Notifier
  private let waker: Waker
  private let loop: LoopThreads
  /// The numbers of requests that the last server took and that nobody can read any more.
  private let damaged: Set<UInt64>

  /// Prepares to serve `fileSystem`.
  ///
  /// `device` is the /dev/fuse descriptor of a mount: a helper mounted it and passed it on. ``run(ready:)`` closes it
  /// at its end. The kernel then fails the parked requests, unless another process holds the descriptor too.
  ///
  /// `memory` has what an earlier server of the mount left. `notices`, `backing` and `waking` are the sockets to the
  /// helper that writes notifications, registers complete files (``BackingFiles``) and starts wakers (``Waker``).
  package convenience init(
    device: consuming FileDescriptor, memory: SessionMemory, notices: consuming FileDescriptor,
    backing: consuming FileDescriptor, waking: consuming FileDescriptor, fileSystem: MediaFileSystem,
    options: MountOptions
  ) throws(MountError) {
    try self.init(
      device: device, memory: memory, notices: notices, backing: backing, waking: waking, serving: fileSystem,
      options: options)
  }

  init(
    device: consuming FileDescriptor, memory: SessionMemory, notices: consuming FileDescriptor? = nil,
    backing: consuming FileDescriptor? = nil, waking: consuming FileDescriptor? = nil, serving fileSystem: any Served,
    options: MountOptions
  ) throws(MountError) {
    self.options = options
    self.memory = memory
    let descriptor: Int32
    do throws(Errno) {
      notifier = try Notifier()
      waker = try Waker(waking)
      // libfuse closes the descriptor that it is given, so it gets a duplicate; `device` closes with this scope.
      descriptor = try duplicate(device.rawValue)
    } catch { throw .device("preparing to serve", error) }
    let handshake = Handshake(options: options)
    let left = memory.leftRequests()
    damaged = left.damaged
    let damagedHandles = HandleTable.dropDamaged(in: memory)
    if !damaged.isEmpty || damagedHandles > 0 {
      Log.error(
        "the session memory is damaged: \(damaged.count) requests fail, and \(damagedHandles) open handles are unknown")
    }
    let passthrough = Passthrough(
      files: BackingFiles(backing), handshake: handshake, memory: memory, pending: left.numbers)
    let tickets = Tickets(fileSystem: fileSystem, notifier: notifier, passthrough: passthrough, memory: memory)
    operations = Operations(
      fileSystem: fileSystem, appearance: Appearance(options), handshake: handshake, tickets: tickets,
      passthrough: passthrough, waker: waker,
      writer: ReplyWriter(handshake: handshake, memory: memory, notifier: notifier, notices: notices))
    self.device = try Device(descriptor: descriptor, operations: operations)
    do throws(Errno) {
      loop = try LoopThreads(
        device: self.device, tickets: tickets, memory: memory, left: left.requests, options: options)
    } catch { throw .device("preparing to serve", error) }
  }

  /// How often each inode is open. Before ``run(ready:)``: as the last server of the mount left it.
  package var opens: [Inode: Int] {
    operations.passthrough.openFiles.withLock { $0.open.reduce(into: [:]) { $0[$1.inode] = $1.opens } }
  }

  /// The requests that killed servers of this mount and are answered with EIO from now on: for which inode, and what.
  package var refused: [(inode: Inode, text: String)] { memory.refused.map { ($0.inode, $0.text) } }

  /// Makes ``run(ready:)`` end soon, without unmounting. Any thread may call it, any number of times.
  package func stop() { loop.stop() }

  /// Serves until the mount is gone or ``stop()`` is called. Call it once, on a thread that may wait.
  ///
  /// Calls `ready` once on this thread, after it answered INIT. If the mount ends before, it never calls `ready`.
  package func run(ready: @escaping @Sendable () -> Void) throws(MountError) {
    defer {
      operations.tickets.end()
      device.close()
    }
    guard try answerInit(ready) else { return }
    for number in damaged { device.refuse(number) }
    let notifying = OwnedThread(name: "fuse-notify") { [notifier, device, operations] in
      notifier.run(device, operations.tickets)
    }
    let waking = OwnedThread(name: "fuse-wake") { [waker, notifier, operations] in
      waker.run(operations.fileSystem, notifier)
    }
    let threads = loop.start()
    loop.waitForEnd()
    waker.end()
    waking.join()
    // The notifier waits for the helper no longer. Only in a session without a helper the kernel may hold it, until a
    // lookup is answered or the mount is gone.
    notifier.end()
    notifying.join()
    try loop.end(threads)
  }

  /// The header and what every kernel's INIT has, in bytes.
  private static let leastInit = 40 + 16

  /// Answers INIT, or lets libfuse repeat the answer of an earlier server. Returns false if the mount ended or
  /// ``stop()`` was called before.
  private func answerInit(_ ready: () -> Void) throws(MountError) -> Bool {
    let handshake = operations.handshake
    let saved = memory.initRequest
    if !saved.isEmpty {
      let isInit = saved.withUnsafeBytes { operation(of: $0) } == initOperation
      guard isInit, saved.count >= Self.leastInit else { throw .memory }
      saved.withUnsafeBytes { bytes in
        handshake.receive(bytes, again: true)
        device.process(bytes)
      }
      guard handshake.isDone, !device.isExited else { throw .handshake }
      ready()
      return true
    }
    let thread = LoopThread(0, memory, maxRead: options.maxRead)
    while !handshake.isDone {
      var waiting = [
        pollfd(fd: device.descriptor, events: Int16(POLLIN), revents: 0),
        pollfd(fd: loop.wakeUp.rawValue, events: Int16(POLLIN), revents: 0),
      ]
      do throws(Errno) {
        _ = try retrying { poll(&waiting, 2, -1) }
      } catch { throw .device("poll", error) }
      if loop.isStopping { return false }
      switch device.receive(into: thread.request) {
      case .request(let bytes):
        guard operation(of: bytes) == initOperation else { throw .handshake }
        try memory.save(initRequest: bytes)
        handshake.receive(bytes, again: false)
        device.process(bytes)
        memory.clearBuffer(thread.index)
        if device.isExited { throw .handshake }
        if handshake.isDone { ready() }
      case .again: continue
      case .unmounted: return false
      case .failed(let error): throw .device("read", error)
      }
    }
    return true
  }
}

// Any thread may call these: the transfer thread answers parked requests.
extension FuseSession: ReplyPort {
  /// Answers a parked read.
  package func reply(_ ticket: Ticket, data: UnsafeRawBufferPointer) {
    _ = operations.tickets.answer(ticket) { request, _ in
      // C's type for bytes.
      fuse_reply_buf(request, data.baseAddress?.assumingMemoryBound(to: CChar.self), data.count) == 0
    }
  }

  /// Answers a parked stat.
  package func reply(_ ticket: Ticket, attributes: Attributes) {
    _ = operations.tickets.answer(ticket) { request, _ in
      operations.appearance.send(attributes, to: request)
      return true
    }
  }

  /// Answers a parked open. Returns false if the caller's count of it does not stay (``Passthrough/send(_:_:to:)``).
  package func reply(_ ticket: Ticket, opened mode: OpenMode, inode: Inode) -> Bool {
    let passthrough = operations.passthrough
    return operations.tickets.answer(ticket) { request, unique in
      switch passthrough.opening(inode, mode, unique: unique) {
      case .open(let opening): return passthrough.send(opening, mode, to: request)
      // Open handles of the inode still read a copy that the catalog no longer knows.
      case .conflict: refuse(request, .stale)
      case .tooMany: refuse(request, .tooManyFiles)
      }
      return false
    }
  }

  /// Answers a parked open of a folder.
  package func replyFolder(_ ticket: Ticket) {
    _ = operations.tickets.answer(ticket) { request, _ in cfuse_reply_opendir(request) == 0 }
  }

  /// Answers a parked request with an error.
  package func reply(_ ticket: Ticket, error: Errno) { operations.tickets.refuse(ticket, error) }

  /// Makes the notifier tell the kernel to forget a name; if its file has changed, programs that watch are told.
  package func invalidate(parent: Inode, name: String, isChanged: Bool) {
    notifier.forget(TreeName(parent, name))
    if isChanged { waker.changed(.replaced(parent: parent, name: name)) }
  }

  /// Hides new names, before the catalog has them, until ``announce(_:)`` has shown them.
  package func prepare(_ added: [TreeChange]) { waker.prepare(added) }

  /// Has programs that watch the mount told of changes that the catalog has, shows the new names, and makes the kernel
  /// forget what it knew of all of them.
  package func announce(_ changes: [TreeChange]) { waker.announce(changes) }

  /// Waits until all that was announced is told, for `seconds` at most: by default as long as a user who asked for a
  /// reload may wait.
  package func settle(atMost seconds: Double = 2) { waker.settle(atMost: seconds) }

  /// Makes the kernel forget names that came or went, and what it has of their folders' listings. No program is told.
  package func forget(_ changes: [TreeChange]) {
    for change in changes { notifier.forget(TreeName(change)) }
    // A name that the kernel did not know leaves the listing as it is.
    for folder in Set(changes.map(\.parent)) { notifier.forgetListing(of: folder) }
  }

  /// Makes the notifier tell the kernel to drop its cached pages of `range`.
  package func forgetPages(of inode: Inode, _ range: ByteRange) { notifier.forgetPages(of: inode, range) }
}

/// Duplicates a descriptor, close-on-exec.
private func duplicate(_ descriptor: Int32) throws(Errno) -> Int32 {
  // Not 0 to 2, so that a message to stderr cannot reach the device.
  try retrying { fcntl(descriptor, F_DUPFD_CLOEXEC, 3) }
}
