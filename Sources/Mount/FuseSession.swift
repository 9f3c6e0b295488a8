import Base
import CFuse
import Glibc
import Reading

/// A mounted filesystem being served: requests come from /dev/fuse, answers go back. See `docs/decisions` for the
/// threads and why they are so.
///
/// The thread that calls ``run(ready:)`` answers INIT, starts the others and waits for their end; loop threads
/// (``LoopThreads``) serve; one thread is the ``Notifier``'s.
///
/// Locks: one in each of `Tickets`, `LoopThreads` and `Notifier`, two in `Passthrough`; none is held while another is
/// taken, nor over a call that leaves the room.
package final class FuseSession: Sendable {
  private let options: MountOptions
  let operations: Operations
  let device: Device
  private let notifier: Notifier
  private let loop: LoopThreads

  /// Prepares to serve `fileSystem`.
  ///
  /// `device` is a /dev/fuse descriptor that is already mounted: a helper mounted it and handed it over. It is closed
  /// when ``run(ready:)`` ends; the kernel then fails what is parked, unless another process holds the descriptor too.
  package convenience init(
    device: consuming FileDescriptor, fileSystem: MediaFileSystem, options: MountOptions
  ) throws(MountError) {
    try self.init(device: device, serving: fileSystem, options: options)
  }

  init(device: consuming FileDescriptor, serving fileSystem: any Served, options: MountOptions) throws(MountError) {
    self.options = options
    let descriptor: Int32
    do throws(Errno) {
      notifier = try Notifier()
      // libfuse closes the number it is given by itself, so it gets one of its own; `device` closes with this scope.
      descriptor = try duplicate(device.rawValue)
    } catch { throw .device("preparing to serve", error) }
    let handshake = Handshake(options: options)
    let tickets = Tickets(fileSystem: fileSystem, notifier: notifier)
    operations = Operations(
      fileSystem: fileSystem, appearance: Appearance(options), handshake: handshake, tickets: tickets,
      passthrough: Passthrough(descriptor: descriptor, handshake: handshake))
    self.device = try Device(descriptor: descriptor, operations: operations)
    do throws(Errno) {
      loop = try LoopThreads(device: self.device, tickets: tickets, maxRead: options.maxRead)
    } catch { throw .device("preparing to serve", error) }
  }

  /// Makes ``run(ready:)`` end soon, without unmounting. From any thread, any number of times.
  package func stop() { loop.stop() }

  /// Serves until the mount is gone or ``stop()`` is called. To be called once, on a thread that may wait.
  ///
  /// `ready` is called once on this thread, after INIT was answered, with the raw bytes of the INIT request. It is not
  /// called when the mount ends before.
  package func run(ready: @escaping @Sendable ([UInt8]) -> Void) throws(MountError) {
    defer { device.close() }
    guard try answerInit(ready) else { return }
    let notifying = OwnedThread(name: "fuse-notify") { [notifier, device, operations] in
      notifier.run(device, operations.tickets)
    }
    let threads = loop.start(max(1, options.threads))
    loop.waitForEnd()
    // The notifier first, while requests are still served: the kernel may hold it until a lookup is answered.
    notifier.end()
    notifying.join()
    try loop.end(threads)
  }

  /// Answers INIT; false when the mount ended or `stop` came before it.
  private func answerInit(_ ready: ([UInt8]) -> Void) throws(MountError) -> Bool {
    let thread = LoopThread(maxRead: options.maxRead)
    let handshake = operations.handshake
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
        let copy = Array(bytes)
        handshake.receive(bytes)
        device.process(bytes)
        if device.isExited { throw .handshake }
        if handshake.isDone { ready(copy) }
      case .again: continue
      case .unmounted: return false
      case .failed(let error): throw .device("read", error)
      }
    }
    return true
  }
}

// Any thread may call these: the transfer thread answers what was parked.
extension FuseSession: ReplyPort {
  /// Answers a parked read.
  package func reply(_ ticket: Ticket, data: UnsafeRawBufferPointer) {
    guard let request = operations.tickets.take(ticket) else { return }
    fuse_reply_buf(request, data.baseAddress?.assumingMemoryBound(to: CChar.self), data.count)  // bytes, for C
  }

  /// Answers a parked stat.
  package func reply(_ ticket: Ticket, attributes: Attributes) {
    guard let request = operations.tickets.take(ticket) else { return }
    operations.appearance.send(attributes, to: request)
  }

  /// Answers a parked open; false when the kernel does not want it any more.
  package func reply(_ ticket: Ticket, opened mode: OpenMode, inode: Inode) -> Bool {
    guard let request = operations.tickets.take(ticket) else { return false }
    let passthrough = operations.passthrough
    guard let way = passthrough.counted(inode, mode) else {
      // It became known only now, and yet open handles read from a copy: of a time before it was forgotten.
      refuse(request, .stale)
      return false
    }
    if passthrough.send(way, mode, to: request, inode) { return true }
    passthrough.uncount(inode)
    return false
  }

  /// Answers a parked request with an error.
  package func reply(_ ticket: Ticket, error: Errno) { operations.tickets.refuse(ticket, error) }

  /// Has the notifier tell the kernel to forget a name.
  package func invalidate(parent: Inode, name: String) { notifier.forget(name, in: parent) }

  /// Has the notifier tell the kernel to forget what it read of `range`.
  package func forgetPages(of inode: Inode, _ range: ByteRange) { notifier.forgetPages(of: inode, range) }
}

/// A second number for the same open file, close-on-exec.
private func duplicate(_ descriptor: Int32) throws(Errno) -> Int32 {
  // Behind the standard three: libfuse gives 0 to 2 a meaning of their own nowhere, but a message must not go to a
  // device.
  try retrying { fcntl(descriptor, F_DUPFD_CLOEXEC, 3) }
}
