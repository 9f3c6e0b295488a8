import Base
import CSystem
import Glibc

/// The log file of a server in the background, bounded in size.
///
/// It becomes the process's stderr, so that it gets the log and also what the runtime writes about a crash. The process
/// appends whole lines, so that logrotate's `copytruncate` works too. One thread at a time may call a method.
package final class LogFile: Sendable {
  /// The size in bytes at which the server renames the file to `.1`. There are at most these two files.
  package static let limit: Int64 = 10 << 20

  private let path: String
  private let limit: Int64
  private let target: Int32
  private let file: FileDescriptor
  /// Before this time the file is not rotated: the last time failed.
  private let notBefore = Lock(Instant(nanoseconds: 0))
  /// How long to wait after a rotation that failed, in seconds: on a full disk each one writes what is left of it.
  private static let pause = 600.0
  /// `PATH.1`, of a server that cannot open it later.
  private let older: FileDescriptor?

  /// Opens or creates the file (mode 0600); its folder must exist. Throws if it exists and is not a plain file.
  /// `allowsDevice` accepts a device too, because the user named it (`--log-file /dev/null`). `opensOlder` creates
  /// `PATH.1` already, where that is possible: a server that is restricted soon cannot create it later.
  package convenience init(path: String, allowsDevice: Bool, opensOlder: Bool = false) throws(ServerError) {
    try self.init(
      path: path, allowsDevice: allowsDevice, opensOlder: opensOlder, limit: Self.limit, target: STDERR_FILENO)
  }

  /// `target` is the descriptor that the file becomes. Tests pass another one, because stderr is the test runner's.
  init(
    path: String, allowsDevice: Bool = false, opensOlder: Bool = false, limit: Int64, target: Int32
  ) throws(ServerError) {
    self.path = path
    self.limit = limit
    self.target = target
    file = try Self.open(path, allowsDevice: allowsDevice)
    var status = stat()
    let isPlain = fstat(file.rawValue, &status) == 0 && FileKind(status) == .plain
    // If this fails, so does the rotation, which tries again and says why.
    older = opensOlder && isPlain ? try? Self.open(path + ".1", allowsDevice: false) : nil
  }

  private static func open(_ path: String, allowsDevice: Bool) throws(ServerError) -> FileDescriptor {
    // stat comes before open, because open of a FIFO waits for a reader, and open of a device may have side effects.
    var status = stat()
    let found = stat(path, &status) == 0 ? FileKind(status) : .plain
    let isDevice = allowsDevice && found == .device
    guard found == .plain || isDevice else { throw refused(path, found) }
    let opened: FileKind
    do throws(Errno) {
      // O_NONBLOCK, because another file may have taken its place since. (The open of a device may wait.)
      let flags = O_APPEND | O_CREAT | O_NOCTTY | (isDevice ? O_WRONLY : O_RDWR | O_NONBLOCK)
      let file = try FileDescriptor.open(path, flags, mode: 0o600)
      opened = FileKind(try file.status())
      if opened == found { return file }
    } catch {
      throw .failed("cannot write the log file \(path): \(error)")
    }
    throw refused(path, opened)
  }

  private static func refused(_ path: String, _ kind: FileKind) -> ServerError {
    .failed("the log file \(path) is \(kind), no plain file: move it away, or log elsewhere with --log-file")
  }

  /// Directs the log, with a time on each line, and stderr to the file, and stdin and stdout to /dev/null.
  package func takeOver() throws(ServerError) {
    do throws(Errno) {
      let null = try FileDescriptor.open("/dev/null", O_RDWR)
      _ = try retrying { dup2(null.rawValue, STDIN_FILENO) }
      _ = try retrying { dup2(null.rawValue, STDOUT_FILENO) }
    } catch {
      throw .failed("cannot detach from the terminal: \(error)")
    }
    try attach()
    Log.set(descriptor: target, stamps: true)
  }

  /// Makes `target` a descriptor of the file.
  func attach() throws(ServerError) {
    guard dup2(file.rawValue, target) >= 0 else { throw .failed("cannot log to \(path): \(Errno.current)") }
  }

  /// Moves the text of a file that has reached the limit to `PATH.1`, and continues with an empty file. Returns whether
  /// it did so. Call it now and then after ``takeOver()``. It does nothing to a file that is not a plain one.
  ///
  /// It copies, because the server for another user may change the file and not its folder.
  package func rotateIfFull() throws(ServerError) -> Bool {
    var status = stat()
    guard fstat(target, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_size >= limit else {
      return false
    }
    if Instant.now < notBefore.withLock({ $0 }) { return false }
    do throws(ServerError) {
      switch older {
      case .some(let kept): try rotate(to: kept)
      case .none: try rotate(to: Self.open(path + ".1", allowsDevice: false))
      }
    } catch {
      notBefore.withLock { $0 = Instant.now.adding(seconds: Self.pause) }
      throw error
    }
    return true
  }

  private func rotate(to older: borrowing FileDescriptor) throws(ServerError) {
    do throws(Errno) {
      try older.truncate(to: 0)
      let copied = try copy(from: 0, to: older)
      // No line of another thread is lost: they write to the other file while this one gets the rest and is emptied.
      _ = try retrying { dup2(older.rawValue, target) }
      defer { dup2(file.rawValue, target) }
      _ = try copy(from: copied, to: older)
      try file.truncate(to: 0)
    } catch {
      throw .failed("cannot rotate the log file \(path): \(error)")
    }
  }

  /// Appends what the file has from `start` on. Returns where it ended.
  private func copy(from start: Int64, to other: borrowing FileDescriptor) throws(Errno) -> Int64 {
    let piece = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 1)
    defer { piece.deallocate() }
    var at = start
    while true {
      let count = try file.readFully(at: at, into: piece)
      if count == 0 { return at }
      // The kernel appends to a file that is open with O_APPEND, whatever the place.
      try other.writeFully(UnsafeRawBufferPointer(rebasing: piece[..<count]), at: at)
      at += Int64(count)
    }
  }
}
