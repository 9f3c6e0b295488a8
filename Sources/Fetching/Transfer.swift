import Base

/// Names one transfer for as long as the process lives.
public struct TransferID: Hashable, Sendable {
  /// The number; never used twice.
  public let rawValue: UInt64
  /// That number.
  public init(_ rawValue: UInt64) { self.rawValue = rawValue }
}

/// One GET to be made.
public struct TransferRequest: Sendable {
  /// The transfer's name.
  public var id: TransferID
  /// The URL to ask: the entry's own, or what it was redirected to the last time.
  public var url: String
  /// The entry's own URL. Its userinfo, `headers` and `referer` go to its origin (scheme, host and port) alone, never
  /// to another.
  public var homeURL: String
  /// The bytes to ask for; nil asks without a Range header.
  public var range: ByteRange?
  /// The value for If-Range (a strong tag with its quotes, or an HTTP date), nil for none. Sent only with `range`.
  public var ifRange: String?
  /// Fields for the home origin.
  public var headers: [HTTPHeader] = []
  /// The User-Agent, nil for our own.
  public var userAgent: String?
  /// The Referer for the home origin.
  public var referer: String?
  /// The receive buffer of the socket in bytes (SO_RCVBUF on new connections), nil for the system's own.
  public var receiveBuffer: Int32?

  /// A GET of `range` of `url`.
  public init(id: TransferID, url: String, homeURL: String? = nil, range: ByteRange?, ifRange: String? = nil) {
    self.id = id
    self.url = url
    self.homeURL = homeURL ?? url
    self.range = range
    self.ifRange = ifRange
  }
}

/// What an accepted response (200 or 206) said before its body.
public struct ResponseHead: Sendable {
  /// Which bytes the body has.
  public enum Body: Sendable, Equatable {
    /// 206: these bytes of a resource of `total` bytes (nil: the origin did not say).
    case part(ByteRange, total: Int64?)
    /// 200: all of the resource from 0; `length` nil when the origin did not say.
    case whole(length: Int64?)
  }

  /// Which bytes come.
  public var body: Body
  /// What tells this version from others.
  public var validators: Validators
  /// Content-Type without parameters, lowercased; nil when not sent.
  public var mediaType: String?
  /// The file name that Content-Disposition gave, decoded, not made safe; nil for none.
  public var suggestedName: String?
  /// The URL that answered, after redirects.
  public var url: String
  /// Whether `url` may be remembered (a permanent or temporary redirect that did not forbid storing it).
  public var isRedirected: Bool
  /// From the request's first byte on the wire to the response's first byte, in seconds: one round trip, plus the
  /// origin's thought.
  public var firstByteSeconds: Double
  /// Whether a kept connection served it.
  public var reusedConnection: Bool
  /// 10, 11, 20 or 30.
  public var httpVersion: Int

  /// A head with those values (for tests and other origins).
  public init(
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
public enum TransferEnd: Sendable {
  /// The whole body came, as long as its head (or its framing) said.
  case finished
  /// It was cancelled, by ``TransferService/cancel(_:)`` or by its client.
  case cancelled
  /// It failed; the bytes handed over until then are right all the same.
  case failed(TransferFailure)
}

/// Why a transfer failed, for the planner and for the reader of a message.
public struct TransferFailure: Error, Sendable {
  /// What to make of it.
  public enum Kind: Sendable, Equatable {
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
  public var kind: Kind
  /// The HTTP status, nil when no response came.
  public var status: Int?
  /// Seconds that Retry-After asks to wait, nil when not sent.
  public var retryAfter: Double?
  /// What happened, for a person: no secret in it.
  public var message: String

  /// A failure of that kind.
  public init(kind: Kind, status: Int? = nil, retryAfter: Double? = nil, message: String) {
    self.kind = kind
    self.status = status
    self.retryAfter = retryAfter
    self.message = message
  }
}

/// Who gets what the transfers bring. It lives on the transfer thread: every call comes there, one at a time, and must
/// not block.
public protocol TransferClient: AnyObject {
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
public struct TransferOptions: Sendable {
  /// Fields sent with every request to an entry's home origin.
  public var headers: [HTTPHeader] = []
  /// A file of trusted certificates (PEM), nil for the system's.
  public var certificateFile: String?
  /// A netrc file with credentials, nil for ~/.netrc (which need not exist).
  public var netrcFile: String?
  /// Seconds until a connection must stand.
  public var connectTimeout: Double = 10
  /// How many idle connections are kept in all.
  public var keptConnections: Int = 64
  /// The most bytes a second that one transfer may bring, and all together whose body is the whole; nil for no limit.
  /// Of parts, the client asks for no more than may come.
  public var maximumRate: Int64?
  /// The User-Agent of entries that name none.
  public var userAgent: String = "mediafs"

  /// The defaults.
  public init() {}

  /// With a limit to the rate, an eighth of a second of it, of which the kernel makes a quarter: what it takes in ahead
  /// of us is not limited otherwise.
  var limitedReceiveBuffer: Int32? { maximumRate.map { Int32(min(max($0 / 8, 64 << 10), 2 << 20)) } }
}
