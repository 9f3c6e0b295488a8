import Base

/// The commands that a `test-origin` process takes: as `POST /.origin/COMMAND?key=value&…` and as flags of its command
/// line, `--COMMAND key=value,…`.
package enum OriginCommand {
  /// What the commands are, for a help text.
  package static let help = """
    resource path=P,size=N[,count=K][,pattern=NAME][,type=T][,tag=strong|weak|none|TEXT][,modified=SECONDS|none]
             [,disposition=TEXT][,generation=N]      N may end in K, M, G, T; %d in P counts 0..K-1
    folder   path=DIR[,at=/PREFIX/]                  serve a folder's files
    next     path=P[,size=N]                         the next generation
    remove   path=P
    set      latency=S,accept-delay=S,line-rate=B,connection-rate=B,max-connections=N,send-buffer=N,frozen=0|1
             (rates in bytes a second; none takes a bound away)
    fault    kind=K[,path=P][,next=N][,…]            kinds with what they take:
             refuse[,seconds=S] reset-before close-before stall-before reset-after,bytes=N close-after,bytes=N
             stall-after,bytes=N slow,rate=B[,bytes=N] delay,seconds=S endless-headers[,rate=B]
             endless-header-line interim,seconds=S
             status,status=N[,retry-after=TEXT] redirect,to=URL[,status=N] redirect-loop[,status=N] refuse-head[,status=N]
             page range-not-satisfiable[,total=N] ignore-range[,every=N] ignore-if-range other-start,by=N shorter,by=N
             wrong-total,total=N unknown-total no-content-range multipart no-length chunked trailers http10
             length-off,by=N gzip no-accept-ranges flapping-tag next-generation-after,bytes=N
    clear-faults [path=P]    reset-log    down    up    drop
    """

  /// A command that cannot be done, and why.
  package struct Failure: Error, CustomStringConvertible {
    /// The message.
    package let description: String
  }

  /// Does one command.
  package static func apply(_ command: String, _ values: [String: String], to origin: Origin) throws {
    switch command {
    case "resource": try addResources(values, to: origin)
    case "folder": origin.serve(folder: try need("path", values), at: values["at"] ?? "/")
    case "next": origin.nextGeneration(try need("path", values), size: try values["size"].map(size))
    case "remove": origin.remove(try need("path", values))
    case "set": try set(values, of: origin)
    case "fault":
      origin.fault(
        [try OriginFault(kind: try need("kind", values), values)], path: values["path"],
        next: try values["next"].map { Int(try size($0)) })
    case "clear-faults": origin.clearFaults(path: values["path"])
    case "reset-log": origin.log.reset()
    case "down": try origin.setUp(false)
    case "up": try origin.setUp(true)
    case "drop": origin.dropConnections()
    default: throw Failure(description: "no command \(command)")
    }
  }

  private static func addResources(_ values: [String: String], to origin: Origin) throws {
    let path = try need("path", values)
    let bytes = try size(try need("size", values))
    let count = try values["count"].map { Int(try size($0)) }
    for index in 0..<(count ?? 1) {
      let path = count == nil ? path : path.replacing("%d", with: String(index))
      var resource = OriginResource(
        size: bytes, pattern: values["pattern"] ?? path, type: values["type"] ?? mediaType(ofPath: path))
      switch values["tag"] {
      case nil, "strong": break
      case "weak": resource.tag = .weak
      case "none": resource.tag = .none
      case let text?: resource.tag = .fixed(text)
      }
      if let modified = values["modified"] { resource.modified = modified == "none" ? nil : try size(modified) }
      if let generation = values["generation"] { resource.generation = UInt64(try size(generation)) }
      resource.disposition = values["disposition"]
      origin.set(path, resource)
    }
  }

  private static func set(_ values: [String: String], of origin: Origin) throws {
    var settings = origin.settings
    for (key, value) in values {
      let bound = value == "none" ? nil : try number(value)
      switch key {
      case "latency": settings.latency = bound ?? 0
      case "accept-delay": settings.acceptDelay = bound ?? 0
      case "line-rate": settings.lineRate = bound
      case "connection-rate": settings.connectionRate = bound
      case "max-connections": settings.maxConnections = bound.map { Int($0) }
      case "send-buffer": settings.sendBuffer = bound.map { Int32($0) }
      case "frozen": settings.isFrozen = bound == 1
      default: throw Failure(description: "nothing to set is called \(key)")
      }
    }
    origin.configure { $0 = settings }
  }

  static func need(_ key: String, _ values: [String: String]) throws -> String {
    guard let value = values[key] else { throw Failure(description: "\(key)= is missing") }
    return value
  }

  /// A number that is not negative and fits, maybe with a fraction.
  static func number(_ text: String) throws -> Double {
    if let value = Double(text), value >= 0, value < 1e15 { return value }
    return Double(try size(text))
  }

  /// A whole number, maybe negative, maybe with K, M, G or T (of 1024).
  static func size(_ text: String) throws -> Int64 {
    let shifts: [Character: Int64] = ["K": 10, "M": 20, "G": 30, "T": 40]
    let shift = text.last.flatMap { shifts[$0] }
    let digits = shift == nil ? text[...] : text.dropLast()
    guard let value = Int64(digits), value.magnitude < 1 << (62 - UInt64(shift ?? 0)) else {
      throw Failure(description: "\(text) is no number")
    }
    return value << (shift ?? 0)
  }
}

