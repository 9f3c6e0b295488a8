/// What one node does to get the blocks of one segment, when other nodes want them too. Pure: events go in, actions
/// come out; it has no clock and starts nothing. A real node, the simulation and the explorer run it.
///
/// It must hold whatever comes late, twice or never:
/// - Blocks are written only if absent, and fetched with If-Range: so the lease only saves work.
/// - At most one request for the lease is under way (`isAsking`), and one GET, fetch and upload for each block.
/// - Each block that a reader waits for has ``ShareTimes/patience`` from when the reader came to it. Then the origin is
///   asked for the reader's window, and later for the block.
package struct SegmentShare: Hashable, Sendable {
  /// What this node is to the segment.
  enum Role: UInt8, Hashable, Sendable {
    /// It does not know who holds the lease.
    case outside
    /// It saw a lease that is another's, or that was given up.
    case watching
    /// Its write that takes the lease has no answer yet.
    case taking
    /// The lease is its own.
    case holding
    /// Its write that gives the lease up has no answer yet.
    case releasing
  }

  /// A block that this node wants to fetch in a holder's place.
  struct Claim: Hashable, Sendable {
    var block: Int
    var round = 0
    /// Whether it waits: for the answer, or until another node's claim has had its time.
    var isWaiting = false
  }

  /// A block that a reader waits for, and this node does not fetch.
  struct Wait: Hashable, Sendable {
    var block: Int
    /// Milliseconds since the reader's patience was over.
    var late = 0
    /// Whether a window of it was asked from the origin, and is not here.
    var isWindowOut = false
  }

  // What the node wants: where its first reader is, and where others are.
  var reader: Int?
  var others = BlockSet()
  var foreground = BlockSet()
  var background = BlockSet()

  // The blocks: on this node, known to be in the store, last seen to be absent there; those of which a GET failed;
  // those that the store does not give though a lease names them.
  var here = BlockSet()
  var stored = BlockSet()
  var absent = BlockSet()
  var failed = BlockSet()
  var distrusted = BlockSet()
  // What is under way.
  var looking = BlockSet()
  var fetching = BlockSet()
  var uploading = BlockSet()

  // The lease: what was read last, and the own one.
  var role = Role.outside
  var isAsking = false
  var seen: Lease?
  var seenVersion: ObjectVersion?
  var own: Lease?
  var ownVersion: ObjectVersion?

  /// Whether the time to wait before a free lease is taken has passed.
  var mayTake = false
  /// Whether the version last read has stood for as long as a lease lives.
  var isExpired = false
  /// Whether the holder's progress has stood for too long.
  var isStanding = false
  /// Whether this holder let a reader wait for too long though it went on.
  var isSlow = false
  /// Whether time has passed since the lease was read.
  var isStale = false
  /// The blocks for which readers wait for others: each has a timer.
  var waits: [Wait] = []
  /// The blocks for which a reader has waited so long that they are fetched as soon as the store has not got them.
  var overdue = BlockSet()
  var claim: Claim?

  /// Whether the holder looks whether another node stored a block before it fetches it.
  var looksFirst = false
  /// Whether the lease was written less than half a second ago, and whether there is something new to write.
  var isFresh = false
  var isDirty = false
  /// The fetches under way that have most of their block, and those that have asked for all of it: the next one may
  /// start.
  var nearlyHere = BlockSet()
  var asked = BlockSet()
  /// The rate at which the origin brought bytes last, in KiB a second.
  var rate: UInt32 = 0
  /// Whether the origin failed for this node: it takes no lease and fetches nothing until a reader has waited, or wants
  /// something else.
  var isBarred = false
  var isUp = true
  /// Why it is over.
  package internal(set) var ending: EndOfSharing?
  /// The timers that are set, a bit each.
  var armed: UInt8 = 0

  /// A segment of which nothing is known.
  package init() {}

  /// The blocks that are wanted and not here.
  package var missing: BlockSet { (foreground | background) - here }
  /// The block that a reader waits for first.
  var need: Int? { (foreground - here).first(from: reader ?? 0) }
  /// The blocks that the store should have.
  var known: BlockSet { (stored | (seen?.have ?? BlockSet())) - distrusted }

  /// Whether another node fetches what is missing here, so that a background download had better go elsewhere.
  package var isElsewhere: Bool {
    guard need == nil, !missing.isEmpty, fetching.isEmpty, looking.isEmpty, !isAsking else { return false }
    return armed & ShareTimer.poll.bit != 0 || (role == .watching && seen?.isReleased == false)
  }
  /// Whether nothing is under way or to come: the value may be dropped.
  package var isIdle: Bool {
    looking.isEmpty && fetching.isEmpty && uploading.isEmpty && !isAsking && (missing.isEmpty || ending != nil)
      && (role == .outside || role == .watching)
  }
  /// Whether the time of another node's lease is being counted, or has passed.
  var isWatched: Bool { armed & ShareTimer.expiry.bit != 0 || isExpired }
  /// The lease in hand, for a status.
  package var lease: Lease? { role == .holding ? own : nil }
  /// Whether a reader waits for what the store does not have yet.
  package var isWaitedFor: Bool { need.map { !known.contains($0) } ?? false }
  /// The rate of another node that holds the lease, in KiB a second; 0: it or its rate is not known.
  package var holderRate: Int { role == .watching && seen?.isReleased == false ? Int(seen?.rate ?? 0) : 0 }

  /// Takes an event, and adds what is to be done to `actions`.
  package mutating func handle(_ event: ShareEvent, _ setup: ShareSetup, into actions: inout [ShareAction]) {
    var steps = Steps(share: self, setup: setup, actions: actions)
    // Each has one owner while it changes: the arrays are not copied.
    actions = []
    steps.take(event)
    steps.go()
    self = steps.share
    actions = steps.actions
  }
}

/// What a segment's events are judged by.
package struct ShareSetup: Hashable, Sendable {
  /// The node, and a random number of its process.
  package var node, boot: UInt64
  /// How long it waits.
  package var times: ShareTimes
  /// Whether the store's conditional writes are atomic: otherwise there are no leases (best effort).
  package var hasLeases = true

  /// The setup of a node for a segment.
  package init(node: UInt64, boot: UInt64, times: ShareTimes, hasLeases: Bool = true) {
    self.node = node
    self.boot = boot
    self.times = times
    self.hasLeases = hasLeases
  }
}

extension ShareTimer {
  /// Those that a segment has once.
  static let single = [jitter, poll, renew, expiry, standing, claim]

  /// The timer's bit in the set of those that are set. ``SegmentShare/waits`` says which blocks have theirs.
  var bit: UInt8 {
    switch self {
    case .jitter: 1
    case .poll: 2
    case .renew: 4
    case .expiry: 8
    case .standing: 16
    case .claim: 32
    case .patience: 0
    }
  }
}
