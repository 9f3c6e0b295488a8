import Base
import Manifest

/// Whether a host counts as silent: requests to it failed without an answer, and nothing has arrived since. Pure.
///
/// A stat of a file on a silent host gets the placeholder at once, and the size is requested in the background. A read
/// or an open still sends a request and waits.
struct Silence: Sendable, Equatable {
  /// How long a host counts as silent, in seconds, unless an answer or another network ends that. As long as the
  /// longest backoff of a background request: before that, nobody may have asked the host again.
  static let remembered = Retry.longest
  /// A request that failed in less than this many seconds was refused: a wait for such a host is short anyway.
  static let shortest = 1.0
  /// After this many requests in a row without an answer, all files of the host count. After one, only its own file
  /// does: a single file may hang while others arrive.
  static let requests = 2

  private var until: Instant?
  /// The only file that counts; nil: all files of the host.
  private var file: ResourceKey?
  /// When the silence last ended. Requests from before that do not count.
  private(set) var endedAt = Instant(nanoseconds: 0)

  /// Whether the host counts as silent, for one file or for all.
  func holds(_ now: Instant) -> Bool { until.map { now < $0 } ?? false }

  /// Whether stats of that file get the placeholder at once.
  func covers(_ file: ResourceKey, _ now: Instant) -> Bool { holds(now) && (self.file == nil || self.file == file) }

  /// A request for `file`, made at `asked`, got no answer: the `count`th in a row at its host.
  mutating func waitedInVain(on file: ResourceKey, askedAt asked: Instant, inARow count: Int, now: Instant) {
    if now.seconds(since: asked) < Self.shortest { return }
    let isAlone = count < Self.requests && !(holds(now) && self.file != file)
    begin(now)
    if isAlone { self.file = file }
  }

  /// A stat got the placeholder because nothing had arrived in time.
  mutating func begin(_ now: Instant) {
    until = now.adding(seconds: Self.remembered)
    file = nil
  }

  /// The host answered, or the network changed.
  mutating func end(_ now: Instant) {
    until = nil
    endedAt = now
  }
}
