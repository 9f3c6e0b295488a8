import Base

// What a response's head means. Pure: fields in, verdict out. RFC 9110, section 15 (status codes) and 14 (ranges).

/// What to do with a response after its head.
enum ResponseVerdict {
  /// 200 or 206, and usable.
  case accepted(AcceptedHead)
  /// Request the URL that `location` names; `mayStore` is false when the origin forbade storing this response.
  case redirected(location: String, mayStore: Bool)
  /// The response is of no use.
  case failed(TransferFailure)
}

/// The part of a ``ResponseHead`` that comes from the fields alone.
struct AcceptedHead: Equatable {
  var body: ResponseHead.Body
  var validators: Validators
  var speaksDAV = false
  var mediaType: String?
  var suggestedName: String?
  var date: Int64?
  var object: ObjectAnswer?
}

/// The request, as far as the checks and their messages need it.
struct ResponseContext {
  /// The requested bytes, nil without a Range; an `end` of `Int64.max` is an open end.
  var range: ByteRange?
  /// The requested URL, redacted.
  var url: String
  /// Whether mediafs withheld credentials or fields of the entry because this is not its home origin.
  var withheld = false
  /// Whether the request was for a document.
  var isDocument = false
  /// The method of a request to an object store; nil for every other request.
  var object: ObjectRequest.Method?
  /// Seconds since 1970.
  var now: Int64
}

/// Judges a final (not interim) response.
func verdict(on fields: ResponseFields, in context: ResponseContext) -> ResponseVerdict {
  let check = ResponseCheck(fields: fields, context: context)
  do throws(TransferFailure) {
    if let method = context.object { return .accepted(try check.object(method)) }
    switch fields.status {
    case 200..<300 where context.isDocument && fields.status != 206: return .accepted(try check.document())
    case 304 where context.isDocument: return .accepted(try check.document())
    case 200: return .accepted(try check.whole())
    case 206: return .accepted(try check.part())
    case 301, 302, 303, 307, 308: return try check.redirect()
    default: return .failed(check.refusal())
    }
  } catch {
    return .failed(error)
  }
}

private struct ResponseCheck {
  let fields: ResponseFields
  let context: ResponseContext

  func whole() throws(TransferFailure) -> AcceptedHead {
    try requireIdentity()
    let length = try contentLength()
    // Some origins send status 200 with a part. mediafs accepts only one whose Content-Range is the whole file.
    for text in fields.all(.contentRange) {
      guard case .satisfied(let range, let total?)? = ContentRange(text), range == ByteRange(0, total),
        length == nil || length == total
      else { throw unusable("sent status 200 with a Content-Range that is not the whole file") }
    }
    return accepted(.whole(length: length))
  }

  /// A document may come encoded: then its length is not that of its text.
  func document() throws(TransferFailure) -> AcceptedHead {
    let isPlain = fields.status != 304 && fields.all(.contentEncoding).isEmpty
    var head = accepted(.whole(length: isPlain ? try contentLength() : nil))
    head.speaksDAV = fields[.dav] != nil || fields.all(.allow).contains { $0.uppercased().contains("PROPFIND") }
    return head
  }

  /// Every answer of an object store, after its checks as a part if it is one. Some stores (rclone's server) send parts
  /// with status 200.
  func object(_ method: ObjectRequest.Method) throws(TransferFailure) -> AcceptedHead {
    let hasBody = method != .head && fields.status != 204 && fields.status != 304
    let length = try contentLength()
    if hasBody { try requireIdentity() }
    let isPart = fields.status == 206 || (fields.status == 200 && context.range != nil && fields[.contentRange] != nil)
    var head = isPart ? try part() : accepted(.whole(length: hasBody ? length : 0))
    head.object = ObjectAnswer(
      fields: fields.amazon, length: length,
      retryAfter: fields[.retryAfter].flatMap { Fetching.retryAfter($0, now: context.now) })
    return head
  }

  func part() throws(TransferFailure) -> AcceptedHead {
    try requireIdentity()
    guard let asked = context.range else { throw unusable("sent a part (206) though the request had no Range") }
    if mediaType(fields[.contentType] ?? "") == "multipart/byteranges" {
      throw unusable("sent several parts (multipart/byteranges) though the request was for one")
    }
    let texts = Set(fields.all(.contentRange))
    guard let text = texts.first else { throw unusable("sent a part (206) without a Content-Range") }
    guard texts.count == 1, case .satisfied(let range, let total)? = ContentRange(text) else {
      throw unusable("sent a part (206) with a Content-Range that is not valid")
    }
    guard range.start == asked.start, range.end <= asked.end else {
      throw unusable("sent bytes \(range) though the request was for \(asked)")
    }
    if let length = try contentLength(), length != range.count {
      throw unusable("announced \(length) bytes for a part of \(range.count)")
    }
    return accepted(.part(range, total: total))
  }

