import Base
import Manifest

/// Which processes were on trial of late. A copy of a folder would be on trial all the time, and leave the copies
/// beside it next to nothing. Pure.
struct Trials: Sendable {
  /// How long a process has no further trial after one that showed no pace, in seconds.
  private static let rest = 60.0
  /// A process that has not read a file for so many seconds is done with it.
  private static let idle = 2.0
  /// From so many processes on, those that rest no more are forgotten.
  private static let kept = 256

  private struct Trial {
    let key: ResourceKey
    let began: Instant
    var last: Instant
  }
  private var seen: [Int32: [Trial]] = [:]

  /// Whether `process` may be on trial at the file `key`: it was at no other that it is done with. Processes of other
  /// PID namespaces are not told apart.
  func has(_ process: Int32, _ key: ResourceKey, _ now: Instant) -> Bool {
    !(seen[process] ?? []).contains { trial in
      trial.key != key && now.seconds(since: trial.last) > Self.idle && now.seconds(since: trial.began) < Self.rest
    }
  }

  /// `process` read the file `key` last at the time `last`. `isOnTrial`: it is on trial there.
  mutating func note(_ process: Int32, _ key: ResourceKey, isOnTrial: Bool, last: Instant, _ now: Instant) {
    if let place = seen[process]?.firstIndex(where: { $0.key == key }) {
      seen[process]?[place].last = last
      return
    }
    guard isOnTrial, process != 0 else { return }
    let isCurrent = { (trial: Trial) in now.seconds(since: trial.began) < Self.rest }
    if seen.count >= Self.kept { seen = seen.filter { $0.value.contains(where: isCurrent) } }
    seen[process] = (seen[process] ?? []).filter(isCurrent) + [Trial(key: key, began: now, last: last)]
  }

  /// `process` showed a pace.
  mutating func passed(_ process: Int32) { seen[process] = nil }
}
