import Base
import Fetching

/// How long the stats of files of unknown size wait, in all, for each process in each folder. Pure.
///
/// `ls -l` stats one name after the other. A stat that is answered costs nothing here, however many there are. One that
/// ends with the placeholder uses up what it waited. What is left is how long the next one may wait: `timeout` in all,
/// and then half of what is left of a small rest each time, so that a file that was not asked yet gets its round trip.
struct StatPatience: Sendable {
  /// Who looks where. The process is 0 when the kernel does not know it here (another pid namespace): all of those
  /// share what they have in a folder.
  struct Looker: Sendable, Hashable {
    var process: Int32
    var folder: Inode
  }

  private struct Spent: Sendable {
    var seconds: Double
    /// Up to when waiting was counted: what two threads wait at the same time counts once.
    var countedUntil: Instant
    var lastStat: Instant
  }

  /// What is waited in all is at most so many times the timeout.
  static let whole = 1.1
  /// Less than this, in seconds, is not worth waiting.
  static let least = 0.02
  /// Lookers that are remembered; of more, the one that was quiet for longest goes.
  static let most = 64

  let timeout: Double
  private var spent: [Looker: Spent] = [:]

  init(timeout: Double) { self.timeout = timeout }

  /// Lookers that are remembered now.
  var count: Int { spent.count }

  /// A stat of it waits: its listing goes on.
  mutating func asks(_ looker: Looker, now: Instant) {
    if lively(looker, now) != nil { spent[looker]?.lastStat = now }
  }

  /// Whether a stat that waits since `since` has waited enough. `answerBy`: when a host that is known to answer is
  /// likely to have answered this one's request; until then it may wait.
  func isOver(_ looker: Looker, since: Instant, answerBy: Instant?, now: Instant) -> Bool {
    guard let spent = lively(looker, now) else { return now.seconds(since: since) >= timeout }
    if let answerBy, now < answerBy { return false }
    let left = max(timeout - spent.seconds, (Self.whole * timeout - spent.seconds) / 2)
    return left < Self.least || now.seconds(since: max(since, spent.countedUntil)) >= left
  }

  /// A stat that waited since `since` ended with the placeholder.
  mutating func endedInVain(_ looker: Looker, since: Instant, now: Instant) {
    var spent = lively(looker, now) ?? Spent(seconds: 0, countedUntil: since, lastStat: now)
    let waited = now.seconds(since: max(since, spent.countedUntil))
    guard waited > 0 else { return }
    spent.seconds += waited
    spent.countedUntil = now
    spent.lastStat = now
    if self.spent[looker] == nil, self.spent.count >= Self.most,
      let quietest = self.spent.min(by: { $0.value.lastStat < $1.value.lastStat })
    {
      self.spent[quietest.key] = nil
    }
    self.spent[looker] = spent
  }

  /// The machine slept, or the network changed: everyone has all of it again.
  mutating func restart() { spent = [:] }

  /// What a looker has spent; nil for one that has spent nothing, or was quiet for the timeout: it begins anew.
  private func lively(_ looker: Looker, _ now: Instant) -> Spent? {
    spent[looker].flatMap { now.seconds(since: $0.lastStat) < timeout ? $0 : nil }
  }
}