  func redirect() throws(TransferFailure) -> ResponseVerdict {
    guard let location = fields[.location], !location.isEmpty else {
      throw unusable("sent a redirect (\(fields.status)) without a Location")
    }
    let directives = fields.all(.cacheControl).flatMap { $0.lowercased().split(separator: ",").map { trimmed($0) } }
    return .redirected(location: location, mayStore: !directives.contains("no-store"))
  }

  /// The failure for a status without a usable body.
  func refusal() -> TransferFailure {
    switch fields.status {
    case 401, 403: failure(.denied, "refused access", advice: accessAdvice)
    case 407: failure(.permanent, "cannot be reached: the proxy needs a login", advice: "put it in the proxy variable")
    case 408, 425, 429, 500..<600: failure(.transient, "cannot serve it now")
    case 404: failure(.permanent, "does not have it", advice: "check the URL in the list")
    case 410: failure(.permanent, "no longer has it", advice: "list another URL for the file")
    case 451: failure(.permanent, "may not give it for legal reasons")
    case 416: failure(.unsatisfiable(total: unsatisfiedTotal), "has no bytes at \(context.range?.start ?? 0)")
    case 412: failure(.unusable, "now has another version")
    case 400..<500: failure(.permanent, "rejected the request")
    default: failure(.unusable, "sent a response without a file")
    }
  }

  private func accepted(_ body: ResponseHead.Body) -> AcceptedHead {
    AcceptedHead(
      body: body, validators: validators(etag: fields[.etag], lastModified: fields[.lastModified]),
      mediaType: fields[.contentType].flatMap { mediaType($0) },
      suggestedName: fields[.contentDisposition].flatMap { suggestedName(disposition: $0) }, date: date)
  }

  /// The time of the origin's clock; of what a cache answers, it sent Date when the answer was new, and Age since
  /// (RFC 9111, section 5.1).
  private var date: Int64? {
    guard let sent = fields[.date].flatMap({ httpDate($0) }) else { return nil }
    guard let age = fields[.age] else { return sent }
    return UInt32(trimmed(age)).map { sent + Int64($0) }
  }

  private func requireIdentity() throws(TransferFailure) {
    let codings = fields.all(.contentEncoding).flatMap { $0.lowercased().split(separator: ",").map { trimmed($0) } }
    if let coding = codings.first(where: { $0 != "identity" && !$0.isEmpty }) {
      throw unusable("sent the file encoded (\(coding.prefix(16))) though the request allows no encoding")
    }
  }

  /// The announced length of the body; nil when there is none, or when the framing overrides it (RFC 9112, section
  /// 6.3).
  private func contentLength() throws(TransferFailure) -> Int64? {
    if !fields.all(.transferEncoding).isEmpty { return nil }
    // One value, or repetitions of it (RFC 9110, section 8.6).
    let texts = Set(fields.all(.contentLength).flatMap { $0.split(separator: ",").map { trimmed($0) } })
    guard let text = texts.first else { return nil }
    guard texts.count == 1, let length = decimal(text), length <= longestResource else {
      throw unusable("sent a Content-Length that is not valid")
    }
    return length
  }

  private var unsatisfiedTotal: Int64? {
    guard case .unsatisfied(let total)? = fields[.contentRange].flatMap({ ContentRange($0) }) else { return nil }
    return total
  }

  private var accessAdvice: String {
    context.withheld
      ? "mediafs sent this host no login and no headers of the entry, because the list names another host: "
        + "list this host's URL"
      : "the link may have expired, or a login is missing or wrong"
  }

  private func unusable(_ what: String) -> TransferFailure { failure(.unusable, what) }

  private func failure(_ kind: TransferFailure.Kind, _ what: String, advice: String? = nil) -> TransferFailure {
    TransferFailure(
      kind: kind, status: fields.status,
      retryAfter: fields[.retryAfter].flatMap { retryAfter($0, now: context.now) },
      message: "\(context.url): the origin \(what) (HTTP \(fields.status))" + (advice.map { ": " + $0 } ?? ""))
  }
}
