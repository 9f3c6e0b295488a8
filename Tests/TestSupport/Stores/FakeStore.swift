import Base
import Glibc

/// An object store that misbehaves on purpose, in memory, on loopback: GET, HEAD, PUT, DELETE with conditions, and
/// lists, in the path's style. It checks every signature, and its clock can be off. Any thread may call. ``stop()``
/// must be called; ``withFakeStore(_:)`` does.
package final class FakeStore: Sendable {
  /// What a request is answered with instead of the truth.
  package enum Fault: Sendable {
    /// That status and code, and nothing is done.
    case refuse(Int, code: String, fields: [String] = [])
    /// The same, before it reads the body; the connection ends with it.
    case refuseEarly(Int, code: String)
    /// No answer.
    case hang
    /// The truth, so many seconds later.
    case late(Double)
    /// The truth, once that holds.
    case once(@Sendable () -> Bool)
    /// The answer's body ends after so many bytes, and the connection with it.
    case cut(Int)
    /// The truth, at so many bytes a second.
    case trickle(bytesPerSecond: Int)
    /// It is done, and the connection ends without an answer.
    case lose
    /// Those bytes of the stored object are others by now.
    case rot
    /// What was there so many seconds ago; only reads and lists can be stale.
    case stale(Double)
    /// This answer, as it is.
    case raw(String)
  }

  /// What the store is like.
  package struct Manner: Sendable {
    package var keepsConditions = true
    package var keepsDeleteConditions = true
    package var tellsETags = true
    /// Seconds that its clock is ahead.
    package var clockOffset: Int64 = 0
    /// Its keys; nil checks no signature.
    package var judge: SignatureJudge? = SignatureJudge(secrets: [StoreKeys.key: StoreKeys.secret])
    /// The fault of a request, if it has one.
    package var fault: (@Sendable (SignatureJudge.Seen) -> Fault?)?
  }

  package struct Object: Sendable, Equatable {
    package var body: [UInt8]
    package var etag: String
    package var meta: [String: String]
    /// When it was written, in seconds since 1970.
    package var modified: Int64
  }

  private struct State {
    var manner = Manner()
    var objects: [String: Object] = [:]
    /// What each name had before each write, and when that was.
    var past: [(at: Instant, name: String, object: Object?)] = []
    var seen: [SignatureJudge.Seen] = []
    var faults: [String] = []
    var writes = 0
    var open: Set<Int32> = []
    var accepted = 0
    var isStopped = false

    mutating func set(_ name: String, _ object: Object?) {
      past.append((.now, name, objects[name]))
      objects[name] = object
    }

    /// What there was so many seconds ago.
    func objects(before seconds: Double) -> [String: Object] {
      var objects = objects
      let time = Instant.now.adding(seconds: -seconds)
      for write in past.reversed() {
        if write.at <= time { break }
        objects[write.name] = write.object
      }
      return objects
    }
  }

  package let port: UInt16
  private let state = Lock(State())
  private let stopSignal: FileDescriptor
  private let stopEnd: Int32
  private let listener = Lock<OriginListener?>(nil)

  package init() throws(Errno) {
    let pipe = try Spawn.makePipe()
    stopSignal = FileDescriptor(owning: pipe.read)
    stopEnd = pipe.write
    let socket = try OriginListener.boundSocket("127.0.0.1", port: 0)
    port = OriginListener.port(of: socket.rawValue)
    let made = try OriginListener(socket) { [self] descriptor in accept(descriptor) }
    listener.withLock { $0 = made }
  }

  package var endpoint: String { "http://127.0.0.1:\(port)" }
  package func configure(_ change: (inout Manner) -> Void) { state.withLock { change(&$0.manner) } }
  /// The requests so far, faults among them.
  package var seen: [SignatureJudge.Seen] { state.withLock { $0.seen } }
  /// What was wrong with signatures.
  package var signatureFaults: [String] { state.withLock { $0.faults } }
  /// The objects by `bucket/key`.
  package var objects: [String: Object] { state.withLock { $0.objects } }
  package func setObject(_ name: String, _ body: [UInt8], meta: [String: String] = [:]) {
    let now = now
    state.withLock { state in
      state.writes += 1
      state.set(name, Object(body: body, etag: "\"set-\(state.writes)\"", meta: meta, modified: now))
    }
  }
  /// Has all objects as if they had been written so many days earlier.
  package func age(days: Int64) {
    state.withLock { state in
      for name in state.objects.keys { state.objects[name]?.modified -= days * 86_400 }
    }
  }
  /// The connections so far.
  package var connections: Int { state.withLock { $0.accepted } }

  /// Stops, and waits until its threads are through.
  package func stop() {
    let isFirst = state.withLock { state in
      defer { state.isStopped = true }
      return !state.isStopped
    }
    guard isFirst else { return }
    listener.withLock { $0.take() }?.close()
    close(stopEnd)
    _ = eventually(timeout: 30, interval: 0.001) { state.withLock { $0.open.isEmpty } }
  }

  private func accept(_ descriptor: Int32) {
    let isWanted = state.withLock { state in
      if !state.isStopped { state.open.insert(descriptor) }
      state.accepted += 1
      return !state.isStopped
    }
    guard isWanted else {
      close(descriptor)
      return
    }
    startDetachedThread(name: "fake-store") { [self] in
      var connection = FakeStoreConnection(self, OriginSocket(descriptor, stopSignal: stopSignal.rawValue))
      do throws(OriginGone) { try connection.run() } catch {}  // the client left, or the test is over
      state.withLock { state in
        state.open.remove(descriptor)
        close(descriptor)
      }
    }
  }

  // MARK: What a connection asks

  fileprivate var manner: Manner { state.withLock { $0.manner } }
  fileprivate func noted(_ request: SignatureJudge.Seen) { state.withLock { $0.seen.append(request) } }
  fileprivate func found(_ fault: String) { state.withLock { $0.faults.append(fault) } }
  fileprivate var now: Int64 { Int64(time(nil)) + manner.clockOffset }

  /// Does what is asked, at once with regard to all others.
  fileprivate func answer(_ request: SignatureJudge.Seen, staleFor seconds: Double = 0) -> FakeStoreAnswer {
    let (path, query) = OriginHead.split(request.target)
    let now = now
    let name = String(path.dropFirst())
    return state.withLock { state in
      let object = state.objects[name]
      let told = seconds > 0 ? state.objects(before: seconds) : state.objects
      switch request.method {
      case "GET" where query["list-type"] == "2": return Self.list(name, query, told)
      case "GET", "HEAD":
        guard let object = told[name] else { return .error(404, "NoSuchKey") }
        return Self.object(object, request, state.manner.tellsETags)
      case "PUT", "DELETE":
        let isDelete = request.method == "DELETE"
        if isDelete ? state.manner.keepsDeleteConditions : state.manner.keepsConditions {
          if request.header("If-None-Match") == "*", object != nil { return .error(412, "PreconditionFailed") }
          if let tag = request.header("If-Match"), tag != object?.etag {
            return object == nil ? .error(404, "NoSuchKey") : .error(412, "PreconditionFailed")
          }
        }
        if isDelete {
          state.set(name, nil)
          return FakeStoreAnswer(204)
        }
        state.writes += 1
        var meta: [String: String] = [:]
        for header in request.headers where header.name.lowercased().hasPrefix("x-amz-meta-") {
          meta[header.name.lowercased()] = header.value
        }
        let etag = "\"tag-\(state.writes)\""
        state.set(name, Object(body: request.body, etag: etag, meta: meta, modified: now))
        return FakeStoreAnswer(200, state.manner.tellsETags ? ["ETag: \(etag)"] : [])
      default: return .error(501, "NotImplemented")
      }
    }
  }

  private static func object(_ object: Object, _ request: SignatureJudge.Seen, _ tellsETags: Bool) -> FakeStoreAnswer {
    var fields = object.meta.map { "\($0.key): \($0.value)" } + ["Content-Type: application/octet-stream"]
    if tellsETags { fields.append("ETag: \(object.etag)") }
    let size = Int64(object.body.count)
    switch OriginRange(request.header("Range"), size: size) {
    case .unsatisfiable: return .error(416, "InvalidRange")
    case .none: return FakeStoreAnswer(200, fields, object.body)
    case .part(let range):
      return FakeStoreAnswer(
        206, fields + ["Content-Range: bytes \(range.start)-\(range.end - 1)/\(size)"],
        Array(object.body[Int(range.start)..<Int(range.end)]))
    }
  }

  /// As lists have it.
  private static func listTime(_ seconds: Int64) -> String {
    var (seconds, parts) = (time_t(seconds), tm())
    gmtime_r(&seconds, &parts)
    var text = [CChar](repeating: 0, count: 40)
    let length = strftime(&text, text.count, "%Y-%m-%dT%H:%M:%S.000Z", &parts)
    return String(decoding: text[..<length].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  private static func list(
    _ bucket: String, _ query: [String: String], _ objects: [String: Object]
  ) -> FakeStoreAnswer {
    let prefix = query["prefix"] ?? ""
    let start = "\(bucket.hasSuffix("/") ? String(bucket.dropLast()) : bucket)/"
    let after = max(query["start-after"] ?? "", query["continuation-token"].map { String($0.dropFirst(3)) } ?? "")
    let limit = Int(query["max-keys"] ?? "") ?? 1000
    var names: [String] = []
    var folders: [String] = []
    for name in objects.keys.sorted() where name.hasPrefix(start) {
      let key = String(name.dropFirst(start.count))
      guard key.hasPrefix(prefix), key > after else { continue }
      let rest = key.dropFirst(prefix.count)
      if let delimiter = query["delimiter"], let end = rest.firstRange(of: delimiter) {
        let folder = prefix + rest[..<end.upperBound]
        if folders.last != folder { folders.append(folder) }
      } else {
        names.append(key)
      }
    }
    let page = names.prefix(limit)
    var text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/\">"
    for key in page {
      let object = objects[start + key]
      text += "<Contents><Key>\(key)</Key><ETag>\((object?.etag ?? "").replacing("\"", with: "&#34;"))</ETag>"
      text += "<LastModified>\(listTime(object?.modified ?? 0))</LastModified>"
      text += "<Size>\(object?.body.count ?? 0)</Size></Contents>"
    }
    for folder in folders { text += "<CommonPrefixes><Prefix>\(folder)</Prefix></CommonPrefixes>" }
    text += "<IsTruncated>\(page.count < names.count)</IsTruncated>"
    if page.count < names.count { text += "<NextContinuationToken>at:\(page.last ?? "")</NextContinuationToken>" }
    return FakeStoreAnswer(200, ["Content-Type: application/xml"], Array("\(text)</ListBucketResult>".utf8))
  }
}

