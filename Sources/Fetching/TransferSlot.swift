import Base
import CCurl
import Glibc

/// One transfer and its easy handle, from the start over its redirects to the end. The loop reuses slots.
///
/// The loop's thread alone uses it.
///
/// Phases: `head` until the head of a final response is complete. Then `body` (accepted) or `discarding` (a redirect or
/// a refusal: reading its short body keeps the connection). After a redirect `head` again.
final class TransferSlot {
  /// The result of `conclude`.
  enum Conclusion {
    case ended(TransferEnd)
    case redirected(location: String, mayStore: Bool)
    /// Its connection was dead: it is to be requested again.
    case again
  }

  private enum Phase {
    case head
    case body
    case discarding(Conclusion)
  }

  /// The most bytes of an unwanted body that the slot reads to keep its connection.
  static let discardLimit = 64 << 10

  var easy: EasyHandle
  /// Whether libcurl's multi handle has `easy`; see TransferCallbacks.swift.
  var isAttached = false
  /// Whether the handle's last request did not end well. After a name that did not resolve, or whose resolution was cut
  /// short, libcurl 7.88 keeps the handle's buffer and refuses CURLOPT_BUFFERSIZE (seen): such a handle is not reused.
  var isSpent = false
  /// The loop sets it when the client cancelled: then the client gets nothing more.
  var isCancelled = false
  private(set) var id = TransferID(0)
  private(set) var receiveBuffer: Int32?

  /// The loop, which outlives its slots.
  private unowned let loop: LoopCore
  private var chain: RedirectChain?
  private var range: ByteRange?
  private var phase = Phase.head
  /// Where a spare connection was made for the request that comes next.
  private var spare: SpareConnections.Place?
  /// Whether the transfer's own connection was a spare one. If that turns out dead, the request is made once more:
  /// libcurl repeats it only on connections that it used before.
  private enum SpareUse { case none, taken, failed }
  private var spareUse = SpareUse.none
  private var fields = ResponseFields()
  private var meter = BodyMeter(expected: nil)
  private var discarded = 0
  /// How the transfer ends if a callback decides it before libcurl reports.
  private var outcome: TransferEnd?

  /// nil when out of memory.
  init?(loop: LoopCore) {
    guard let easy = EasyHandle() else { return nil }
    self.easy = easy
    self.loop = loop
  }

  /// The current URL, for messages.
  var redactedURL: String { chain?.shown ?? "" }

  /// The host of the current URL, as ``TransferRates`` has it.
  var host: String { chain.map { TransferRates.host(of: $0.url.text) } ?? "" }

  /// Begins a new transfer. Call `connect` next.
  func begin(_ request: TransferRequest, _ chain: RedirectChain) {
    id = request.id
    // Under a rate limit an eighth of a second's bytes, which the kernel doubles. Nothing else limits how much the
    // kernel receives ahead of mediafs.
    let rate = request.object == nil ? loop.setup.rates.limit(of: request.url) : nil
    let limited = rate.map { Int32(min(max($0 / 8, 64 << 10), 2 << 20)) }
    receiveBuffer = request.receiveBuffer ?? limited
    range = request.range
    self.chain = chain
    isCancelled = false
    outcome = nil
    (spare, spareUse) = (nil, .none)
  }

  /// Forgets the transfer, so that the slot can be reused.
  func end() {
    easy.reset()
    chain = nil
    fields = ResponseFields()
    phase = .head
    outcome = nil
  }

  /// Requests the chain's current URL.
  func connect() throws(TransferFailure) {
    guard let chain else { return }
    if isSpent, let fresh = EasyHandle() {
      easy = fresh
      isSpent = false
    }
    phase = .head
    fields = ResponseFields(keepsAmazon: chain.object != nil)
    discarded = 0
    do throws(CurlError) {
      do throws(CurlError) { try prepare(chain) } catch {
        // libcurl 7.88 also keeps the buffer of a handle whose stream shared a connection with others (HTTP/2; seen).
        guard error.code == CURLE_BAD_FUNCTION_ARGUMENT, let fresh = EasyHandle() else { throw error }
        easy = fresh
        try prepare(chain)
      }
      try attach(to: loop.multi.raw)
    } catch {
      throw failure(of: error.code, detail: "", url: redactedURL, progress: nil)
    }
    Log.debug(
      "transfer \(id.rawValue): \(chain.method) \(redactedURL) \(range?.description ?? "whole")")
  }

