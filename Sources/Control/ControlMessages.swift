import FoundationEssentials

/// The bounds of the protocol: both sides hold them, so that neither can make the other wait or grow without end.
package enum ControlLimits {
  /// The version that this program speaks. It goes up when a peer of the old version would misunderstand.
  package static let version = 1
  /// Bytes a message has at most, its newline included.
  package static let message = 1 << 20
  /// Paths one request names at most.
  package static let paths = 10_000
  /// Files a page of `status` has at most.
  package static let page = 500
  /// Ranges told of one file at most: 41 bytes each as JSON, so that a message still fits.
  package static let ranges = 8192
  /// Files named in one report at most, besides those that are over.
  package static let shown = 64
  /// Targets whose progress is asked at once.
  package static let polled = 1000
  /// Clients served at once.
  package static let clients = 16
}

/// One line from a client.
struct ControlRequest: Codable, Equatable {
  enum Operation: String, Codable {
    case hello, status, fetch, clear, stop
  }

  var version = ControlLimits.version
  var request: Operation
  /// status, fetch, clear: paths in the mount.
  var paths: [String]?
  /// status: also list what was never touched. clear: drop everything.
  var all: Bool?
  /// status: where the page before ended.
  var after: String?
  /// status: files at most; 0 for the totals alone.
  var limit: Int?
  /// status: whether the totals are wanted.
  var totals: Bool?
  /// status: whether files of which nothing is stored may come many to a line (``ControlReply/Kind/remote``).
  var brief: Bool?
  /// fetch: whether to report until it is over.
  var wait: Bool?

  init(_ request: Operation) { self.request = request }
}

/// One line from the server.
struct ControlReply: Codable, Equatable {
  enum Kind: String, Codable {
    /// Answers `hello`.
    case hello
    /// The sums that `status` asked for, before any file.
    case totals
    /// One file of a page.
    case file
    /// Files of a page of which nothing is known but their sizes.
    case remote
    /// Where a fetch stands.
    case report
    /// What `clear` did.
    case cleared
    /// The last line of an answer that went well.
    case done
    /// The last line of one that did not.
    case failed
  }

  var reply: Kind
  var version: Int?
  var server: ServerIdentity?
  var totals: StatusTotals?
  var file: FileStatus?
  /// remote: the files' paths.
  var paths: [String]?
  /// remote: their sizes in the same order, null where it is not known; absent where none is.
  var sizes: [Int64?]?
  var report: FetchReport?
  var cleared: ClearReport?
  /// done, after a page: where to go on; absent behind the last page.
  var next: String?
  var code: ControlFailure.Kind?
  var message: String?

  init(_ reply: Kind) { self.reply = reply }

  init(_ failure: ControlFailure) {
    reply = .failed
    code = failure.kind
    message = failure.message
  }
}

/// A message as a line: JSON without a newline in it, and one at its end.
func encodeLine(_ message: some Encodable) throws(ControlFailure) -> [UInt8] {
  let encoder = JSONEncoder()
  encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
  let data: Data
  do {
    data = try encoder.encode(message)
  } catch {
    throw ControlFailure(.failed, "a message cannot be written as JSON: \(error)")
  }
  guard data.count < ControlLimits.message else {
    throw ControlFailure(
      .malformed, "a message would have \(data.count) bytes, more than the \(ControlLimits.message) that are taken")
  }
  return data + [UInt8(ascii: "\n")]
}

/// The message on a line, whatever else the line may hold; `malformed` when it is none.
func decodeLine<Message: Decodable>(_ type: Message.Type, _ line: [UInt8]) throws(ControlFailure) -> Message {
  do {
    return try JSONDecoder().decode(type, from: Data(line))
  } catch let error as DecodingError {
    throw ControlFailure(.malformed, "not a message of this protocol: \(reason(error))")
  } catch {
    throw ControlFailure(.malformed, "not a message of this protocol: \(error)")
  }
}

/// What is wrong with a message, without its contents: they may be anything, and long.
private func reason(_ error: DecodingError) -> String {
  func place(_ context: DecodingError.Context) -> String {
    context.codingPath.isEmpty ? "" : " at \"" + context.codingPath.map(\.stringValue).joined(separator: ".") + "\""
  }
  switch error {
  case .keyNotFound(let key, _): return "\"\(key.stringValue)\" is missing"
  case .valueNotFound(_, let context): return "a value is null\(place(context))"
  case .typeMismatch(_, let context): return "a value of another type is due\(place(context))"
  case .dataCorrupted(let context):
    return context.codingPath.isEmpty ? "the line is not JSON" : "an unknown value\(place(context))"
  @unknown default: return "it cannot be read"
  }
}
