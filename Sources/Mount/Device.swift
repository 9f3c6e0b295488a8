import Base
import CFuse
import Glibc

/// /dev/fuse and libfuse's session over it: requests come from the kernel, replies and notifications go to it.
///
/// The loop threads read the requests and pass each one whole to libfuse. libfuse writes every reply through
/// `deviceWrite` and so through ``ReplyWriter``.
final class Device: @unchecked Sendable {
  // @unchecked: `handle` never changes, and libfuse accepts requests, replies and notifications from any thread.

  /// The result of reading a request.
  enum Received {
    case request(UnsafeRawBufferPointer)
    case again
    case unmounted
    case failed(Errno)
  }

  /// libfuse's session. `init` makes it and `deinit` destroys it, so a late reply always finds it.
  private let handle: OpaquePointer
  /// The number of the device's descriptor, which libfuse owns. After ``close()`` the same number is /dev/null.
  let descriptor: Int32
  /// What libfuse's callbacks use. Held here because libfuse stores only its address.
  private let operations: Operations

  /// Takes ownership of `descriptor`, also when it throws.
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
    // Every user of the session holds this object. libfuse closes the descriptor.
    fuse_session_destroy(handle)
  }

  // MARK: Requests, on the thread that owns the buffer

  /// Reads a request into `buffer`.
  func receive(into buffer: UnsafeMutableRawBufferPointer) -> Received {
    let count = Glibc.read(descriptor, buffer.baseAddress, buffer.count)
    if count >= 0 { return .request(UnsafeRawBufferPointer(rebasing: buffer[..<count])) }
    let error = errno
    cfuse_commit(buffer.baseAddress, 0)  // whatever was copied is no request
    switch error {
    case ENODEV, ECONNABORTED: return .unmounted
    // ENOENT: the kernel withdrew the request before it was read. EAGAIN: the opener set O_NONBLOCK.
    case EINTR, ENOENT: return .again
    case EAGAIN:
      var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      _ = poll(&waiting, 1, 1000)  // bounded: a signal just before poll does not end it; the caller checks why
      return .again
    case let number: return .failed(Errno(rawValue: number))
    }
  }

  /// Makes libfuse decode one request and call its operation.
  func process(_ request: UnsafeRawBufferPointer) {
    var buffer = fuse_buf()
    buffer.size = request.count
    buffer.mem = UnsafeMutableRawPointer(mutating: request.baseAddress)  // libfuse only reads it; its type has no const
    fuse_session_process_buf(handle, &buffer)
  }

  /// Answers a request with EIO and without libfuse.
  func refuse(_ request: UnsafeRawBufferPointer) {
    refuse(request.loadUnaligned(fromByteOffset: RequestHeader.uniqueAt, as: UInt64.self))
  }

  /// Answers the request of that number with EIO. The kernel ignores it if it has no such request.
  func refuse(_ unique: UInt64) {
    // fuse_out_header: its length, the error, and the number of the request. Without one, it would be a notification.
    if unique == 0 { return }
    var header = (UInt32(16), -EIO, unique)
    withUnsafeMutableBytes(of: &header) { bytes in
      var part = iovec(iov_base: bytes.baseAddress, iov_len: bytes.count)
      _ = operations.writer.write(descriptor, &part, 1)  // ENOENT: its caller is gone; ENODEV: the mount is
    }
  }

  /// Whether libfuse has marked the session as ended.
  var isExited: Bool { fuse_session_exited(handle) != 0 }

  // MARK: Notifications, on the notifier's thread

  /// Makes the kernel drop its cached pages of `range`. The kernel waits for the reads in flight there and drops their
  /// pages too.
  func forgetPages(of inode: Inode, _ range: ByteRange) {
    let result = fuse_lowlevel_notify_inval_inode(handle, inode, off_t(range.start), off_t(range.count))
    switch -result {
    case 0, ENOENT, ENODEV: return  // done; the kernel has no such inode; the mount is gone
    case let error:
      Log.warning("the kernel did not drop its cached pages of inode \(inode): \(Errno(rawValue: error))")
    }
  }

  /// Makes the kernel forget a name.
  func forget(_ name: String, in parent: Inode) {
    let result = name.withCString { bytes in
      fuse_lowlevel_notify_inval_entry(handle, parent, bytes, name.utf8.count)
    }
    switch -result {
    case 0, ENOENT, ENODEV: return  // done; the kernel has no such name; the mount is gone
    case let error:
      Log.warning("the kernel did not forget the name “\(name)”: \(Errno(rawValue: error))")
    }
  }

  // MARK: Ending

  /// Closes the device but keeps its number in use: a later reply goes to /dev/null.
  func close() {
    fuse_session_exit(handle)
    let null = Glibc.open("/dev/null", O_WRONLY | O_CLOEXEC)
    if null < 0 || dup2(null, descriptor) < 0 {
      Log.warning("cannot close /dev/fuse: \(Errno.current); the kernel closes it when the process ends")
    }
    if null >= 0 { Glibc.close(null) }
  }
}

// libfuse calls these from any thread, so they are plain functions.

/// libfuse requires a read function. It never calls this one: ``LoopThreads`` reads the device.
private func deviceRead(
  _ descriptor: Int32, _ buffer: UnsafeMutableRawPointer?, _ length: Int, _ userdata: UnsafeMutableRawPointer?
) -> Int { Glibc.read(descriptor, buffer, length) }

/// Sends one reply or notification.
private func deviceWrite(
  _ descriptor: Int32, _ parts: UnsafeMutablePointer<iovec>?, _ count: Int32, _ userdata: UnsafeMutableRawPointer?
) -> Int {
  guard let userdata, let parts else { return Glibc.writev(descriptor, parts, count) }
  return Unmanaged<Operations>.fromOpaque(userdata)._withUnsafeGuaranteedRef {
    $0.writer.write(descriptor, parts, count)
  }
}
