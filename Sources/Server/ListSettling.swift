import Base

/// When a list that changes is read: pure, so that tests play it through.
///
/// Programs write a list in steps, and a half-written one parses too: with fewer names, which a media server would then
/// delete from its library. So a list is read once nothing has changed it for a moment; and for a longer moment while
/// the program that wrote to it has not closed it, or where nothing tells whether it has. One that whole files replace
/// without a quiet moment is read all the same, after a while.
struct ListSettling {
  /// What happened.
  enum Event: Equatable {
    /// The file looks like this now; nil: it is not there, or cannot be looked at.
    case looked(ListMark?)
    /// A program wrote to it.
    case written
    /// A program closed it, or put another file in its place.
    case closed
  }

  /// What to do now.
  enum Action: Equatable {
    case nothing
    /// Look again after so many seconds, if nothing happens before.
    case lookIn(Double)
    /// Read the list.
    case read
    /// Say that the list is not there.
    case complain
  }

  /// For how long nothing may have changed, in seconds.
  static let quiet = 0.5
  /// The same while a program that wrote has not closed the file (some never do), or may not have: no event told of the
  /// change. After as long a list is read that is never quiet.
  static let quietWhileOpen = 10.0
  /// For how long a list may be away, between its removal and the next one, before somebody is told.
  static let patience = 5.0

  /// What the tree was made of, or what was refused last.
  private var settled: ListMark?
  private var last: ListMark?
  private var changedAt: Instant?
  private var missingSince: Instant?
  private var hasComplained = false
  private var isOpen = false
  /// Whether an event told of the change.
  private var isHeard = false
  /// Since when it has had no quiet moment.
  private var busySince: Instant?
  /// How often it changed while it was read, since it was read whole.
  private var misses = 0
  private var hasLooked = false

  /// `settled`: what the tree was made of; nil if that is not known.
  init(settled: ListMark?) {
    self.settled = settled
    last = settled
  }

  /// The list was read as `mark`, whether it was taken or not: the same is not read again by itself.
  mutating func read(as mark: ListMark?) {
    (settled, last, changedAt, isOpen, isHeard, busySince, misses) = (mark, mark, nil, false, false, nil, 0)
  }

  /// The list changed while it was read, and nothing of it was taken. Returns how often that was so in a row.
  mutating func missed(_ now: Instant) -> Int {
    (changedAt, busySince) = (now, now)
    misses += 1
    return misses
  }

  mutating func handle(_ event: Event, _ now: Instant) -> Action {
    switch event {
    case .written, .closed:
      isOpen = event == .written
      isHeard = true
      changedAt = now
    case .looked(nil): return missing(now)
    case .looked(let mark):
      (missingSince, hasComplained) = (nil, false)
      if mark != last || mark != settled && changedAt == nil {
        last = mark
        changedAt = now
        // Before the first look nobody listened.
        if !hasLooked { isHeard = true }
      }
      hasLooked = true
    }
    guard let changedAt else { return .nothing }
    let busy = busySince ?? now
    busySince = busy
    var rest = (isOpen || !isHeard ? Self.quietWhileOpen : Self.quiet) - now.seconds(since: changedAt)
    if isHeard, !isOpen { rest = min(rest, Self.quietWhileOpen - now.seconds(since: busy)) }
    // A look must have seen what the others tell of.
    guard rest <= 0, case .looked = event else { return .lookIn(max(0, rest)) }
    return .read
  }

  private mutating func missing(_ now: Instant) -> Action {
    last = nil
    (changedAt, busySince) = (nil, nil)
    let since = missingSince ?? now
    missingSince = since
    if hasComplained { return .nothing }
    let rest = Self.patience - now.seconds(since: since)
    if rest > 0 { return .lookIn(rest) }
    hasComplained = true
    return .complain
  }
}

/// By what a changed file is known: what stat(2) tells of it.
struct ListMark: Equatable, Sendable {
  var device: UInt64
  var inode: UInt64
  var size: Int64
  var modified: Int64
  var changed: Int64
  /// Whether each of the files can be read more than once: unlike a pipe.
  var isPlain = true
}
