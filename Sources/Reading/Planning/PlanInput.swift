import Base
import Fetching

/// What a transfer is for; the lower value is more urgent.
enum Purpose: Int, Comparable, Sendable {
  /// A reader waits for its bytes, or for the length that its head tells.
  case demand
  /// A reader in sequence will ask for its bytes next.
  case playAhead
  /// A reader waits for its bytes, or will ask for them next, and has no deadline near: it shares what others leave.
  case shared
  /// The head of a file whose size or type is likely to be asked for soon.
  case index
  /// The beginning of a file that is likely to be played next, or all of it when it would come too late otherwise.
  case next
  /// The background download of the rest of a file.
  case continuation

  static func < (left: Purpose, right: Purpose) -> Bool { left.rawValue < right.rawValue }
}

/// A transfer in flight, as the planner sees it.
struct ActiveTransfer: Sendable {
  var id: TransferID
  /// The next byte that will arrive.
  var position: Int64
  /// One past the last requested byte.
  var end: Int64
  var purpose: Purpose
  /// Bytes a second; nil until enough have arrived.
  var rate: Double?
  /// Whether bytes have arrived.
  var hasBegun = false
  /// Seconds since it was requested.
  var age = Double.infinity
  /// Whether its connection is being made, by handshakes of several round trips: they are lost when it is cancelled.
  var isConnecting = false
  /// Whether it has brought nothing for longer than answers take, while others on the line went on.
  var isStuck = false
  /// Whether it is a body from the start of the resource, from an origin that ignores ranges: its parts cannot be
  /// requested again.
  var isStream = false

  /// The range that has not arrived.
  var rest: ByteRange { ByteRange(position, max(position, end)) }
}

/// One run of reads, as the planner sees it.
struct ReaderView: Sendable, Equatable {
  /// Where the reader is expected to read next.
  var position: Int64
  /// How many bytes it has read in sequence.
  var length: Int64
  /// How fast it reads, in bytes a second.
  var rate: Double
  /// Whether it read within the last two seconds. A player that is paused, or has a full buffer, did not.
  var isFresh = true
  /// Whether it has read nothing since its last answer, and may have closed the file (``ReaderRuns/Run``).
  var mayBeOver = false
  /// Whether it has gone on at another place of the file.
  var isElsewhere = false
  /// Whether it is a program that looks at many files and plays none.
  var isLooker = false
  /// What it may claim of the line.
  var claim = Claim.start
  /// Whether ``rate`` is the pace at which it plays.
  var isPaced = false
  /// In how many seconds it needs bytes that are not there, as far as that is known. On trial: ``Playout/farthest`` and
  /// its place among those on trial, the youngest first.
  var due = 0.0
  /// Whether it waits, or bytes for it are in flight.
  var isServed = false
  /// Whether it leaves stored bytes unread: it needs no more for now.
  var isResting = false
  /// For how many seconds the oldest of its parked reads has been stalled; nil when none is parked.
  var stalled: Double?
  /// How many bytes it takes at each place, when it jumps from one to the next; nil when it does not.
  var takes: Int64?

  /// Whether reads of `range` belong to its run.
  func isNear(_ range: ByteRange) -> Bool {
    range.start <= position + ReaderRuns.slack && range.end >= position - ReaderRuns.slack
  }

  /// What a reader may claim of its line, the strongest first.
  enum Claim: Int, Comparable, Sendable {
    /// It plays, and needs bytes soon.
    case urgent
    /// It plays, and has less than its lead.
    case lead
    /// It has just begun or jumped, and nothing is known of its pace.
    case start
    /// It has used up its credit, and may still show a pace: it goes before those that share what others leave.
    case trial
    /// It has no deadline near: it shares what others leave.
    case share

    /// Whether it gets small windows, beside those of others that share the line.
    var shares: Bool { self >= .trial }

    static func < (left: Claim, right: Claim) -> Bool { left.rawValue < right.rawValue }
  }
}

