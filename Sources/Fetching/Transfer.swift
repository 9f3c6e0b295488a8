import Base

/// Identifies one transfer during the life of the process.
package struct TransferID: Hashable, Sendable {
  /// The number; never used twice.
  package let rawValue: UInt64
  /// That number.
  package init(_ rawValue: UInt64) { self.rawValue = rawValue }
}

/// One request: a GET, unless `document` or `object` says something else.
package struct TransferRequest: Sendable {
  /// The transfer's id.
  package var id: TransferID
  /// The URL to request: the entry's own, or the one that the last redirect led to.
  package var url: String
  /// The entry's own URL. Its userinfo, `headers` and `referer` go to its origin (scheme, host and port) only.
  package var homeURL: String
  /// The bytes to request; nil sends no Range header.
  package var range: ByteRange?
  /// The value for If-Range (a strong tag with its quotes, or an HTTP date), nil for none. Sent only with `range`.
  package var ifRange: String?
  /// Fields for the home origin.
  package var headers: [HTTPHeader] = []
  /// The User-Agent, nil for the one of the options.
  package var userAgent: String?
  /// The Referer for the home origin.
  package var referer: String?
  /// Whether the URL came from a resolver: no message tells it, and it gets neither the options' fields nor the netrc
  /// file's default login, which are for the hosts that the list names.
  package var isSecret = false
  /// Whether it goes over a connection of its own, by HTTP/1.1, where others share one of HTTP/2.
  package var isAlone = false
  /// Whether it makes two connections where it finds no idle one: the next request will come at once.
  package var opensAnother = false
  /// Whether it makes a connection of its own, and leaves the idle ones to others.
  package var isFresh = false
  /// The receive buffer of the socket in bytes (SO_RCVBUF on new connections), nil for the kernel's default.
  package var receiveBuffer: Int32?
  /// What makes it a request for a document, of which mediafs wants the text: nil for a file's bytes.
  package var document: DocumentRequest?
  /// What makes it a request to an object store: nil for every other one. Its fields name `range` themselves.
  package var object: ObjectRequest?
  /// The number of the version whose bytes another source than the origin is asked for, which has no URL; else nil.
  package var generation: Int64?

  /// A GET of `range` of `url`.
  package init(id: TransferID, url: String, homeURL: String? = nil, range: ByteRange?, ifRange: String? = nil) {
    self.id = id
    self.url = url
    self.homeURL = homeURL ?? url
    self.range = range
    self.ifRange = ifRange
  }

  /// A URL of this transfer, as messages have it.
  func shown(_ url: String) -> String { isSecret ? "a link of the resolver" : Log.redacted(url: url) }
}

/// A request for a document: a list, or a server's folder. Its answer may come encoded, of any success.
package struct DocumentRequest: Sendable, Equatable {
  package var method: String
  package var body: String?
  /// Fields that go to every host: they hold no secret.
  package var headers: [HTTPHeader]

  package init(method: String = "GET", body: String? = nil, headers: [HTTPHeader] = []) {
    (self.method, self.body, self.headers) = (method, body, headers)
  }
}

/// What an accepted response (200 or 206; of a document any 2xx, or 304; of an object store any) said before its body.
package struct ResponseHead: Sendable {
  /// Which bytes the body contains.
  package enum Body: Sendable, Equatable {
    /// 206: these bytes of a resource of `total` bytes (nil: the origin did not say).
    case part(ByteRange, total: Int64?)
    /// 200: all of the resource from 0; `length` nil when the origin did not say.
    case whole(length: Int64?)
  }

  /// Which bytes the body contains.
  package var body: Body
  /// The HTTP status.
  package var status = 200
  /// Whether it has a header field `DAV`, or an `Allow` with PROPFIND.
  package var speaksDAV = false
  /// The time of the origin's clock, in seconds since 1970; nil where it did not send one.
  package var date: Int64?
  /// What distinguishes this version from others.
  package var validators: Validators
  /// Content-Type without parameters, in lower case; nil when not sent.
  package var mediaType: String?
  /// The decoded file name of the Content-Disposition, not made safe; nil for none.
  package var suggestedName: String?
  /// The URL that responded, after redirects.
  package var url: String
  /// Whether mediafs may remember `url`: a redirect led to it, permanent or temporary, that did not forbid storing it.
  package var isRedirected: Bool
  /// From the request's first byte on the wire to the response's first byte, in seconds: one round trip, plus the
  /// origin's processing time.
  package var firstByteSeconds: Double
  /// Whether a reused connection served it.
  package var reusedConnection: Bool
  /// Tells the connection from others that are open; nil: unknown.
  package var connection: Int?
  /// 10, 11, 20 or 30.
  package var httpVersion: Int
  /// What an object store said beside that; nil for an answer to another request.
  package var object: ObjectAnswer?

  /// A head with those values (tests and other sources use it).
  package init(
    body: Body, validators: Validators = Validators(), mediaType: String? = nil, suggestedName: String? = nil,
    url: String, isRedirected: Bool = false, firstByteSeconds: Double = 0, reusedConnection: Bool = false,
    httpVersion: Int = 11
  ) {
    self.body = body
    self.validators = validators
    self.mediaType = mediaType
    self.suggestedName = suggestedName
    self.url = url
    self.isRedirected = isRedirected
    self.firstByteSeconds = firstByteSeconds
    self.reusedConnection = reusedConnection
    self.httpVersion = httpVersion
  }
}

