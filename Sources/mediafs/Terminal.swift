import Base
import Glibc

/// Standard output with a buffer. It knows whether a person looks at it.
///
/// It remembers the first write that fails (a full disk, a closed descriptor), and ``finish()`` then fails the command.
final class Terminal {
  /// Whether standard output is a terminal that can move its cursor.
  let isInteractive: Bool
  private var pending: [UInt8] = []
  /// The error of the first write that failed.
  private(set) var failure: Errno?

  init() {
    let kind = getenv("TERM").map { String(cString: $0) } ?? ""
    isInteractive = isatty(STDOUT_FILENO) == 1 && !kind.isEmpty && kind != "dumb"
  }

  /// The columns of the terminal now; 80 if the terminal does not tell.
  var columns: Int {
    var size = winsize()
    guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
    return Int(size.ws_col)
  }

  /// Writes a line.
  func line(_ text: String = "") { raw(text + "\n") }

  /// Writes text without a newline.
  func raw(_ text: String) {
    pending += text.utf8
    if pending.count >= 64 << 10 { flush() }
  }

  /// Writes bytes without a newline.
  func raw(_ bytes: [UInt8]) {
    pending += bytes
    if pending.count >= 64 << 10 { flush() }
  }

  /// Writes the buffer.
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

  /// Writes the rest of the buffer; throws if any write has failed.
  func finish() throws(CommandError) {
    flush()
    if let failure { throw .failed("cannot write to standard output: \(failure)") }
  }
}