  private func prepare(_ chain: RedirectChain) throws(CurlError) {
    easy.reset()
    try easy.prepare(chain, loop.setup)
  }

  /// Moves on to the target of a redirect. Call `connect` next.
  func follow(_ location: String, mayStore: Bool) throws(TransferFailure) {
    try chain?.follow(location, mayStore: mayStore)
    spareUse = .none
  }

  /// A socket for this transfer, which others may share; -1: there is none.
  func openSocket(to address: UnsafeMutablePointer<curl_sockaddr>) -> Int32 {
    let place = SpareConnections.Place(address, receiveBuffer: receiveBuffer)
    if spareUse != .failed, let spare = loop.spares.take(place) {
      spareUse = .taken
      loop.made(spare)
      return spare
    }
    let socket = place.socket()
    if socket < 0 { return -1 }
    loop.made(socket)
    if chain?.opensAnother == true {
      // Another address of the host, or another host of the chain: one is enough.
      dropSpare()
      spare = place
      loop.spares.plan(place)
    }
    return socket
  }

  private func dropSpare() {
    if let spare { loop.spares.drop(spare) }
    spare = nil
  }

  /// Whether such a socket is connected already.
  func isConnected(_ socket: Int32) -> Bool { loop.spares.wasTaken(socket) }

  // MARK: Called back by libcurl; false ends the transfer

  func receive(headerLine line: UnsafeRawBufferPointer) -> Bool {
    if isCancelled { return false }
    guard case .head = phase else {  // a trailer
      fields.skip(line: line)
      return headFits()
    }
    let ended = fields.add(line: line)
    guard headFits() else { return false }
    if !ended || fields.isInterim { return true }
    return judge()
  }

  func receive(body bytes: UnsafeRawBufferPointer) -> Bool {
    if isCancelled { return false }
    guard case .body = phase else {
      discarded += bytes.count
      return discarded <= Self.discardLimit
    }
    let usable = meter.take(bytes.count)
    if usable > 0 {
      let part = usable == bytes.count ? bytes : UnsafeRawBufferPointer(rebasing: bytes[..<usable])
      guard loop.gather(part, for: self) else {
        outcome = .cancelled
        return false
      }
    }
    if usable < bytes.count {
      outcome = .failed(
        TransferFailure(
          kind: .unusable, status: fields.status,
          message: "\(redactedURL): the origin sent more than the \(meter.received) bytes it announced"))
      return false
    }
    return true
  }

  /// Notes that the client wants no more.
  func refuse() { outcome = .cancelled }
  /// Whether the client wants no more.
  var isRefused: Bool { if case .cancelled = outcome { true } else { false } }

  private func headFits() -> Bool {
    guard fields.isTooLong else { return true }
    // After an accepted body these are trailers: the bytes were right, but not the end.
    outcome = .failed(tooLong("more than \(ResponseFields.limit >> 10) KiB of header fields"))
    return false
  }

  /// libcurl refuses a header line over 100 KiB (CURL_MAX_HTTP_HEADER). Versions up to 7.88 return CURLE_OUT_OF_MEMORY:
  /// after the first byte of a response, the only large allocation is the one for that line.
  private func isTooLongLine(_ code: CURLcode) -> Bool {
    let isRefused = code == CURLE_OUT_OF_MEMORY || code == tooLargeCode
    return isRefused && easy.microseconds(CURLINFO_STARTTRANSFER_TIME_T) > 0
  }

  private func tooLong(_ what: String) -> TransferFailure {
    TransferFailure(
      kind: .unusable, status: fields.status == 0 ? nil : fields.status,
      message: "\(redactedURL): the origin sent \(what): \(brokenAnswerAdvice)")
  }

  private func judge() -> Bool {
    guard let chain else { return false }
    let context = ResponseContext(
      range: range, url: redactedURL, withheld: chain.isWithholding, isDocument: chain.document != nil,
      object: chain.object?.method, now: Int64(time(nil)))
    let verdict = verdict(on: fields, in: context)
    // Over HTTP/2 one connection carries all, over HTTP/1.0 none carries a second request; and here is nothing to read.
    if case .accepted = verdict, httpVersion == 11 {} else { dropSpare() }
    switch verdict {
    case .accepted(let head): return accept(head, chain)
    case .redirected(let location, let mayStore):
      return discard(.redirected(location: location, mayStore: mayStore))
    case .failed(let failure): return discard(.ended(.failed(failure)))
    }
  }

