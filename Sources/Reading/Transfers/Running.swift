import Base
import Fetching

/// A transfer that is under way, with all that is kept of it.
struct Running {
  /// Why it was started.
  enum Kind { case window, head, confirm }
  var active: ActiveTransfer
  let kind: Kind
  let mirror: Int
  /// Whose line it uses: scheme, host and port of the URL that was asked.
  let host: String
  /// Whether the remembered target of a redirect was asked instead of the entry's own URL.
  let isResolved: Bool
  let started: Instant
  var lastByte: Instant
  var meter = RateMeter()
  var bytes: Int64 = 0
  /// Of those, the ones that were not stored yet.
  var fresh: Int64 = 0
  /// Bytes that are counted as a background download's on its line until they come.
  var continuing: Int64 = 0
  var responded = false
  /// Whether the answer is the whole where another version would be.
  var sentIfRange = false
  /// Why the rest of the body was not taken; nil: it was.
  var misfit: String?
  /// Why it is being cancelled; nil while it is not.
  var cancellation: Cancellation?

  /// Why a transfer is ended before its end.
  enum Cancellation {
    /// What it brings is not wanted any more.
    case unwanted
    /// It brings too little: it counts as a failed attempt.
    case stalled
  }

  var isCancelled: Bool { cancellation != nil }

  /// Whether it was ended as it brought next to nothing: its bytes are no progress that calls for more of the same.
  func isTrickle(_ now: Instant) -> Bool {
    cancellation == .stalled && Double(fresh) < 1024 * now.seconds(since: started)
  }

  /// Whether it counted against the background's places when it began.
  var isBackground: Bool { active.purpose >= .index }
}