/// How a transfer ended.
package enum TransferEnd: Sendable {
  /// The whole body arrived, as its head or its framing gave its length.
  case finished
  /// ``TransferCommands/cancel(_:)`` cancelled it, or its client returned false.
  case cancelled
  /// It failed. The bytes that the client received are still valid.
  case failed(TransferFailure)
}

/// Why a transfer failed, for the planner and for the user who reads the message.
package struct TransferFailure: Error, Sendable {
  /// How the planner treats it.
  package enum Kind: Sendable, Equatable {
    /// Likely to pass: refused, reset, timed out, cut short, DNS, 408, 429, 5xx. A later retry may succeed.
    case transient
    /// The origin would respond the same again: 400, 404, 410, 451, TLS, a redirect to another scheme or in a loop.
    case permanent
    /// 401 or 403: a signed link may have expired, or credentials are missing or wrong.
    case denied
    /// 416: no bytes at that offset; `total` if the origin sent the length (`bytes */N`).
    case unsatisfiable(total: Int64?)
    /// mediafs cannot use the response: another range than requested, multipart, an unrequested encoding.
    case unusable
  }

  /// How the planner treats it.
  package var kind: Kind
  /// The HTTP status, nil when no response came.
  package var status: Int?
  /// The seconds to wait by Retry-After, nil when not sent.
  package var retryAfter: Double?
  /// What happened, for the user; without secrets.
  package var message: String

  /// A failure of that kind.
  package init(kind: Kind, status: Int? = nil, retryAfter: Double? = nil, message: String) {
    self.kind = kind
    self.status = status
    self.retryAfter = retryAfter
    self.message = message
  }
}

/// Receives what the transfers bring. It lives on the transfer thread, which makes every call, one at a time. No call
/// may block.
package protocol TransferClient: AnyObject {
  /// The loop calls it once each turn, before it waits, and soon after ``TransferLoop/wake()``. The client starts and
  /// cancels transfers here. Returns the latest time for the next call.
  func turn(now: Instant) -> Instant
  /// The head of an accepted response. Returning false drops the transfer, which then ends as cancelled.
  func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool
  /// The next bytes of the body, valid during the call. Returning false drops the transfer.
  func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool
  /// The transfer is over; no call about it follows.
  func transfer(_ id: TransferID, ended end: TransferEnd)
  /// The loop is to end. Asked once each turn: whether the client has something to finish, which must not take long.
  func isFinishing(now: Instant) -> Bool
}

extension TransferClient {
  package func isFinishing(now: Instant) -> Bool { false }
}

/// How mediafs connects to origins.
package struct TransferOptions: Sendable {
  /// Fields sent with every request to an entry's home origin.
  package var headers: [HTTPHeader] = []
  /// A file of trusted certificates (PEM), nil for the system's.
  package var certificateFile: String?
  /// A netrc file with credentials, nil for ~/.netrc (which need not exist).
  package var netrcFile: String?
  /// How long a connection may take to be established, in seconds.
  package var connectTimeout: Double = 10
  /// How many idle connections the loop keeps in all.
  package var keptConnections: Int = 64
  /// For how many seconds a connection is kept that was made before a request needs it.
  package var spareSeconds: Double = 2
  /// The limits until the client sets others.
  package var rates = TransferRates()
  /// The User-Agent of entries that name none.
  package var userAgent: String = "mediafs"

  /// The defaults.
  package init() {}
}
