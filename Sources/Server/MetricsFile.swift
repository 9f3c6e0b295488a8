import Base
import Glibc

/// Writes the numbers of a server to a file, for the textfile collector of Prometheus' node exporter.
///
/// A thread of its own writes it: a disk that does not answer holds nothing but this thread. A reader of the file sees
/// the old numbers or the new ones, never a part: the thread writes `FILE.new` and renames it. What fails is logged
/// once, and tried again at the next time.
final class MetricsFile: Sendable {
  /// Seconds between two writes.
  static let interval = 15.0
  /// For how long the end of the server waits for a write that goes on, in seconds.
  private static let patience = 2.0

  private let path: String
  private let interval: Double
  private let text: @Sendable () throws -> String
  private let wake = Signal()
  private let ended = Signal()
  private let isStopping = Lock(false)
  private let thread = Lock<OwnedThread?>(nil)
  /// The last failure; nil after a success.
  private let failure = Lock<String?>(nil)
  /// Whether the file has numbers of this server, or of one that it follows.
  private let isOurs: Lock<Bool>

  /// Refuses a path that leads to anything but a plain file, or into no folder, unless `goesOn`: then the log says it.
  /// `text` gives the numbers, and may wait for the disk.
  init(
    path: String, interval: Double = MetricsFile.interval, goesOn: Bool = false,
    text: @escaping @Sendable () throws -> String
  ) throws(ServerError) {
    self.path = path
    self.interval = interval
    self.text = text
    isOurs = Lock(goesOn)
    if goesOn { return }
    do throws(Errno) { try Self.check(path) } catch {
      throw .failed("cannot write the metrics file \(path): \(error)\(Self.advice(error))")
    }
  }

  /// Starts the thread, which writes at once.
  func start() {
    let started = OwnedThread(name: "metrics-file") { [self] in
      repeat { write() } while !wake.wait(seconds: interval) && !isStopping.withLock { $0 }
      ended.raise()
    }
    thread.withLock { $0 = started }
  }

  /// Ends the thread, and removes the file: its numbers are of a server that is gone. Leaves a thread alone that its
  /// disk holds.
  func stop(isUnmounting: Bool) {
    guard let running = thread.withLock({ $0.take() }) else { return }
    isStopping.withLock { $0 = true }
    wake.raise()
    guard ended.wait(seconds: Self.patience) else {
      running.detach()
      return Log.warning("the metrics file \(path) cannot be finished: its disk does not answer")
    }
    running.join()
    guard isUnmounting, isOurs.withLock({ $0 }) else { return }
    do throws(Errno) {
      try Self.check(path)
      if unlink(path) != 0, Errno.current != .notFound { throw .current }
    } catch { Log.warning("cannot remove the metrics file \(path): \(error)") }
  }

  /// Writes the file once.
  func write() {
    var message: String?
    do {
      let bytes = Array(try text().utf8)
      try Self.check(path)
      try Self.replace(path, bytes)
      isOurs.withLock { $0 = true }
    } catch {
      let errno = (error as? Errno).map(Self.advice) ?? ""
      message = "cannot write the metrics file \(path): \(error)\(errno)"
    }
    let now = message
    let before = failure.withLock { failure in
      defer { failure = now }
      return failure
    }
    if let now, now != before { Log.warning("\(now); the server tries again every \(Int(interval)) s") }
    if now == nil, before != nil { Log.info("the metrics file \(path) is written again") }
  }

  /// A rename would put the file in the place of a device, and it cannot replace a folder.
  private static func check(_ path: String) throws(Errno) {
    var status = stat()
    if lstat(path, &status) == 0 {
      if status.st_mode & S_IFMT != S_IFREG { throw .invalid }
      return
    }
    guard Errno.current == .notFound else { throw Errno.current }
    let folder = path[..<(path.lastIndex(of: "/") ?? path.startIndex)]
    if stat(folder.isEmpty ? "/" : String(folder), &status) != 0 { throw Errno.current }
  }

  private static func replace(_ path: String, _ bytes: [UInt8]) throws(Errno) {
    let new = path + ".new"
    // A server that was killed left it. A link in its place is removed, not followed.
    if unlink(new) != 0, Errno.current != .notFound { throw Errno.current }
    do throws(Errno) {
      // Any user may read it: it has no names and no secrets.
      let file = try FileDescriptor.open(new, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o644)
      _ = try retrying { fchmod(file.rawValue, 0o644) }
      let result = bytes.withUnsafeBytes { all -> Errno? in
        do throws(Errno) { try file.writeFully(all, at: 0) } catch { return error }
        return nil
      }
      if let result { throw result }
      _ = try retrying { rename(new, path) }
    } catch {
      unlink(new)
      throw error
    }
  }

  private static func advice(_ error: Errno) -> String {
    switch error {
    case .invalid: " (it is no plain file: name another one with --metrics-file)"
    case .notFound: " (its folder is not there)"
    default: ""
    }
  }
}
