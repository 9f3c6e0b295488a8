import Base
import Fetching

/// A transfer in flight, with everything that the transfer thread keeps of it.
struct Running {
  /// Why it was started.
  enum Kind {
    case window, head, confirm
    /// A window that begins with stored bytes, of an origin without validators (``Comparison``).
    case compare
    /// Stored bytes by a new link (``Seam``).
    case seam
  }
  var active: ActiveTransfer
  /// Whether its bytes are for other machines alone: no reader here waits for them, or leaves.
  var isOwed = false
  let kind: Kind
  let mirror: Int
  /// The key of its line: scheme, host and port of the requested URL.
  let host: String
  /// Whether the remembered target of a redirect was requested instead of the entry's own URL.
  let isResolved: Bool
  let started: Instant
  var lastByte: Instant
  /// Whom its bytes are for.
  var audience = Audience.reader
  var meter = RateMeter()
  var bytes: Int64 = 0
  /// Those of `bytes` that were not stored before.
  var fresh: Int64 = 0
  /// Bytes that its line counts as a background download's until they arrive.
  var continuing: Int64 = 0
  var responded = false
  /// Tells the connection that brings the response from others that are open; nil: unknown.
  var connection: Int?
  /// Whether the request had If-Range, with which an origin answers with the whole body of another version.
  var sentIfRange = false
  /// The version of which it brings bytes from the second source; nil: it asks the origin.
  var generation: Int64?
  /// Why the rest of the body was refused; nil if it was not.
  var misfit: String?
  /// Why it is being cancelled; nil while it is not.
  var cancellation: Cancellation?

  /// Why a transfer is cancelled.
  enum Cancellation {
    /// Its bytes are not wanted any more.
    case unwanted
    /// A reader needs its connection: its bytes are asked for again later.
    case yielded
    /// It brings too little: it counts as a failed attempt.
    case stalled
  }

  var isCancelled: Bool { cancellation != nil }

  /// Whether it was cancelled as stalled and brought less than 1 KiB/s: such bytes do not end the backoff.
  func isTrickle(_ now: Instant) -> Bool {
    cancellation == .stalled && Double(fresh) < 1024 * now.seconds(since: started)
  }

  /// Whether it counted as a background transfer on its line when it began.
  var isBackground: Bool { active.purpose >= .index }
}
