import Base
import CFuse
import Glibc

/// /dev/fuse, and libfuse's session over it: the way to the kernel and back.
///
/// Our own threads read the requests and give them to libfuse whole. Replies pass `deviceWrite`: this is where the
/// reply to INIT can be changed (for what this libfuse has no interface for) or kept from the kernel (when a new server
/// takes over a live mount).
final class Device: @unchecked Sendable {
  // @unchecked: `handle` never changes, and libfuse takes requests, replies and notifications from any thread.

  /// What came of reading a request.
  enum Received {
    case request(UnsafeRawBufferPointer)
    case again
    case unmounted
    case failed(Errno)
  }

  /// libfuse's session: made by `init`, destroyed by `deinit`, so a late reply always finds it.
  private let handle: OpaquePointer
  /// The device's number. libfuse owns it; once serving ended it is /dev/null under the same number.
  let descriptor: Int32
  /// What libfuse calls; held here because libfuse has no more than its address.
  private let operations: Operations

  /// Takes over `descriptor`, also when it throws.
  init(descriptor: Int32, operations: Operations) throws(MountError) {
    self.descriptor = descriptor
    self.operations = operations
    var table = operationTable()
    guard let handle = cfuse_session_new(&table, Unmanaged.passUnretained(operations).toOpaque()) else {
      Glibc.close(descriptor)
      throw .session("make a session", nil)
    }
    self.handle = handle
    let result = cfuse_attach(handle, descriptor, deviceRead, deviceWrite)
    if result != 0 {
      Glibc.close(descriptor)
      throw .session("take the descriptor", Errno(rawValue: -result))
    }
  }

  deinit {
    // Whoever could use it holds the object. libfuse closes the descriptor.
    fuse_session_destroy(handle)
  }

  // MARK: Requests, on the thread that owns the buffer

  /// Reads a request into `buffer`.
  func receive(into buffer: UnsafeMutableRawBufferPointer) -> Received {
    let count = Glibc.read(descriptor, buffer.baseAddress, buffer.count)
    if count >= 0 { return .request(UnsafeRawBufferPointer(rebasing: buffer[..<count])) }
    switch errno {
    case ENODEV, ECONNABORTED: return .unmounted
    // ENOENT: the request was withdrawn before it was read. EAGAIN: whoever opened the device made it non-blocking.
    case EINTR, ENOENT: return .again
    case EAGAIN:
      var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      _ = poll(&waiting, 1, 1000)  // bounded, as a signal may come before it; the caller's loop looks why
      return .again
    case let number: return .failed(Errno(rawValue: number))
    }
  }

  /// Lets libfuse decode one request and call its operation.
  func process(_ request: UnsafeRawBufferPointer) {
    var buffer = fuse_buf()
    buffer.size = request.count
    buffer.mem = UnsafeMutableRawPointer(mutating: request.baseAddress)  // only read: libfuse's type has no const
    fuse_session_process_buf(handle, &buffer)
  }

  /// Whether libfuse gave up.
  var isExited: Bool { fuse_session_exited(handle) != 0 }

  // MARK: Notifications, on the notifier's thread

  /// Has the kernel forget what it read of `range`. Waits for the reads that are under way there: what they bring goes,
  /// too.
  func forgetPages(of inode: Inode, _ range: ByteRange) {
    let result = fuse_lowlevel_notify_inval_inode(handle, inode, off_t(range.start), off_t(range.count))
    switch -result {
    case 0, ENOENT, ENODEV: return  // done; the kernel knew no such inode; the mount is gone
    case let error:
      Log.warning("the kernel did not forget what it read of inode \(inode): \(Errno(rawValue: error))")
    }
  }

  /// Has the kernel forget a name.
  func forget(_ name: String, in parent: Inode) {
    let result = name.withCString { bytes in
      fuse_lowlevel_notify_inval_entry(handle, parent, bytes, name.utf8.count)
    }
    switch -result {
    case 0, ENOENT, ENODEV: return  // done; the kernel knew no such name; the mount is gone
    case let error:
      Log.warning("the kernel did not forget the name “\(name)”: \(Errno(rawValue: error))")
    }
  }

  // MARK: Ending

  /// Closes the device, yet keeps its number: a reply that comes later goes to /dev/null.
  func close() {
    fuse_session_exit(handle)
    let null = Glibc.open("/dev/null", O_WRONLY | O_CLOEXEC)
    if null < 0 || dup2(null, descriptor) < 0 {
      Log.warning("the fuse device could not be closed: \(Errno.current); it closes with the process")
    }
    if null >= 0 { Glibc.close(null) }
  }
}

// Plain functions: libfuse calls them from any thread.

/// libfuse's way to read; unused as long as our loop reads by itself, but libfuse wants one.
private func deviceRead(
  _ descriptor: Int32, _ buffer: UnsafeMutableRawPointer?, _ length: Int, _ userdata: UnsafeMutableRawPointer?
) -> Int { Glibc.read(descriptor, buffer, length) }

/// Sends one reply or notification: writev(2), to which /dev/fuse answers all or an error. The reply to INIT gets what
/// this libfuse cannot put there.
private func deviceWrite(
  _ descriptor: Int32, _ parts: UnsafeMutablePointer<iovec>?, _ count: Int32, _ userdata: UnsafeMutableRawPointer?
) -> Int {
  guard let userdata, let parts else { return Glibc.writev(descriptor, parts, count) }
  Unmanaged<Operations>.fromOpaque(userdata)._withUnsafeGuaranteedRef { $0.handshake.amend(parts, Int(count)) }
  return Glibc.writev(descriptor, parts, count)
}
