import Base
import Fetching

/// What a transfer is for; the smaller goes first.
enum Purpose: Int, Comparable, Sendable {
  /// A reader waits for its bytes (or for the size that its head tells).
  case demand
  /// A playing reader will want them next.
  case playAhead
  /// The head of a file that is likely to be looked at soon.
  case index
  /// The rest of a file.
  case continuation

  static func < (left: Purpose, right: Purpose) -> Bool { left.rawValue < right.rawValue }
}

/// A transfer that is under way, as the planner sees it.
struct ActiveTransfer: Sendable {
  var id: TransferID
  /// The next byte that will arrive.
  var position: Int64
  /// One past the last byte that was asked for.
  var end: Int64
  var purpose: Purpose
  /// Bytes a second of late, nil before its first bytes.
  var rate: Double?
  /// A body from the start to the end of the resource: the origin knows no ranges, so that it cannot be had again in
  /// part.
  var isStream = false

  /// What it still brings.
  var rest: ByteRange { ByteRange(position, max(position, end)) }
}

/// One sequence of reads, as the planner sees it.
struct ReaderView: Sendable, Equatable {
  /// Where it will read next.
  var position: Int64
  /// How many bytes it read in sequence so far.
  var length: Int64
  /// How fast it reads, in bytes a second.
  var rate: Double
  /// Whether it read within the last seconds; a player that is paused, or sits before a full buffer, did not.
  var isFresh = true
  /// Whether it reads at another place of the file by now.
  var isElsewhere = false
  /// A program that looks at many files and plays none.
  var isLooker = false
}

/// The line to the origin, as the planner sees it.
struct LineView: Sendable {
  /// Seconds from a request to its first byte.
  var roundTrip: Double
  /// Bytes a second that all transfers on the line bring together.
  var rate: Double
  /// How many resources on the line have a reader that waits.
  var waiting = 1
  /// Connections to the origin that are open, in use or idle.
  var openConnections = Int.max
  /// The most background windows that the line may have in flight.
  var backgroundLanes = Planner.mostBackgroundLanes
  /// How many background windows a download has in flight when it does not use the spare connection.
  var usualLanes = Planner.mostBackgroundLanes
  /// Whether no file on this line is open: no read can come without an open before it.
  var isQuiet = false

  /// The part of the line that one resource can count on while its reader waits, in bytes a second.
  var share: Double { rate / Double(max(1, waiting)) }
}

/// Everything that a plan is made from.
struct PlanInput: Sendable {
  /// Bytes of the resource.
  var size: Int64
  /// What a read can be answered from now.
  var available = ByteRangeSet()
  /// What readers wait for, ascending by start.
  var demands: [ByteRange] = []
  /// What is parked at places that its reader left meanwhile: the kernel's read-ahead there, for which nobody waits.
  var left: [ByteRange] = []
  var readers: [ReaderView] = []
  var transfers: [ActiveTransfer] = []
  /// Whether the rest of the file is to be fetched now.
  var continues = false
  /// Whether the end of the file is likely to be asked for soon.
  var wantsTail = false
  /// How many windows a waiting reader may have under way.
  var lanes = LaneControl.least
  /// How many bytes that are under way may be thrown away for a reader that jumped.
  var spareBytes: Int64 = 0
  /// Where the continuation begins to look for holes: it follows the reader, then wraps around.
  var continuationStart: Int64 = 0
  /// The line to the origin.
  var line: LineView
}

/// One thing to do.
enum PlanStep: Sendable, Equatable {
  /// Ask for these bytes.
  case start(ByteRange, Purpose)
  /// End a transfer whose bytes come too late for the reader that it stands in the way of.
  case cancel(TransferID)
}