/// What a fake store answers.
private struct FakeStoreAnswer {
  var status: Int
  var fields: [String]
  var body: [UInt8]

  init(_ status: Int, _ fields: [String] = [], _ body: [UInt8] = []) {
    (self.status, self.fields, self.body) = (status, fields, body)
  }

  static func error(_ status: Int, _ code: String, fields: [String] = []) -> FakeStoreAnswer {
    let text =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>\(code)</Code><Message>On purpose</Message></Error>"
    return FakeStoreAnswer(status, ["Content-Type: application/xml"] + fields, Array(text.utf8))
  }
}

/// One connection, on its own thread.
private struct FakeStoreConnection {
  let store: FakeStore
  var socket: OriginSocket

  init(_ store: FakeStore, _ socket: OriginSocket) { (self.store, self.socket) = (store, socket) }

  mutating func run() throws(OriginGone) {
    while let bytes = try socket.readHead(timeout: 60), let head = OriginHead(bytes) {
      var request = SignatureJudge.Seen(method: head.method, target: head.target, headers: head.headers, body: [])
      if case .refuseEarly(let status, let code)? = store.manner.fault?(request) {
        store.noted(request)
        try send(.error(status, code, fields: ["Connection: close"]), request)
        try socket.waitUntilDelivered()
        return
      }
      let length = request.header("Content-Length").flatMap { Int($0) } ?? 0
      if request.header("Expect") == "100-continue" { try send("HTTP/1.1 100 Continue\r\n\r\n") }
      request.body = try socket.readBody(length, timeout: 30)
      store.noted(request)
      let manner = store.manner
      let fault = manner.fault?(request)
      switch fault {
      case .refuse(let status, let code, let fields):
        try send(.error(status, code, fields: fields), request)
        continue
      case .hang:
        try socket.wait(until: Instant.now.adding(seconds: 60))
        return
      case .late(let seconds): try socket.wait(until: Instant.now.adding(seconds: seconds))
      case .once(let holds): while !holds() { try socket.wait(until: Instant.now.adding(seconds: 0.01)) }
      case .raw(let text):
        try send(text)
        return
      case .lose, .cut, .trickle, .rot, .stale, .refuseEarly, nil: break
      }
      var staleness = 0.0
      if case .stale(let seconds)? = fault { staleness = seconds }
      var answer = refusal(request, manner) ?? store.answer(request, staleFor: staleness)
      if case .lose? = fault { return }
      if case .rot? = fault, !answer.body.isEmpty { answer.body[answer.body.count / 2] ^= 1 }
      if case .cut(let count)? = fault {
        try send(answer, request, bodyBytes: count)
        return
      }
      if case .trickle(let rate)? = fault {
        try send(answer, request, bytesPerSecond: rate)
        continue
      }
      try send(answer, request)
    }
  }

