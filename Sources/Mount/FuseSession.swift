import Base
import CFuse
import Glibc
import Reading

/// A mounted filesystem being served: requests come from /dev/fuse, answers go back. See `docs/decisions` for the
/// threads and why they are so.
///
/// libfuse's C callbacks find the session through libfuse's userdata. A C function cannot be generic, so the filesystem
/// is one value of the protocol ``Served``: a call goes through its table of methods.
///
/// Locks: `requests`, `invalidations`, `endings`, `openFiles`, `passthroughRefused`; none is held while another is
/// taken, nor over a call that leaves the room.
package final class FuseSession: ReplyPort, @unchecked Sendable {
  // @unchecked: `handle`, `isInitialised` and what says whether there is passthrough are written before a second thread
  // exists (init, and the INIT request, which `run` handles alone); `descriptor` is a number. All else is constant or
  // in a lock.

  let fileSystem: any Served
  let options: MountOptions
  let uid: uid_t
  let gid: gid_t
  let filePermissions: mode_t
  let folderPermissions: mode_t

  /// libfuse's session: made by `init`, destroyed by `deinit`, so a late reply always finds it.
  private(set) var handle: OpaquePointer?
  /// Whether libfuse's `init` was called: the kernel's INIT fits.
  var isInitialised = false
  /// Whether the kernel's INIT offers passthrough.
  var isOfferedPassthrough = false
  /// Whether the reply to INIT, the next one, is to ask for passthrough.
  private var amendsReply = false
  /// Whether passthrough was asked for, and so may be used.
  private(set) var hasPassthrough = false
  /// The device's number. libfuse owns it; once serving ended it is /dev/null under the same number.
  let descriptor: Int32
  /// Wakes `run`: a thread ended, or `stop` was called.
  let wakeUp: Event
  /// Wakes the notifier.
  let notifierWakeUp: Event

  let requests = Lock(RequestTable())
  let invalidations = Lock(InvalidationQueue())
  let endings = Lock(Endings())
  let openFiles = Lock(OpenFiles())
  /// Whether the kernel said that we may not: then it is not asked again.
  let passthroughRefused = Lock(false)

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
    self.fileSystem = fileSystem
    self.options = options
    uid = options.uid ?? getuid()
    gid = options.gid ?? getgid()
    filePermissions = 0o444 & ~(options.umask ?? 0)
    // The owner's right to write is for copies: `cp -r` copies it, and without it `rm -rf` could not empty the copy. In
    // the mount itself the kernel refuses every write (EROFS).
    folderPermissions = 0o755 & ~(options.umask ?? 0)
    // libfuse closes the number it is given by itself, so it gets one of its own; `device` closes with this scope.
    do throws(Errno) {
      wakeUp = try Event()
      notifierWakeUp = try Event()
      descriptor = try duplicate(device.rawValue)
    } catch { throw .device("preparing to serve", error) }

    var operations = operationTable()
    handle = cfuse_session_new(&operations, Unmanaged.passUnretained(self).toOpaque())
    guard let handle else {
      close(descriptor)
      throw .session("make a session", nil)
    }
    let result = cfuse_attach(handle, descriptor, deviceRead, deviceWrite)
    if result != 0 {
      close(descriptor)
      throw .session("take the descriptor", Errno(rawValue: -result))
    }
  }

  deinit {
    // No thread of ours is left (`run` joined them) and nobody else has the object. It closes the descriptor.
    if let handle { fuse_session_destroy(handle) }
  }

  /// Asks the kernel for passthrough, if it offers that. While INIT is answered.
  func askForPassthrough(_ connection: UnsafeMutablePointer<fuse_conn_info>) {
    guard options.passthroughDepth > 0, isOfferedPassthrough else { return }
    hasPassthrough = cfuse_want_passthrough(connection, options.passthroughDepth)
    amendsReply = !hasPassthrough
  }

  /// Changes what is about to be sent: the reply to INIT, which is a header and a body.
  @inline(__always)
  func amend(_ parts: UnsafeMutablePointer<iovec>, _ count: Int) {
    if !amendsReply { return }
    amendsReply = false
    guard count == 2 else { return }
    let body = UnsafeMutableRawBufferPointer(start: parts[1].iov_base, count: parts[1].iov_len)
    hasPassthrough = acceptPassthrough(in: body, depth: options.passthroughDepth)
  }
}

/// A second number for the same open file, close-on-exec.
private func duplicate(_ descriptor: Int32) throws(Errno) -> Int32 {
  // Behind the standard three: libfuse gives 0 to 2 a meaning of their own nowhere, but a message must not go to a
  // device.
  try retrying { fcntl(descriptor, F_DUPFD_CLOEXEC, 3) }
}
