import Base
import CCurl
import Glibc

/// One transfer and the easy handle it uses: from its start over its redirects to its end. Slots are pooled.
///
/// Everything in it is the loop thread's alone.
///
/// Phases: `head` until a final response's head is complete; then `body` (accepted), or `discarding` (a redirect or a
/// refusal, whose short body is read so that the connection can be kept); after a redirect `head` again.
final class TransferSlot {
  /// What `conclude` found.
  enum Conclusion {
    case ended(TransferEnd)
    case redirected(location: String, mayStore: Bool)
  }

  private enum Phase {
    case head
    case body
    case discarding(Conclusion)
  }

  /// The most of an unwanted body that is read to keep its connection.
  static let discardLimit = 64 << 10

  var easy: EasyHandle
  /// Whether libcurl's multi handle has `easy`; see TransferCallbacks.swift.
  var isAttached = false
  /// Whether the handle's last request did not end well. After a name that did not resolve, or was not waited for,
  /// libcurl 7.88 still has the handle's buffer and refuses CURLOPT_BUFFERSIZE (seen): such a handle is not used again.
  var isSpent = false
  /// Set by the loop when the client cancelled: nothing more is handed over.
  var isCancelled = false
  private(set) var id = TransferID(0)
  private(set) var receiveBuffer: Int32?

  /// The loop, which outlives its slots.
  private unowned let loop: LoopCore
  private var chain: RedirectChain?
  private var range: ByteRange?
  private var phase = Phase.head
  private var fields = ResponseFields()
  private var meter = BodyMeter(expected: nil)
  private var discarded = 0
  /// How the transfer ends when a callback has decided it, before libcurl says anything.
  private var outcome: TransferEnd?

  /// nil when there is no memory.
  init?(loop: LoopCore) {
    guard let easy = EasyHandle() else { return nil }
    self.easy = easy
    self.loop = loop
  }

  /// The URL being asked, for messages.
  var redactedURL: String { chain.map { Log.redacted(url: $0.url.text) } ?? "" }

  /// Takes on a new transfer; `connect` is next.
  func begin(_ request: TransferRequest, _ chain: RedirectChain) {
    id = request.id
    receiveBuffer = request.receiveBuffer ?? loop.setup.options.limitedReceiveBuffer
    range = request.range
    self.chain = chain
    isCancelled = false
    outcome = nil
  }

  /// Forgets the transfer; the slot can be used again.
  func end() {
    easy.reset()
    chain = nil
    fields = ResponseFields()
    phase = .head
    outcome = nil
  }

  /// Asks the chain's present URL.
  func connect() throws(TransferFailure) {
    guard let chain else { return }
    if isSpent, let fresh = EasyHandle() {
      easy = fresh
      isSpent = false
    }
    phase = .head
    fields = ResponseFields()
    discarded = 0
    do throws(CurlError) {
      do throws(CurlError) { try prepare(chain) } catch {
        // Also of a handle whose stream was one of many on a connection (HTTP/2) libcurl 7.88 keeps the buffer (seen).
        guard error.code == CURLE_BAD_FUNCTION_ARGUMENT, let fresh = EasyHandle() else { throw error }
        easy = fresh
        try prepare(chain)
      }
      try attach(to: loop.multi.raw)
    } catch {
      throw failure(of: error.code, detail: "", url: redactedURL, progress: nil)
    }
    Log.debug("transfer \(id.rawValue): GET \(redactedURL) \(range?.description ?? "whole")")
  }

  private func prepare(_ chain: RedirectChain) throws(CurlError) {
    easy.reset()
    try easy.prepare(chain, loop.setup)
  }

  /// Goes to where a redirect points; `connect` is next.
  func follow(_ location: String, mayStore: Bool) throws(TransferFailure) {
    try chain?.follow(location, mayStore: mayStore)
  }

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

  /// The client wanted no more of what came.
  func refuse() { outcome = .cancelled }
  /// Whether the client wanted no more.
  var isRefused: Bool { if case .cancelled = outcome { true } else { false } }

  private func headFits() -> Bool {
    guard fields.isTooLong else { return true }
    // Behind an accepted body these are trailers: the bytes were right, the end is not.
    outcome = .failed(tooLong("more than \(ResponseFields.limit >> 10) KiB of header fields"))
    return false
  }

  /// libcurl refuses a header line over 100 KiB (CURL_MAX_HTTP_HEADER). Up to 7.88 it calls that CURLE_OUT_OF_MEMORY:
  /// once the first byte of an answer is here, the only large allocation is the one for that line.
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
      range: range, url: redactedURL, withheld: chain.isWithholding, now: Int64(time(nil)))
    switch verdict(on: fields, in: context) {
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
    if case .whole = accepted.body { loop.beganWhole(self) }
    let wait = easy.microseconds(CURLINFO_STARTTRANSFER_TIME_T) - easy.microseconds(CURLINFO_PRETRANSFER_TIME_T)
    var head = ResponseHead(
      body: accepted.body, validators: accepted.validators, mediaType: accepted.mediaType,
      suggestedName: accepted.suggestedName, url: chain.url.text, isRedirected: chain.isRememberable)
    head.firstByteSeconds = Double(max(0, wait)) / 1e6
    head.reusedConnection = easy.info(CURLINFO_NUM_CONNECTS) == 0
    head.httpVersion = httpVersion
    Log.debug(
      "transfer \(id.rawValue): status \(fields.status), HTTP/\(head.httpVersion), \(accepted.body), first byte after "
        + "\(head.firstByteSeconds) s, connection \(head.reusedConnection ? "kept" : "new")")
    guard loop.client.transfer(id, responded: head) else {
      outcome = .cancelled
      return false
    }
    return true
  }

  /// Reads the rest of an answer that brings nothing if that is cheaper than a new connection.
  private func discard(_ conclusion: Conclusion) -> Bool {
    phase = .discarding(conclusion)
    let length = fields[.contentLength].flatMap { decimal($0) }
    let isFramed = httpVersion >= 20 || length != nil || !fields.all(.transferEncoding).isEmpty
    guard isFramed, length ?? 0 <= Self.discardLimit else { return false }
    loop.expectEnd(of: self)
    return true
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

  /// What came of the request, once libcurl is through with it (`code`) or the loop does not want to wait for that
  /// (CURLE_OK).
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
    case .head where isTooLongLine(code):
      return .ended(.failed(tooLong("a header line of more than 100 KiB")))
    case .head:
      let code = code == CURLE_OK ? CURLE_GOT_NOTHING : code
      return .ended(.failed(failure(of: code, detail: easy.detail, url: redactedURL, progress: nil)))
    }
  }
}
