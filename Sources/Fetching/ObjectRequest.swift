import Base
import Glibc

/// A request to an object store: the answer's status, fields and body go to the client, whatever they say.
///
/// It follows no redirect. It sends what it names itself, and neither the options' fields nor a login of the netrc
/// file; the limits of rates are for origins alone.
package struct ObjectRequest: Sendable {
  package enum Method: String, Sendable {
    case get = "GET"
    case head = "HEAD"
    case put = "PUT"
    case delete = "DELETE"
  }

  package var method: Method
  /// The fields beside Host, Content-Length, User-Agent and Accept, as they are signed.
  package var headers: [HTTPHeader]
  /// What a PUT stores.
  package var body: TransferBody?
  /// Whether the store may refuse the body before it is sent (`Expect: 100-continue`).
  package var awaitsContinue = false

  package init(_ method: Method, headers: [HTTPHeader] = [], body: TransferBody? = nil) {
    (self.method, self.headers, self.body) = (method, headers, body)
  }

  /// The header lines in libcurl's form.
  func headerLines(userAgent: String) -> [String] {
    var lines = headers.map { $0.value.isEmpty ? "\($0.name);" : "\($0.name): \($0.value)" }
    lines.append("User-Agent: \(userAgent)")
    // libcurl would name a form's type, and expect on its own account. A field without a value leaves it out.
    if body != nil { lines += ["Content-Type:", awaitsContinue ? "Expect: 100-continue" : "Expect:"] }
    return lines
  }
}

/// What the head of an answer to an ``ObjectRequest`` has beside what every ``ResponseHead`` has.
package struct ObjectAnswer: Sendable, Equatable {
  /// The fields that begin with `x-amz-`, by their names in lower case.
  package var fields: [String: String] = [:]
  /// The announced length of the object; of a HEAD too, whose answer has no body.
  package var length: Int64?
  /// The seconds to wait by Retry-After.
  package var retryAfter: Double?

  package init(fields: [String: String] = [:], length: Int64? = nil, retryAfter: Double? = nil) {
    (self.fields, self.length, self.retryAfter) = (fields, length, retryAfter)
  }
}

/// The body of a request, in memory that libcurl reads while the transfer runs.
///
/// `@unchecked Sendable`: `init` fills the memory, nothing writes to it afterwards, and `deinit` frees it once nobody
/// has the object.
package final class TransferBody: @unchecked Sendable {
  package let bytes: UnsafeRawBufferPointer
  private let isMapped: Bool

  /// A body of `count` bytes, which `fill` writes.
  package init<Failure: Error>(
    count: Int, _ fill: (UnsafeMutableRawBufferPointer) throws(Failure) -> Void
  ) throws(Failure) {
    let (memory, isMapped) = Self.memory(of: count)
    do throws(Failure) { try fill(memory) } catch {
      Self.release(UnsafeRawBufferPointer(memory), isMapped)
      throw error
    }
    (bytes, self.isMapped) = (UnsafeRawBufferPointer(memory), isMapped)
  }

  /// A body with a copy of those bytes.
  package convenience init(_ source: [UInt8]) {
    self.init(count: source.count) { (memory: UnsafeMutableRawBufferPointer) throws(Never) in
      memory.copyBytes(from: source)
    }
  }

  deinit { Self.release(bytes, isMapped) }

  /// From so many bytes on, the memory is the system's, and goes back at once: what one thread allocates and another
  /// frees would stay with the process.
  private static let leastMapped = 1 << 20

  private static func memory(of count: Int) -> (UnsafeMutableRawBufferPointer, isMapped: Bool) {
    if count >= leastMapped {
      let memory = mmap(nil, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
      if let memory, memory != MAP_FAILED { return (UnsafeMutableRawBufferPointer(start: memory, count: count), true) }
    }
    return (.allocate(byteCount: count, alignment: 64), false)
  }

  private static func release(_ bytes: UnsafeRawBufferPointer, _ isMapped: Bool) {
    if isMapped, let start = bytes.baseAddress {
      munmap(UnsafeMutableRawPointer(mutating: start), bytes.count)
    } else {
      bytes.deallocate()
    }
  }
}
