import Base
import CSystem
import Glibc

/// The log file of a server in the background, bounded in size.
///
/// It becomes the process's stderr, so that everything goes there: the log, and what the runtime says of a crash. Lines
/// are appended whole, so that logrotate's `copytruncate` works as well. Methods may be called on any thread, one at a
/// time.
package final class LogFile: Sendable {
  /// The size at which a file is put aside as `.1`, in bytes; two such files are the most there is.
  package static let limit: Int64 = 10 << 20

  private let path: String
  private let limit: Int64
  private let target: Int32
  private let file: FileDescriptor

  /// Opens (mode 0600), or makes, the file; its folder must exist. Throws when it is there and is no plain file.
  /// `allowsDevice`: a device may be in its place, because the user named it (`--log-file /dev/null`).
  package convenience init(path: String, allowsDevice: Bool) throws(ServerError) {
    try self.init(path: path, allowsDevice: allowsDevice, limit: Self.limit, target: STDERR_FILENO)
  }

  /// `target` is the descriptor that the file becomes (for tests: stderr is the test runner's).
  init(path: String, allowsDevice: Bool = false, limit: Int64, target: Int32) throws(ServerError) {
    self.path = path
    self.limit = limit
    self.target = target
    file = try Self.open(path, allowsDevice: allowsDevice)
  }

  private static func open(_ path: String, allowsDevice: Bool) throws(ServerError) -> FileDescriptor {
    // Looked at first: the open of a FIFO waits for a reader, and opening a device may have effects of its own.
    var status = stat()
    let found = stat(path, &status) == 0 ? FileKind(status) : .plain
    let isDevice = allowsDevice && found == .device
    guard found == .plain || isDevice else { throw refused(path, found) }
    let opened: FileKind
    do throws(Errno) {
      // Without waiting: another file may have taken its place since. (A device takes its time.)
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

  /// From now on the log and stderr go there, with a time before each line, and stdin and stdout to nowhere.
  package func takeOver() throws(ServerError) {
    do throws(Errno) {
      let null = try FileDescriptor.open("/dev/null", O_RDWR)
      _ = try retrying { dup2(null.rawValue, STDIN_FILENO) }
      _ = try retrying { dup2(null.rawValue, STDOUT_FILENO) }
    } catch {
      throw .failed("cannot leave the terminal: \(error)")
    }
    try attach()
    Log.set(descriptor: target, stamps: true)
  }

  /// Makes the file what `target` is.
  func attach() throws(ServerError) {
    guard dup2(file.rawValue, target) >= 0 else { throw .failed("cannot log to \(path): \(Errno.current)") }
  }

  /// Puts the file aside as `PATH.1` (in place of an older one) if it has reached the limit, and goes on in a new one.
  /// True if it did: the helper is to be told (``HelperLink/sendLog(_:)`` with STDERR_FILENO). To be called now and
  /// then, after ``takeOver()``; a file that is not a regular one, or that cannot be moved, just goes on.
  package func rotateIfFull() throws(ServerError) -> Bool {
    var status = stat()
    guard fstat(target, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_size >= limit else {
      return false
    }
    guard rename(path, path + ".1") == 0 else { throw .failed("cannot rotate the log file \(path): \(Errno.current)") }
    let next = try Self.open(path, allowsDevice: false)  // renamed: a new one is made
    // dup2 changes what stderr is in one step: no line of another thread is lost between the two files.
    guard dup2(next.rawValue, target) >= 0 else {
      throw .failed("cannot go on in a new log file: \(Errno.current)")
    }
    return true
  }
}