/// The line to the origin, as the planner sees it.
struct LineView: Sendable {
  /// Seconds from a request to its first byte.
  var roundTrip: Double
  /// The same where answers are late now and then.
  var lateTrip = 0.0
  /// Bytes a second of all transfers on the line together.
  var rate: Double
  /// Whether ``rate`` comes from what arrived.
  var isMeasured = true
  /// How many resources on the line have a newcomer that waits, and how many a player near its deadline.
  var waiting = 1
  /// How many requests the origin takes at once.
  var requestLimit = Int.max
  /// Connections to the origin that are open, in use or idle.
  var openConnections = Int.max
  /// The most background windows that the line may have in flight.
  var backgroundLanes = Planner.mostBackgroundLanes
  /// How many background windows a download has in flight when it does not use the spare connection.
  var usualLanes = Planner.mostBackgroundLanes
  /// Whether the servers' congestion windows are small, so that one connection brings little in a round trip.
  var hasSmallWindows = false
  /// Whether the user limits its rate.
  var isLimited = false
  /// Whether nothing has come for so long that the server has forgotten its congestion windows (RFC 2861).
  var hasRested = false
  /// Whether all comes over one connection, that of HTTP/2, which fills the line.
  var fillsOneConnection = false
  /// Whether a request for which no connection is idle waits for the handshakes of TLS and TCP.
  var hasHandshakes = false
  /// Whether those windows stay small although the line is busy.
  var staysSmall = false
  /// Whether many more packets are lost than a full line drops.
  var losesPackets = false
  /// Whether responses pause as where windows are small, or nothing is known of them yet.
  var hasPauses = false
  /// What the idle connections bring in a round trip, in bytes, in the order in which requests take them.
  var flights: [Int64] = []
  /// The same for one who lets them grow.
  var grownFlights: [Int64] = []
  /// Whether no file is open, on any line: no read can come without an open before it.
  var isQuiet = false
  /// Whether a reader that goes before others waits, or is near its deadline.
  var isPressed = false
  /// Whether what is in flight is bounded, also for a player that has less than its lead.
  var isContended = false
  /// Whether other files on the line have readers that wait or play.
  var hasOthers = false
  /// Whether other files on the line are open, and their readers may jump at any time.
  var hasVisits = false

  /// Whom background windows meet: those of a reader that shares the line (`isReader`), or of a background download.
  func company(isReader: Bool) -> Planner.Company {
    if isReader { return isPressed ? .players : .readers }
    return isQuiet ? .nobody : .players
  }

  /// How many seconds of the line the planner requests ahead in small windows: a round trip. Over one connection of
  /// HTTP/2 it is a little more, so that the line is not idle while the request for the next window is on its way.
  func horizon(_ company: Planner.Company) -> Double {
    fillsOneConnection && company == .behind ? roundTrip + 0.005 : roundTrip
  }

  /// The part of the line that one resource can count on while its reader waits, in bytes a second.
  var share: Double { rate / Double(max(1, waiting)) }
}

/// How many windows a waiting reader may have in flight.
struct Lanes: Sendable {
  /// The number now, in a trial too.
  var now = LaneControl.least
  /// The same without a trial of more or fewer.
  var settled = LaneControl.least
}

/// Everything from which a plan is made.
struct PlanInput: Sendable {
  /// The length of the resource in bytes.
  var size: Int64
  /// The bytes that can answer a read now.
  var available = ByteRangeSet()
  /// The ranges for which readers wait, ascending by start.
  var demands: [ByteRange] = []
  /// Parked reads at places that their reader has left: the kernel's read-ahead there, for which nobody waits.
  var abandonedReads: [ByteRange] = []
  var readers: [ReaderView] = []
  var transfers: [ActiveTransfer] = []
  /// Whether the next request begins with stored bytes, alone: the origin gives no validators (``Comparison``).
  var isCompared = false
  /// Whether the rest of the file may be fetched now.
  var continues = false
  /// The ranges to fetch because the file before it is being played.
  var ahead: [ByteRange] = []
  /// The bytes at the end of the file that are likely to be asked for soon.
  var tail: Int64 = 0
  /// What looks at this kind of file read; nil when there was none.
  var learned: ProbeSet?
  var lanes = Lanes()
  /// What is known of the connections where each is slow, and nobody else reads; else nil.
  var slowConnections: SlowConnections.Known?
  /// How many bytes in flight may be thrown away for a reader that jumped.
  var spareBytes: Int64 = 0
  /// Where the continuation begins to look for holes: at the reader. At the end of the file it wraps around.
  var continuationStart: Int64 = 0
  /// Where the continuation may ask; nil: anywhere.
  var bounds: [ByteRange]?
  /// The line to the origin.
  var line: LineView
}

/// One step of a plan.
enum PlanStep: Sendable, Equatable {
  /// Request these bytes.
  case start(ByteRange, Purpose)
  /// Cancel a transfer that would delay a reader.
  case cancel(TransferID)
}
