import Base
import Glibc

/// One response, decided before its first byte.
struct OriginPlan {
  /// How the body's end is told.
  enum Framing: Equatable {
    case length
    case untilClose
    case chunked(trailers: Bool)
  }
  /// What the body is made of.
  struct Body {
    var source: OriginSource
    var range: ByteRange
    /// What stands before and behind it (multipart).
    var prefix: [UInt8] = []
    var suffix: [UInt8] = []
    var isGzip = false
    /// Its length as sent.
    var length: Int64 {
      Int64(prefix.count + suffix.count) + (isGzip ? GzipFrame.length(of: range.count) : range.count)
    }
  }

  var status: Int
  var version = "HTTP/1.1"
  var fields: [(name: String, value: String)] = []
  var body: Body?
  var framing = Framing.length
  /// What is announced beyond (or, negative, short of) the body's length.
  var lengthOff: Int64 = 0
  var keepsConnection = true
  /// What the request asked for, for the log.
  var requestedRange: ByteRange?

  /// A text in place of the resource.
  init(status: Int, fields: [(String, String)] = [], text: String, type: String = "text/plain") {
    self.status = status
    self.fields = [("Content-Type", type)] + fields
    let source = OriginSource(text: Array(text.utf8))
    body = Body(source: source, range: ByteRange(0, source.size))
  }

  /// The connection is closed behind this response, and it says so.
  mutating func close() {
    keepsConnection = false
    fields.append(("Connection", "close"))
  }

  /// The status line and the fields, with the empty line.
  func head(of request: OriginRequest) -> String {
    var text =
      "\(version) \(status) \(reasonPhrase(status))\r\nServer: test-origin\r\nDate: \(httpDate(currentSeconds()))\r\n"
    for field in fields { text += "\(field.name): \(field.value)\r\n" }
    switch framing {
    case .length: text += "Content-Length: \(max(0, (body?.length ?? 0) + lengthOff))\r\n"
    case .chunked(let trailers):
      text += "Transfer-Encoding: chunked\r\n" + (trailers ? "Trailer: X-Trailer\r\n" : "")
    case .untilClose: break
    }
    return text + "\r\n"
  }
}

extension Origin {
  /// What to answer.
  func plan(for request: OriginRequest, quirks: OriginQuirks) -> OriginPlan {
    var plan: OriginPlan
    if let instead = quirks.instead {
      plan = OriginPlan(status: instead.status, fields: instead.fields, text: instead.text, type: instead.type)
    } else if request.method != "GET" && request.method != "HEAD" {
      plan = OriginPlan(status: 405, fields: [("Allow", "GET, HEAD")], text: "405 Method Not Allowed\n")
    } else if let resource = resourceOrFile(request.path), let source = OriginSource(resource, path: request.path) {
      plan = self.plan(for: request, resource: resource, source: source, quirks: quirks)
    } else {
      plan = OriginPlan(status: 404, text: "404 Not Found\n")
    }
    plan.framing = quirks.framing
    plan.lengthOff = quirks.lengthOff
    if quirks.isHTTP10 {
      plan.version = "HTTP/1.0"
      plan.keepsConnection = false
    }
    if plan.framing == .untilClose || plan.lengthOff > 0 { plan.keepsConnection = false }
    if quirks.isGzip, plan.body != nil {
      plan.body?.isGzip = true
      plan.fields.append(("Content-Encoding", "gzip"))
    }
    return plan
  }

  private func resourceOrFile(_ path: String) -> OriginResource? {
    if let resource = resource(path) { return resource }
    let folders = state.withLock { $0.folders }
    // The longest prefix is the nearest.
    guard let prefix = folders.keys.filter({ path.hasPrefix($0) }).max(by: { $0.utf8.count < $1.utf8.count }),
      let folder = folders[prefix], !path.split(separator: "/").contains("..")
    else { return nil }
    // As web servers do: what stands for a folder is its index page.
    let file = folder + "/" + path.dropFirst(prefix.count)
    return OriginResource(file: path.hasSuffix("/") ? file + "index.html" : file)
  }

