import Base
import Fetching

/// How long the stats of files of unknown size may wait in all, for each process in each folder. Pure.
///
/// `ls -l` stats one name after the other. A stat that is answered uses up nothing, however many there are. One that
/// gets the placeholder uses up the time that it waited. The next one may wait for what is left: `timeout` in all, and
/// after that half of a small rest each time, so that a file that was not requested yet gets its round trip.
struct StatPatience: Sendable {
  /// A process in a folder. Processes of another PID namespace all have the number 0: in a folder they share one
  /// patience.
  struct Listing: Sendable, Hashable {
    var process: Int32
    var folder: Inode
  }

  private struct Spent: Sendable {
    var seconds: Double
    /// Until when waiting was counted: what two threads wait at the same time counts once.
    var countedUntil: Instant
    var lastStat: Instant
  }

  /// The most that is waited in all, in timeouts.
  static let longest = 1.1
  /// A shorter wait than this, in seconds, is not worth it.
  static let least = 0.02
  /// The most listings that are remembered. The one that was quiet for longest is forgotten first.
  static let most = 64

  let timeout: Double
  private var spent: [Listing: Spent] = [:]

  init(timeout: Double) { self.timeout = timeout }

  /// The number of listings that are remembered now.
  var count: Int { spent.count }

  /// A stat of `listing` waits: its listing goes on.
  mutating func asks(_ listing: Listing, now: Instant) {
    if lively(listing, now) != nil { spent[listing]?.lastStat = now }
  }

  /// Whether a stat that waits since `since` has waited enough. It may always wait until `answerBy`, when a host that
  /// is known to answer has probably answered the request.
  func isOver(_ listing: Listing, since: Instant, answerBy: Instant?, now: Instant) -> Bool {
    guard let spent = lively(listing, now) else { return now.seconds(since: since) >= timeout }
    if let answerBy, now < answerBy { return false }
    let left = max(timeout - spent.seconds, (Self.longest * timeout - spent.seconds) / 2)
    return left < Self.least || now.seconds(since: max(since, spent.countedUntil)) >= left
  }

  /// A stat that waited since `since` got the placeholder.
  mutating func endedInVain(_ listing: Listing, since: Instant, now: Instant) {
    var spent = lively(listing, now) ?? Spent(seconds: 0, countedUntil: since, lastStat: now)
    let waited = now.seconds(since: max(since, spent.countedUntil))
    guard waited > 0 else { return }
    spent.seconds += waited
    spent.countedUntil = now
    spent.lastStat = now
    if self.spent[listing] == nil, self.spent.count >= Self.most,
      let quietest = self.spent.min(by: { $0.value.lastStat < $1.value.lastStat })
    {
      self.spent[quietest.key] = nil
    }
    self.spent[listing] = spent
  }

  /// The machine slept, or the network changed: every listing may wait the whole time again.
  mutating func restart() { spent = [:] }

  /// What a listing has used up; nil if that is nothing, or was forgotten because no stat came for `timeout`.
  private func lively(_ listing: Listing, _ now: Instant) -> Spent? {
    spent[listing].flatMap { now.seconds(since: $0.lastStat) < timeout ? $0 : nil }
  }
}
