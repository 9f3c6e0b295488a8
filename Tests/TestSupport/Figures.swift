import Base
import Glibc

/// What the tests of a run have done, in numbers: kills, faults, bytes compared, random cases. Any thread may call.
///
/// A process appends its sums at its end to the file that MEDIAFS_FIGURES names, a line each: the number, a tab, what
/// it counts. `Scripts/test` and `Scripts/fuzz` sum those up. Without that variable nothing is written.
package enum Figures {
  private static let sums = Lock<[String: Int64]>([:])
  /// The file's name; to be asked for once: from then on the end of the process writes.
  private static let file: String? = {
    guard let file = getenv("MEDIAFS_FIGURES") else { return nil }
    atexit { Figures.write() }
    return String(cString: file)
  }()

  /// Adds `count` to what is known as `what`.
  package static func add(_ what: String, _ count: Int = 1) {
    guard file != nil else { return }
    sums.withLock { $0[what, default: 0] += Int64(count) }
  }

  /// The lines of the file: in the order of the names.
  static func lines(of sums: [String: Int64]) -> String {
    sums.sorted { $0.key < $1.key }.map { "\($0.value)\t\($0.key)\n" }.joined()
  }

  private static func write() {
    guard let file else { return }
    let text = Array(lines(of: sums.withLock { $0 }).utf8)
    let descriptor = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o666)
    // At once, so that the lines of two processes do not mix.
    guard descriptor >= 0,
      text.withUnsafeBytes({ Glibc.write(descriptor, $0.baseAddress, $0.count) }) == text.count
    else {
      Log.warning("the figures cannot be written to \(file): \(Errno.current)")
      return
    }
    close(descriptor)
  }
}
