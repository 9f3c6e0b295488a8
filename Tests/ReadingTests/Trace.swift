import Base
import Fetching
import Glibc
import Reading
import Storing
import Testing

/// What a bench's origin was asked and what its port was told, one line each, in simulated time: two builds of the room
/// that behave alike write the same file. `Scripts/trace` says how they are compared.
///
/// Written where `MEDIAFS_TRACE` names a folder: `Suite.test.N.txt` for the Nth bench that a test makes.
final class Trace: Sendable {
  /// Benches of each test so far.
  private static let benches = Lock<[String: Int]>([:])

  private let time: Lock<Instant>
  private let began: Instant
  private let file: FileDescriptor
  private let lines = Lock<[UInt8]>([])
  /// The number of each request. A room that is started again counts its own from the first.
  private let requests = Lock<(numbers: [TransferID: Int], last: Int)>(([:], 0))

  /// nil when no trace is asked for, or no test runs.
  init?(time: Lock<Instant>) throws {
    guard let folder = getenv("MEDIAFS_TRACE").map({ String(cString: $0) }), let test = Test.current else { return nil }
    let suite = test.sourceLocation.fileName.prefix { $0 != "." }
    let name = "\(suite).\(test.name.prefix { $0 != "(" })"
    let number = Self.benches.withLock { benches in
      benches[name, default: 0] += 1
      return benches[name] ?? 0
    }
    self.time = time
    began = time.withLock { $0 }
    file = try FileDescriptor.open("\(folder)/\(name).\(number).txt", O_WRONLY | O_CREAT | O_EXCL, mode: 0o644)
  }

  deinit { flush() }

  /// Writes one line, with the time before it.
  private func note(_ text: String) {
    let microseconds = (time.withLock { $0 }.nanoseconds - began.nanoseconds) / 1000
    let isMuch = lines.withLock { lines in
      lines += Array("\(microseconds) \(text)\n".utf8)
      return lines.count > 1 << 20
    }
    if isMuch { flush() }
  }

  private func flush() {
    let due = lines.withLock { lines in
      defer { lines = [] }
      return lines
    }
    var written = 0
    while written < due.count {
      let count = due[written...].withUnsafeBytes { write(file.rawValue, $0.baseAddress, $0.count) }
      guard count > 0 else {
        Issue.record("a trace cannot be written: \(Errno.current)")
        return
      }
      written += count
    }
  }

  // MARK: The origin

  /// The room asks. Requests are numbered in their order: the room's own numbers are its own affair.
  func asked(_ request: TransferRequest) {
    let number = requests.withLock { requests in
      requests.last += 1
      requests.numbers[request.id] = requests.last
      return requests.last
    }
    let range = request.range.map { "\($0.start)..<\($0.end)" } ?? "whole"
    note("request \(number): \(request.url) \(range)\(request.ifRange.map { " if-range \($0)" } ?? "")")
  }

  /// The origin's part of a request is over, or the room ends it.
  func ended(_ id: TransferID, _ how: String, sent: Int64) {
    let number = requests.withLock { $0.numbers[id] ?? 0 }
    note("request \(number): \(how) after \(sent)")
  }

  /// The room has every connection dropped.
  func dropped() { note("connections dropped") }

  // MARK: The kernel

  func called(_ ticket: Ticket, _ what: String) { note("ticket \(ticket.rawValue): \(what)") }

  func replied(_ ticket: Ticket, _ reply: Reply) { note("ticket \(ticket.rawValue): -> \(Self.describe(reply))") }

  func told(_ what: String) { note(what) }

  private static func describe(_ reply: Reply) -> String {
    switch reply {
    case .data(let bytes): "\(bytes.count) bytes, \(digest(of: bytes))"
    case .attributes(let shown):
      "inode \(shown.inode), \(shown.size) bytes, of \(shown.modified)\(shown.isFinal ? "" : ", not final")"
    case .opened(let directIO): directIO ? "open, past the page cache" : "open"
    case .error(let error): "error \(error.rawValue)"
    }
  }

  /// Enough of an MD5 to tell bytes apart.
  private static func digest(of bytes: [UInt8]) -> String {
    guard var digester = try? Digester(.md5) else { return "no MD5 here" }
    bytes.withUnsafeBytes { digester.update($0) }
    return digester.finish().prefix(6).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }
}
