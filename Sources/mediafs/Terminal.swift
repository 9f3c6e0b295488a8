import Base
import Glibc

/// Standard output: collected and written in pieces; knows whether a person looks at it.
///
/// A write that fails (a full disk, a closed descriptor) is remembered: a command that could not say what it had to say
/// has failed.
final class Terminal {
  /// Whether standard output is a terminal that can move its cursor.
  let isInteractive: Bool
  private var pending: [UInt8] = []
  /// What the first write that failed met.
  private(set) var failure: Errno?

  init() {
    let kind = getenv("TERM").map { String(cString: $0) } ?? ""
    isInteractive = isatty(STDOUT_FILENO) == 1 && !kind.isEmpty && kind != "dumb"
  }

  /// Columns of the terminal now; 80 when it does not tell.
  var columns: Int {
    var size = winsize()
    guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
    return Int(size.ws_col)
  }

  /// Writes a line.
  func line(_ text: String = "") { raw(text + "\n") }

  /// Writes text as it is.
  func raw(_ text: String) {
    pending += text.utf8
    if pending.count >= 64 << 10 { flush() }
  }

  /// Writes bytes as they are.
  func raw(_ bytes: [UInt8]) {
    pending += bytes
    if pending.count >= 64 << 10 { flush() }
  }

  /// Hands over what was collected.
  func flush() {
    var sent = 0
    while sent < pending.count, failure == nil {
      let count = pending.withUnsafeBytes { bytes in
        write(STDOUT_FILENO, UnsafeRawBufferPointer(rebasing: bytes[sent...]).baseAddress, bytes.count - sent)
      }
      if count >= 0 {
        sent += count
      } else if Errno.current != .interrupted {
        failure = Errno.current
      }
    }
    pending.removeAll(keepingCapacity: true)
  }

  /// Hands over the rest; throws when anything could not be written.
  func finish() throws(CommandError) {
    flush()
    if let failure { throw .failed("cannot write to standard output: \(failure)") }
  }
}