  /// Why it is not let in.
  private func refusal(_ request: SignatureJudge.Seen, _ manner: FakeStore.Manner) -> FakeStoreAnswer? {
    guard let judge = manner.judge else { return nil }
    if let fault = judge.fault(request) {
      store.found("\(request.method) \(request.target): \(fault.code): \(fault.reason)")
      return .error(403, fault.code)
    }
    guard let stamp = request.header("x-amz-date"), let time = Self.seconds(stamp), abs(time - store.now) <= 900 else {
      return .error(403, "RequestTimeTooSkewed")
    }
    return nil
  }

  private func send(
    _ answer: FakeStoreAnswer, _ request: SignatureJudge.Seen, bodyBytes: Int? = nil, bytesPerSecond: Int? = nil
  ) throws(OriginGone) {
    var head = ["HTTP/1.1 \(answer.status) X", "Date: \(Self.date(store.now))"] + answer.fields
    if answer.status != 204 { head.append("Content-Length: \(answer.body.count)") }
    let body = request.method == "HEAD" ? [] : Array(answer.body.prefix(bodyBytes ?? .max))
    try send(head.joined(separator: "\r\n") + "\r\n\r\n")
    guard let bytesPerSecond else { return try send(body) }
    for start in stride(from: 0, to: body.count, by: max(1, bytesPerSecond / 20)) {
      try send(Array(body[start..<min(start + max(1, bytesPerSecond / 20), body.count)]))
      try socket.wait(until: Instant.now.adding(seconds: 0.05))
    }
  }

