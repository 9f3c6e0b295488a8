import Control
import Glibc
import Reading

/// Tells the clients that listen what happens in the reading room.
struct EventTeller: HappeningListener {
  let hub: EventHub

  var isHeard: Bool { hub.isHeard }

  func happened(_ happening: Happening) {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    hub.post(
      ControlEvent(
        .init(happening.kind), at: Double(now.tv_sec) + Double(now.tv_nsec / 1_000_000) / 1000, path: happening.path,
        bytes: happening.bytes, message: happening.message.map { String($0.prefix(Self.longest)) }))
  }

  /// A message is no longer than this, in characters: what an origin sends may be.
  private static let longest = 1000
}

extension ControlEvent.Kind {
  fileprivate init(_ kind: Happening.Kind) {
    switch kind {
    case .new: self = .new
    case .changed: self = .changed
    case .complete: self = .complete
    case .failing: self = .failing
    case .evicted: self = .evicted
    case .stalled: self = .stalled
    case .rule: self = .rule
    }
  }
}
