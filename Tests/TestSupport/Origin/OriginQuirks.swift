import Base

/// The faults of one request, put together.
struct OriginQuirks {
  /// What happens instead of an answer.
  enum Before {
    case reset, close, stall
    case endlessHeaders(rate: Double)
    case endlessHeaderLine
    case interimAnswers(secondsApart: Double)
  }
  /// What happens in mid-body.
  struct Cut {
    enum Kind { case reset, close, stall }
    var kind: Kind
    var after: Int64
  }

  /// The origin goes down for that many seconds (inner nil: until told).
  var down: Double??
  var delay = 0.0
  var before: Before?
  var cut: Cut?
  var slow: (rate: Double, after: Int64)?
  /// A status with fields and a text in place of the resource.
  var instead: (status: Int, fields: [(String, String)], text: String, type: String)?
  var unsatisfiable: (total: Int64?, Void)?
  var ignoresRange = false
  var ignoresIfRange = false
  var rangeMistake: OriginFault.RangeMistake?
  var isMultipart = false
  var framing = OriginPlan.Framing.length
  var isHTTP10 = false
  var lengthOff: Int64 = 0
  var isGzip = false
  var acceptsRanges = true
  var tag: String?
  var nextGenerationAfter: Int64?

  init(_ faults: [OriginFault], request: OriginRequest) {
    for fault in faults { add(fault, request: request) }
  }

  private mutating func add(_ fault: OriginFault, request: OriginRequest) {
    switch fault {
    case .goDown(let seconds): down = .some(seconds)
    case .resetBeforeHeaders: before = .reset
    case .closeBeforeHeaders: before = .close
    case .stallBeforeHeaders: before = .stall
    case .endlessHeaders(let rate): before = .endlessHeaders(rate: rate)
    case .endlessHeaderLine: before = .endlessHeaderLine
    case .interimAnswers(let seconds): before = .interimAnswers(secondsApart: seconds)
    case .resetAfter(let count): cut = Cut(kind: .reset, after: count)
    case .closeAfter(let count): cut = Cut(kind: .close, after: count)
    case .stallAfter(let count): cut = Cut(kind: .stall, after: count)
    case .slow(let rate, let after): slow = (rate, after)
    case .delay(let seconds): delay += seconds
    case .status(let status, let retryAfter):
      var fields: [(String, String)] = []
      switch retryAfter {
      case .seconds(let seconds): fields.append(("Retry-After", String(seconds)))
      case .date(let ahead): fields.append(("Retry-After", httpDate(currentSeconds() + Int64(ahead))))
      case .text(let text): fields.append(("Retry-After", text))
      case nil: break
      }
      instead = (status, fields, "\(status) \(reasonPhrase(status))\n", "text/plain")
    case .redirect(let status, let location):
      instead = (status, [("Location", location)], "See \(location)\n", "text/plain")
    case .redirectLoop(let status):
      instead = (status, [("Location", request.target)], "See here\n", "text/plain")
    case .refuseHead(let status):
      if request.method == "HEAD" { instead = (status, [], "", "text/plain") }
    case .page(let text): instead = (200, [], text, "text/html; charset=utf-8")
    case .rangeNotSatisfiable(let total): unsatisfiable = (total, ())
    case .ignoreRange(let nth): ignoresRange = request.indexOfPath % max(1, nth) == 0
    case .ignoreIfRange: ignoresIfRange = true
    case .contentRange(let mistake): rangeMistake = mistake
    case .multipart: isMultipart = true
    case .noContentLength: framing = .untilClose
    case .chunked(let trailers): framing = .chunked(trailers: trailers)
    case .http10: isHTTP10 = true
    case .contentLengthOff(let count): lengthOff = count
    case .gzip: isGzip = true
    case .noAcceptRanges: acceptsRanges = false
    case .flappingTag(let tags): if !tags.isEmpty { tag = tags[request.indexOfPath % tags.count] }
    case .nextGenerationAfter(let count): nextGenerationAfter = count
    }
  }
}
