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
  struct Looker: Sendable, Hashable {
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
  static let whole = 1.1
  /// A shorter wait than this, in seconds, is not worth it.
  static let least = 0.02
  /// The most lookers that are remembered. The one that was quiet for longest is forgotten first.
  static let most = 64

  let timeout: Double
  private var spent: [Looker: Spent] = [:]

  init(timeout: Double) { self.timeout = timeout }

  /// The number of lookers that are remembered now.
  var count: Int { spent.count }

  /// A stat of `looker` waits: its listing goes on.
  mutating func asks(_ looker: Looker, now: Instant) {
    if lively(looker, now) != nil { spent[looker]?.lastStat = now }
  }

  /// Whether a stat that waits since `since` has waited enough. It may always wait until `answerBy`, when a host that
  /// is known to answer has probably answered the request.
  func isOver(_ looker: Looker, since: Instant, answerBy: Instant?, now: Instant) -> Bool {
    guard let spent = lively(looker, now) else { return now.seconds(since: since) >= timeout }
    if let answerBy, now < answerBy { return false }
    let left = max(timeout - spent.seconds, (Self.whole * timeout - spent.seconds) / 2)
    return left < Self.least || now.seconds(since: max(since, spent.countedUntil)) >= left
  }

  /// A stat that waited since `since` got the placeholder.
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

  /// The machine slept, or the network changed: every looker may wait the whole time again.
  mutating func restart() { spent = [:] }

  /// What a looker has used up; nil if that is nothing, or was forgotten because no stat came for `timeout`.
  private func lively(_ looker: Looker, _ now: Instant) -> Spent? {
    spent[looker].flatMap { now.seconds(since: $0.lastStat) < timeout ? $0 : nil }
  }
}