  private func accept(_ accepted: AcceptedHead, _ chain: RedirectChain) -> Bool {
    switch accepted.body {
    case .part(let range, _): meter = BodyMeter(expected: range.count)
    case .whole(let length): meter = BodyMeter(expected: length)
    }
    phase = .body
    if case .whole = accepted.body, chain.object == nil { loop.beganWhole(self) }
    let wait = easy.microseconds(CURLINFO_STARTTRANSFER_TIME_T) - easy.microseconds(CURLINFO_PRETRANSFER_TIME_T)
    var head = ResponseHead(
      body: accepted.body, validators: accepted.validators, mediaType: accepted.mediaType,
      suggestedName: accepted.suggestedName, url: chain.url.text, isRedirected: chain.isRememberable)
    (head.status, head.speaksDAV, head.date) = (fields.status, accepted.speaksDAV, accepted.date)
    head.firstByteSeconds = Double(max(0, wait)) / 1e6
    head.reusedConnection = easy.info(CURLINFO_NUM_CONNECTS) == 0
    head.connection = localPort
    head.httpVersion = httpVersion
    head.object = accepted.object
    Log.debug(
      "transfer \(id.rawValue): status \(fields.status), HTTP/\(head.httpVersion), \(accepted.body), first byte after "
        + "\(head.firstByteSeconds) s, connection \(head.reusedConnection ? "kept" : "new")")
    guard loop.client.transfer(id, responded: head) else {
      outcome = .cancelled
      return false
    }
    return true
  }

  /// Reads the rest of an unusable response if that is cheaper than a new connection.
  private func discard(_ conclusion: Conclusion) -> Bool {
    phase = .discarding(conclusion)
    let length = fields[.contentLength].flatMap { decimal($0) }
    let isFramed = httpVersion >= 20 || length != nil || !fields.all(.transferEncoding).isEmpty
    guard isFramed, length ?? 0 <= Self.discardLimit else { return false }
    loop.expectEnd(of: self)
    return true
  }

  /// The local port of its connection, which tells it from others that are open; nil: it has none.
  var localPort: Int? {
    let port = easy.info(CURLINFO_LOCAL_PORT)
    return port > 0 ? port : nil
  }

  private var httpVersion: Int {
    switch easy.info(CURLINFO_HTTP_VERSION) {
    case Int(CURL_HTTP_VERSION_1_0): 10
    case Int(CURL_HTTP_VERSION_2_0): 20
    case Int(CURL_HTTP_VERSION_3): 30
    default: 11
    }
  }

  // MARK: The end

  /// How a request ends on a connection that the server closed meanwhile.
  private static let deadCodes: Set<UInt32> = Set(
    [
      CURLE_COULDNT_CONNECT, CURLE_GOT_NOTHING, CURLE_SEND_ERROR, CURLE_RECV_ERROR, CURLE_SSL_CONNECT_ERROR,
    ].map(\.rawValue))

  /// The result of the request. `code` is libcurl's once it has finished; CURLE_OK when the loop does not wait for
  /// that.
  func conclude(_ code: CURLcode) -> Conclusion {
    if isCancelled { return .ended(.cancelled) }
    if let outcome { return .ended(outcome) }
    switch phase {
    case .discarding(let conclusion): return conclusion
    case .body where meter.isComplete && (code == CURLE_OK || meter.expected != nil): return .ended(.finished)
    case .body:
      let code = code == CURLE_OK ? CURLE_PARTIAL_FILE : code
      return .ended(
        .failed(failure(of: code, detail: easy.detail, url: redactedURL, progress: meter.progress)))
    case .head where spareUse == .taken && fields.status == 0 && Self.deadCodes.contains(code.rawValue):
      spareUse = .failed
      return .again
    case .head where isTooLongLine(code):
      return .ended(.failed(tooLong("a header line of more than 100 KiB")))
    case .head:
      let code = code == CURLE_OK ? CURLE_GOT_NOTHING : code
      let status = easy.info(CURLINFO_HTTP_CONNECTCODE)
      return .ended(
        .failed(failure(of: code, detail: easy.detail, url: redactedURL, progress: nil, connectStatus: status)))
    }
  }
}
