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

  /// Opens or creates the file (mode 0600); its folder must exist. Throws if it exists and is not a plain file.
  /// `allowsDevice` accepts a device too, because the user named it (`--log-file /dev/null`).
  package convenience init(path: String, allowsDevice: Bool) throws(ServerError) {
    try self.init(path: path, allowsDevice: allowsDevice, limit: Self.limit, target: STDERR_FILENO)
  }

  /// `target` is the descriptor that the file becomes. Tests pass another one, because stderr is the test runner's.
  init(path: String, allowsDevice: Bool = false, limit: Int64, target: Int32) throws(ServerError) {
    self.path = path
    self.limit = limit
    self.target = target
    file = try Self.open(path, allowsDevice: allowsDevice)
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
      let flags = O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | (isDevice ? 0 : O_NONBLOCK)
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

  /// Renames a file that has reached the limit to `PATH.1`, which replaces an older one, and continues in a new file.
  /// Returns whether it did so: the server must then send the helper the new file (``HelperLink/sendLog(_:)`` with
  /// STDERR_FILENO). Call it now and then after ``takeOver()``. It does nothing to a file that is not a plain one.
  package func rotateIfFull() throws(ServerError) -> Bool {
    var status = stat()
    guard fstat(target, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_size >= limit else {
      return false
    }
    guard rename(path, path + ".1") == 0 else { throw .failed("cannot rotate the log file \(path): \(Errno.current)") }
    let next = try Self.open(path, allowsDevice: false)  // creates a new file, because the old one has another name now
    // dup2 replaces stderr in one step, so that no line of another thread is lost between the two files.
    guard dup2(next.rawValue, target) >= 0 else {
      throw .failed("cannot continue in a new log file: \(Errno.current)")
    }
    return true
  }
}
