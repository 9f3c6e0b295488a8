import Base
import Fetching
import Glibc

/// What a client of a store needs to know.
package struct StoreSetup: Sendable {
  package var location: StoreLocation
  package var credentials: StoreCredentials
  package var limits = StoreLimits()
  /// The most bytes of an object that is kept in memory, if its key does not say what it is: see
  /// ``ObjectName/Kind/limit``.
  package var largestObject = 8 << 20
  /// Looks for the keys again, when the store refuses those it has; nil when there are none. On the store's thread: it
  /// may read small files, and must not wait.
  package var renew: @Sendable () -> StoreCredentials? = { nil }
  /// This machine's time, in seconds since 1970.
  package var clock: @Sendable () -> Int64 = { Int64(time(nil)) }

  package init(_ location: StoreLocation, _ credentials: StoreCredentials) {
    (self.location, self.credentials) = (location, credentials)
  }
}

/// Makes a signed request of what is asked. Pure.
struct StoreSigning {
  var location: StoreLocation
  var credentials: StoreCredentials

  /// The name under which a block's CRC-32C lies in its metadata.
  static let checksumName = "crc32c"
  private static let emptyDigest = hexadecimal(SHA256.digest(""))

  /// The request as a transfer, signed for `time`, in seconds since 1970.
  func transfer(_ request: StoreRequest, as id: TransferID, time: Int64) -> TransferRequest {
    let stamp = S3Signer.timestamp(time)
    var signed = S3Signer.Request(
      method: "GET", path: location.path(of: request.key),
      headers: [HTTPHeader(name: "Host", value: location.host), HTTPHeader(name: "X-Amz-Date", value: stamp)],
      payload: Self.emptyDigest)
    var object = ObjectRequest(.get)
    var range: ByteRange?
    func add(_ name: String, _ value: String) { signed.headers.append(HTTPHeader(name: name, value: value)) }
    switch request.action {
    case .get(let part, _):
      range = part
      if let part { add("Range", "bytes=\(part.start)-" + (part.end == .max ? "" : "\(part.end - 1)")) }
    case .head: object.method = .head
    case .delete(let etag):
      object.method = .delete
      if let etag { add("If-Match", etag) }
    case .put(let body, let meta, let condition):
      object.method = .put
      object.body = body.bytes
      object.awaitsContinue = request.awaitsContinue
      signed.payload = payload(of: body)
      for (name, value) in meta { add("x-amz-meta-\(name)", value) }
      add("x-amz-meta-\(Self.checksumName)", body.checksum.text)
      switch condition {
      case .always: break
      case .ifAbsent: add("If-None-Match", "*")
      case .ifMatch(let etag): add("If-Match", etag)
      }
    case .list(let query):
      signed.path = location.path(of: nil)
      signed.query = items(query, request.key)
    }
    signed.method = object.method.rawValue
    add("X-Amz-Content-Sha256", signed.payload)
    if let token = credentials.sessionToken { add("X-Amz-Security-Token", token) }
    let signer = S3Signer(credentials: credentials, region: location.region)
    object.headers = Array(signed.headers.dropFirst())  // libcurl writes Host
    object.headers.append(HTTPHeader(name: "Authorization", value: signer.authorization(signed, time: stamp)))
    let url = location.url(path: signed.path, query: S3Signer.query(signed.query))
    var transfer = TransferRequest(id: id, url: url, range: range)
    transfer.object = object
    return transfer
  }

  private func payload(of body: StoreBody) -> String {
    location.isSecure ? S3Signer.unsignedPayload : body.digest ?? hexadecimal(SHA256.digest(body.bytes.bytes))
  }

  private func items(_ query: StoreListing.Query, _ prefix: String) -> [(name: String, value: String)] {
    var items = [
      ("list-type", "2"), ("prefix", location.name(of: prefix)), ("max-keys", String(query.limit)),
    ]
    if let token = query.continuation { items.append(("continuation-token", token)) }
    if let key = query.after { items.append(("start-after", location.name(of: key))) }
    if query.isFlat { items.append(("delimiter", "/")) }
    return items
  }
}
