import Base
import Manifest

/// Whether a host counts as silent: requests were given up there, and nothing has come since. Pure.
///
/// A stat of a file on a silent host is answered with the placeholder at once, and the host is asked again in the
/// background. A read or an open asks and waits as always.
struct Silence: Sendable, Equatable {
  /// How long it is remembered, in seconds, unless an answer or another network ends it before. As long as the longest
  /// pause between two questions of what nobody waits for: by then nobody may have asked the host again.
  static let remembered = Retry.longest
  /// A request that failed sooner than this, in seconds, was refused: whoever waits for such a host waits briefly.
  static let shortest = 1.0
  /// So many requests in a row without an answer speak against all files of a host; one only against its own: a single
  /// file may hang while others come.
  static let requests = 2

  private var until: Instant?
  /// The file that alone it is known of; nil: it holds for all.
  private var file: ResourceKey?
  /// When it ended last. What was asked before says nothing.
  private(set) var endedAt = Instant(nanoseconds: 0)

  /// Whether something speaks against the host.
  func holds(_ now: Instant) -> Bool { until.map { now < $0 } ?? false }

  /// Whether stats of that file are answered at once.
  func covers(_ file: ResourceKey, _ now: Instant) -> Bool { holds(now) && (self.file == nil || self.file == file) }

  /// A request for `file` that was made at `asked` was given up, the `count`th in a row at its host.
  mutating func waitedInVain(on file: ResourceKey, askedAt asked: Instant, inARow count: Int, now: Instant) {
    if now.seconds(since: asked) < Self.shortest { return }
    let isAlone = count < Self.requests && !(holds(now) && self.file != file)
    begin(now)
    if isAlone { self.file = file }
  }

  /// Somebody was told that nothing is known, as nothing has come from it in time.
  mutating func begin(_ now: Instant) {
    until = now.adding(seconds: Self.remembered)
    file = nil
  }

  /// It answered, or the network changed.
  mutating func end(_ now: Instant) {
    until = nil
    endedAt = now
  }
}
