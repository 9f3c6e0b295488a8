import Base

/// Names one transfer for as long as the process lives.
package struct TransferID: Hashable, Sendable {
  /// The number; never used twice.
  package let rawValue: UInt64
  /// That number.
  package init(_ rawValue: UInt64) { self.rawValue = rawValue }
}

/// One GET to be made.
package struct TransferRequest: Sendable {
  /// The transfer's name.
  package var id: TransferID
  /// The URL to ask: the entry's own, or what it was redirected to the last time.
  package var url: String
  /// The entry's own URL. Its userinfo, `headers` and `referer` go to its origin (scheme, host and port) alone, never
  /// to another.
  package var homeURL: String
  /// The bytes to ask for; nil asks without a Range header.
  package var range: ByteRange?
  /// The value for If-Range (a strong tag with its quotes, or an HTTP date), nil for none. Sent only with `range`.
  package var ifRange: String?
  /// Fields for the home origin.
  package var headers: [HTTPHeader] = []
  /// The User-Agent, nil for our own.
  package var userAgent: String?
  /// The Referer for the home origin.
  package var referer: String?
  /// The receive buffer of the socket in bytes (SO_RCVBUF on new connections), nil for the system's own.
  package var receiveBuffer: Int32?

  /// A GET of `range` of `url`.
  package init(id: TransferID, url: String, homeURL: String? = nil, range: ByteRange?, ifRange: String? = nil) {
    self.id = id
    self.url = url
    self.homeURL = homeURL ?? url
    self.range = range
    self.ifRange = ifRange
  }
}

/// What an accepted response (200 or 206) said before its body.
package struct ResponseHead: Sendable {
  /// Which bytes the body has.
  package enum Body: Sendable, Equatable {
    /// 206: these bytes of a resource of `total` bytes (nil: the origin did not say).
    case part(ByteRange, total: Int64?)
    /// 200: all of the resource from 0; `length` nil when the origin did not say.
    case whole(length: Int64?)
  }

  /// Which bytes come.
  package var body: Body
  /// What tells this version from others.
  package var validators: Validators
  /// Content-Type without parameters, lowercased; nil when not sent.
  package var mediaType: String?
  /// The file name that Content-Disposition gave, decoded, not made safe; nil for none.
  package var suggestedName: String?
  /// The URL that answered, after redirects.
  package var url: String
  /// Whether `url` may be remembered (a permanent or temporary redirect that did not forbid storing it).
  package var isRedirected: Bool
  /// From the request's first byte on the wire to the response's first byte, in seconds: one round trip, plus the
  /// origin's thought.
  package var firstByteSeconds: Double
  /// Whether a kept connection served it.
  package var reusedConnection: Bool
  /// 10, 11, 20 or 30.
  package var httpVersion: Int

  /// A head with those values (for tests and other origins).
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
  /// The whole body came, as long as its head (or its framing) said.
  case finished
  /// It was cancelled, by ``TransferService/cancel(_:)`` or by its client.
  case cancelled
  /// It failed; the bytes handed over until then are right all the same.
  case failed(TransferFailure)
}

/// Why a transfer failed, for the planner and for the reader of a message.
package struct TransferFailure: Error, Sendable {
  /// What to make of it.
  package enum Kind: Sendable, Equatable {
    /// Likely to pass: refused, reset, timed out, cut short, DNS, 408, 429, 5xx. Try again later.
    case transient
    /// The origin will say the same again: 400, 404, 410, 451, TLS, a redirect to another scheme or in a loop.
    case permanent
    /// 401 or 403: a signed link may have expired; credentials are missing or wrong.
    case denied
    /// 416: nothing at that offset; `total` if the origin told the length (`bytes */N`).
    case unsatisfiable(total: Int64?)
    /// The answer cannot be used: another range than was asked, multipart, an encoding that was not asked for.
    case unusable
  }

  /// What to make of it.
  package var kind: Kind
  /// The HTTP status, nil when no response came.
  package var status: Int?
  /// Seconds that Retry-After asks to wait, nil when not sent.
  package var retryAfter: Double?
  /// What happened, for a person: no secret in it.
  package var message: String

  /// A failure of that kind.
  package init(kind: Kind, status: Int? = nil, retryAfter: Double? = nil, message: String) {
    self.kind = kind
    self.status = status
    self.retryAfter = retryAfter
    self.message = message
  }
}

/// Who gets what the transfers bring. It lives on the transfer thread: every call comes there, one at a time, and must
/// not block.
package protocol TransferClient: AnyObject {
  /// Called once each turn of the loop, before it waits, and soon after ``TransferLoop/wake()``: the place to start
  /// and cancel transfers. Returns when it wants to be called again at the latest.
  func turn(now: Instant) -> Instant
  /// The head of an accepted response. False drops the transfer, which then ends as cancelled.
  func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool
  /// The next bytes of the body, valid during the call. False drops the transfer.
  func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool
  /// The transfer is over; no call about it follows.
  func transfer(_ id: TransferID, ended end: TransferEnd)
}

/// How the origin's connections are to be made.
package struct TransferOptions: Sendable {
  /// Fields sent with every request to an entry's home origin.
  package var headers: [HTTPHeader] = []
  /// A file of trusted certificates (PEM), nil for the system's.
  package var certificateFile: String?
  /// A netrc file with credentials, nil for ~/.netrc (which need not exist).
  package var netrcFile: String?
  /// Seconds until a connection must stand.
  package var connectTimeout: Double = 10
  /// How many idle connections are kept in all.
  package var keptConnections: Int = 64
  /// The most bytes a second that one transfer may bring, and all together whose body is the whole; nil for no limit.
  /// Of parts, the client asks for no more than may come.
  package var maximumRate: Int64?
  /// The User-Agent of entries that name none.
  package var userAgent: String = "mediafs"

  /// The defaults.
  package init() {}

  /// With a limit to the rate, an eighth of a second of it, of which the kernel makes a quarter: what it takes in ahead
  /// of us is not limited otherwise.
  var limitedReceiveBuffer: Int32? { maximumRate.map { Int32(min(max($0 / 8, 64 << 10), 2 << 20)) } }
}