  private func plan(
    for request: OriginRequest, resource: OriginResource, source: OriginSource, quirks: OriginQuirks
  ) -> OriginPlan {
    let size = source.size
    let tag = quirks.tag ?? source.fileTag ?? resource.etag(name: source.name)
    let modified = source.fileModified ?? resource.lastModified
    var plan = OriginPlan(status: 200, text: "")
    plan.fields = []
    if let type = resource.contentType { plan.fields.append(("Content-Type", type)) }
    if quirks.acceptsRanges { plan.fields.append(("Accept-Ranges", "bytes")) }
    if let tag { plan.fields.append(("ETag", tag)) }
    if let modified { plan.fields.append(("Last-Modified", httpDate(modified))) }
    if let disposition = resource.disposition { plan.fields.append(("Content-Disposition", disposition)) }
    plan.fields += resource.headers
    plan.body = OriginPlan.Body(source: source, range: ByteRange(0, size))

    var range = OriginRange(request.header("Range"), size: size)
    if case .part(let part) = range { plan.requestedRange = part }
    if quirks.ignoresRange || (!quirks.ignoresIfRange && !ifRangeHolds(request, tag: tag, modified: modified)) {
      range = .none
    }
    if let wrong = quirks.unsatisfiable {
      return unsatisfiable(plan, total: wrong.total)
    }
    switch range {
    case .none: return plan
    case .unsatisfiable: return unsatisfiable(plan, total: size)
    case .part(let part): return partial(plan, part: part, source: source, size: size, quirks: quirks)
    }
  }

  private func unsatisfiable(_ plan: OriginPlan, total: Int64?) -> OriginPlan {
    var answer = OriginPlan(status: 416, text: "416 Range Not Satisfiable\n")
    if let total { answer.fields.append(("Content-Range", "bytes */\(total)")) }
    answer.requestedRange = plan.requestedRange
    return answer
  }

  private func partial(
    _ whole: OriginPlan, part asked: ByteRange, source: OriginSource, size: Int64, quirks: OriginQuirks
  ) -> OriginPlan {
    var plan = whole
    var part = asked
    var total = String(size)
    var text: String?
    switch quirks.rangeMistake {
    case .otherStart(let count):
      let start = min(size - 1, max(0, asked.start + count))
      part = ByteRange(start, max(start + 1, min(size, asked.end + count)))
    case .shorter(let count): part = ByteRange(asked.start, max(asked.start + 1, asked.end - count))
    case .total(let number): total = String(number)
    case .unknownTotal: total = "*"
    case .text(let given): text = given
    case .missing, nil: break
    }
    plan.status = 206
    plan.body = OriginPlan.Body(source: source, range: part)
    let value = text ?? "bytes \(part.start)-\(part.end - 1)/\(total)"
    if quirks.isMultipart {
      let type = plan.fields.first { $0.name == "Content-Type" }?.value ?? "application/octet-stream"
      plan.fields.removeAll { $0.name == "Content-Type" }
      plan.fields.append(("Content-Type", "multipart/byteranges; boundary=mediafs-test"))
      plan.body?.prefix = Array(
        "\r\n--mediafs-test\r\nContent-Type: \(type)\r\nContent-Range: \(value)\r\n\r\n".utf8)
      plan.body?.suffix = Array("\r\n--mediafs-test--\r\n".utf8)
    } else if case .missing = quirks.rangeMistake {
      return plan
    } else {
      plan.fields.append(("Content-Range", value))
    }
    return plan
  }

  /// Whether a Range is to be honoured (RFC 9110, section 13.1.5): without If-Range, or when that is our strong tag, or
  /// exactly our date.
  private func ifRangeHolds(_ request: OriginRequest, tag: String?, modified: Int64?) -> Bool {
    guard let wanted = request.header("If-Range") else { return true }
    if wanted.hasPrefix("W/") { return false }
    if wanted.hasPrefix("\"") { return wanted == tag }
    return modified.map { httpDate($0) == wanted } ?? false
  }
}

/// Now, in seconds since 1970.
func currentSeconds() -> Int64 { Int64(time(nil)) }

/// A date as HTTP writes it (RFC 9110, section 5.6.7).
func httpDate(_ seconds: Int64) -> String {
  var time = time_t(seconds)
  var parts = tm()
  gmtime_r(&time, &parts)
  let days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
  let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
  func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
  let date = "\(two(parts.tm_mday)) \(months[Int(parts.tm_mon)]) \(parts.tm_year + 1900)"
  return "\(days[Int(parts.tm_wday)]), \(date) \(two(parts.tm_hour)):\(two(parts.tm_min)):\(two(parts.tm_sec)) GMT"
}

/// The phrase behind a status; of no meaning to anyone.
func reasonPhrase(_ status: Int) -> String {
  let known = [
    200: "OK", 206: "Partial Content", 301: "Moved Permanently", 302: "Found", 303: "See Other", 304: "Not Modified",
    307: "Temporary Redirect", 308: "Permanent Redirect", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden",
    404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout", 410: "Gone", 416: "Range Not Satisfiable",
    429: "Too Many Requests", 451: "Unavailable For Legal Reasons", 500: "Internal Server Error", 502: "Bad Gateway",
    503: "Service Unavailable", 504: "Gateway Timeout",
  ]
  return known[status] ?? "Status"
}