  private func send(_ text: String) throws(OriginGone) { try send(Array(text.utf8)) }

  private func send(_ bytes: [UInt8]) throws(OriginGone) {
    var failure: OriginGone?
    bytes.withUnsafeBytes { buffer in
      do throws(OriginGone) { try socket.send(buffer) } catch { failure = error }
    }
    if let failure { throw failure }
  }

  private static func date(_ seconds: Int64) -> String {
    var seconds = time_t(seconds)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    var text = [CChar](repeating: 0, count: 64)
    let count = strftime(&text, text.count, "%a, %d %b %Y %H:%M:%S GMT", &parts)
    return String(decoding: text[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  private static func seconds(_ stamp: String) -> Int64? {
    let digits = stamp.filter(\.isNumber).compactMap(\.wholeNumberValue).map { Int32($0) }
    guard stamp.utf8.count == 16, digits.count == 14 else { return nil }
    func number(_ range: Range<Int>) -> Int32 { digits[range].reduce(0) { $0 * 10 + $1 } }
    var parts = tm()
    (parts.tm_year, parts.tm_mon, parts.tm_mday) = (number(0..<4) - 1900, number(4..<6) - 1, number(6..<8))
    (parts.tm_hour, parts.tm_min, parts.tm_sec) = (number(8..<10), number(10..<12), number(12..<14))
    return Int64(timegm(&parts))
  }
}

/// Lends a fake store and stops it afterwards.
package func withFakeStore<Result>(_ body: (FakeStore) throws -> Result) throws -> Result {
  let store = try FakeStore()
  defer { store.stop() }
  return try body(store)
}
