import FoundationEssentials

/// The limits of the protocol. Both sides enforce them, so that neither can make the other wait or grow without bound.
package enum ControlLimits {
  /// The version that this program speaks. A change that an older peer would misunderstand increases it.
  package static let version = 1
  /// The longest message in bytes, with its newline.
  package static let message = 1 << 20
  /// The most paths in one request.
  package static let paths = 10_000
  /// The most files in a page of `status`.
  package static let page = 500
  /// The most ranges of one file. Each has up to 41 bytes as JSON, so that a message has room for all.
  package static let ranges = 8192
  /// The most readers of one file, and the most lines: a server tells the busiest.
  package static let readers = 8
  package static let lines = 64
  /// The most URLs of one file, and of its last errors, in a story.
  package static let origins = 64
  package static let errors = 8
  /// The most files in one report, not counting those that have ended.
  package static let shown = 64
  /// The most bytes of an answer that a client reads: 500 files in as many ranges, at any place of 100 GB.
  package static let answer = 128 << 20
  /// The most files of an answer that a client reads: a page of many names that share a resource has no other limit.
  package static let answered = 100_000
  /// The most settings in one answer, those of hosts among them.
  package static let settings = 1000
  /// The most targets whose progress is polled at once.
  package static let polled = 1000
  /// The most clients at once.
  package static let clients = 16
  /// The most of them that listen to events: each is connected for long.
  package static let listeners = 8
}

/// One line from a client.
struct ControlRequest: Codable, Equatable {
  enum Operation: String, Codable {
    case hello, status, ready, fetch, clear, stop, upgrade, metrics, events, rule, cancel, set, reload
  }

  var version = ControlLimits.version
  var request: Operation
  /// status, ready, fetch, clear: paths in the mount. rule, cancel: paths or patterns.
  var paths: [String]?
  /// status: list also files of which nothing is known. clear: delete the data of every file.
  var all: Bool?
  /// clear: delete the partial data of files that the list does not name any more.
  var unlisted: Bool?
  /// clear: delete complete copies without asking their origins.
  var force: Bool?
  /// clear: delete nothing, and tell what would be.
  var dryRun: Bool?
  /// status: where the previous page ended.
  var after: String?
  /// status: the most files of the page; 0 for the totals only.
  var limit: Int?
  /// status: whether to answer with the totals.
  var totals: Bool?
  /// status: whether to tell what else is known of each file (``FileStory``).
  var story: Bool?
  /// status: whether the answer is about the files alone that something goes on with.
  var active: Bool?
  /// status: the most ranges of each file; the server closes the smallest gaps.
  var ranges: Int?
  /// status: whether one line may hold many files of which nothing is stored (``ControlReply/Kind/remote``).
  var brief: Bool?
  /// fetch: whether to report until every file is over.
  var wait: Bool?
  /// status: whether to read the indexes of files that no program uses, to tell when they play.
  var film: Bool?
  /// ready: the second from which the files are to play; absent: from where a program reads them, or their start.
  var from: Double?
  /// rule: what the user says of the paths.
  var rule: RuleWord?
  /// set: the values by the names of their options; absent or empty: none changes.
  var values: [String: String]?
  /// set: the host that they are for; absent: the mount.
  var host: String?
  /// upgrade: the program that is to take over.
  var program: ProgramFile?

  init(_ request: Operation) { self.request = request }
}

/// One line from the server.
struct ControlReply: Codable, Equatable {
  enum Kind: String, Codable {
    /// Answers `hello`.
    case hello
    /// The totals of `status`, before any file.
    case totals
    /// One file of a page.
    case file
    /// Files of a page of which only the sizes are known.
    case remote
    /// Whether one file plays without a stall.
    case ready
    /// The progress of a fetch.
    case report
    /// What `clear` did.
    case cleared
    /// The server's numbers.
    case metrics
    /// Events come from now on.
    case listening
    /// What happened.
    case event
    /// What `cancel` did: `cleared` too, with no bytes.
    case cancelled
    /// What `rule` did.
    case ruled
    /// Answers `set`.
    case settings
    /// What `reload` changed.
    case reloaded
    /// The last line of an answer without errors.
    case done
    /// The last line of an answer that failed.
    case failed
  }

  var reply: Kind
  var version: Int?
  var server: ServerIdentity?
  /// hello: absent from a server that cannot be upgraded.
  var upgrade: UpgradeFacts?
  var totals: StatusTotals?
  var file: FileStatus?
  /// remote: the paths of the files.
  var paths: [String]?
  /// remote: the sizes in the same order, null for an unknown size. Absent if no size is known.
  var sizes: [Int64?]?
  var ready: FileReadiness?
  var report: FetchReport?
  var cleared: ClearReport?
  /// metrics: the numbers in Prometheus' text format.
  var metrics: String?
  var event: ControlEvent?
  var ruled: RuleReport?
  var settings: [SettingStatus]?
  var reloaded: ReloadReport?
  /// done, after a page: where the next page starts; absent after the last page.
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

/// Encodes a message as a line: JSON without newlines, and a newline at the end.
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
      .malformed, "a message has \(data.count) bytes, more than the limit of \(ControlLimits.message)")
  }
  return data + [UInt8(ascii: "\n")]
}

/// Decodes the message on a line and ignores unknown fields. Throws `malformed` if the line is not a message.
func decodeLine<Message: Decodable>(_ type: Message.Type, _ line: [UInt8]) throws(ControlFailure) -> Message {
  do {
    return try JSONDecoder().decode(type, from: Data(line))
  } catch let error as DecodingError {
    throw ControlFailure(.malformed, "not a message of this protocol: \(reason(error))")
  } catch {
    throw ControlFailure(.malformed, "not a message of this protocol: \(error)")
  }
}

/// Why a message cannot be decoded, without its contents, which may be long or secret.
private func reason(_ error: DecodingError) -> String {
  func place(_ context: DecodingError.Context) -> String {
    context.codingPath.isEmpty ? "" : " at \"" + context.codingPath.map(\.stringValue).joined(separator: ".") + "\""
  }
  switch error {
  case .keyNotFound(let key, _): return "\"\(key.stringValue)\" is missing"
  case .valueNotFound(_, let context): return "a value is null\(place(context))"
  case .typeMismatch(_, let context): return "a value has the wrong type\(place(context))"
  case .dataCorrupted(let context):
    return context.codingPath.isEmpty ? "the line is not JSON" : "an unknown value\(place(context))"
  @unknown default: return "it cannot be read"
  }
}

extension ControlReply {
  /// Whether the counts of an answer can be those of files. The client adds and subtracts them.
  var isPossible: Bool {
    var counts: [Int] = []
    var bytes: [Int64] = []
    if let report {
      counts += [report.files, report.complete, report.failed, report.heldUp ?? 0, report.unknownSizes]
      bytes += [report.stored, report.size]  // sums, which end at the greatest number
    }
    if let cleared { counts += [Int(cleared.files), Int(cleared.keptFiles)] }
    if let ruled { counts += [Int(ruled.files), Int(ruled.exceptions)] }
    return counts.allSatisfy { (0...1 << 40).contains($0) } && bytes.allSatisfy { $0 >= 0 }
  }
}