extension OriginFault {
  /// The fault of that name (see ``OriginCommand/help``).
  init(kind: String, _ values: [String: String]) throws {
    func bytes(_ key: String = "bytes") throws -> Int64 { try OriginCommand.size(try OriginCommand.need(key, values)) }
    func status(_ fallback: Int) throws -> Int { Int(try values["status"].map(OriginCommand.size) ?? Int64(fallback)) }
    func seconds() throws -> Double { try OriginCommand.number(try OriginCommand.need("seconds", values)) }
    switch kind {
    case "refuse": self = .goDown(seconds: try values["seconds"].map(OriginCommand.number))
    case "reset-before": self = .resetBeforeHeaders
    case "close-before": self = .closeBeforeHeaders
    case "stall-before": self = .stallBeforeHeaders
    case "reset-after": self = .resetAfter(try bytes())
    case "close-after": self = .closeAfter(try bytes())
    case "stall-after": self = .stallAfter(try bytes())
    case "slow":
      let rate = try OriginCommand.number(try OriginCommand.need("rate", values))
      self = .slow(bytesPerSecond: rate, after: try values["bytes"].map(OriginCommand.size) ?? 0)
    case "delay": self = .delay(try seconds())
    case "endless-headers":
      self = .endlessHeaders(bytesPerSecond: try values["rate"].map(OriginCommand.number) ?? 10_000)
    case "endless-header-line": self = .endlessHeaderLine
    case "interim": self = .interimAnswers(secondsApart: try seconds())
    case "status": self = .status(try status(503), retryAfter: values["retry-after"].map { .text($0) })
    case "redirect": self = .redirect(try status(302), to: try OriginCommand.need("to", values))
    case "redirect-loop": self = .redirectLoop(try status(302))
    case "refuse-head": self = .refuseHead(status: try status(405))
    case "page": self = .page()
    case "range-not-satisfiable": self = .rangeNotSatisfiable(total: try values["total"].map(OriginCommand.size))
    case "ignore-range": self = .ignoreRange(everyNth: Int(try values["every"].map(OriginCommand.size) ?? 1))
    case "ignore-if-range": self = .ignoreIfRange
    case "other-start": self = .contentRange(.otherStart(by: try bytes("by")))
    case "shorter": self = .contentRange(.shorter(by: try bytes("by")))
    case "wrong-total": self = .contentRange(.total(try bytes("total")))
    case "unknown-total": self = .contentRange(.unknownTotal)
    case "no-content-range": self = .contentRange(.missing)
    case "multipart": self = .multipart
    case "no-length": self = .noContentLength
    case "chunked": self = .chunked()
    case "trailers": self = .chunked(trailers: true)
    case "http10": self = .http10
    case "length-off": self = .contentLengthOff(by: try bytes("by"))
    case "gzip": self = .gzip
    case "no-accept-ranges": self = .noAcceptRanges
    case "flapping-tag": self = .flappingTag(["\"a\"", "\"b\""])
    case "next-generation-after": self = .nextGenerationAfter(try bytes())
    default: throw OriginCommand.Failure(description: "no fault is called \(kind)")
    }
  }
}
