import Base
import CSystem
import Glibc

/// The log file of a server in the background, bounded in size.
///
/// It becomes the process's stderr, so that everything goes there: the log, and what the runtime says of a crash. Lines
/// are appended whole, so that logrotate's `copytruncate` works as well. Methods may be called on any thread, one at a
/// time.
public final class LogFile: Sendable {
  /// The size at which a file is put aside as `.1`, in bytes; two such files are the most there is.
  public static let limit: Int64 = 10 << 20

  private let path: String
  private let limit: Int64
  private let target: Int32
  private let file: FileDescriptor

  /// Opens (mode 0600), or makes, the file; its folder must exist.
  public convenience init(path: String) throws(ServerError) {
    try self.init(path: path, limit: Self.limit, target: STDERR_FILENO)
  }

  /// `target` is the descriptor that the file becomes (for tests: stderr is the test runner's).
  init(path: String, limit: Int64, target: Int32) throws(ServerError) {
    self.path = path
    self.limit = limit
    self.target = target
    file = try Self.open(path)
  }

  private static func open(_ path: String) throws(ServerError) -> FileDescriptor {
    do throws(Errno) {
      return try FileDescriptor.open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY, mode: 0o600)
    } catch {
      throw .failed("cannot write the log file \(path): \(error)")
    }
  }

  /// From now on the log and stderr go there, with a time before each line, and stdin and stdout to nowhere.
  public func takeOver() throws(ServerError) {
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
  public func rotateIfFull() throws(ServerError) -> Bool {
    var status = stat()
    guard fstat(target, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_size >= limit else {
      return false
    }
    guard rename(path, path + ".1") == 0 else { throw .failed("cannot rotate the log file \(path): \(Errno.current)") }
    let next = try Self.open(path)
    // dup2 changes what stderr is in one step: no line of another thread is lost between the two files.
    guard dup2(next.rawValue, target) >= 0 else {
      throw .failed("cannot go on in a new log file: \(Errno.current)")
    }
    return true
  }
}
