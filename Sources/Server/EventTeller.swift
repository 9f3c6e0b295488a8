import Control
import Glibc
import Reading

/// Tells the clients that listen what happens in the reading room, and the launcher which files are complete.
struct EventTeller: HappeningListener {
  let hub: EventHub
  /// nil without `--on`.
  let launcher: LauncherLink?
  /// The library's folder.
  let library: String

  var isHeard: Bool { hub.isHeard || launcher != nil }

  func happened(_ happening: Happening) {
    if let launcher, happening.kind == .complete, let copy = happening.copy {
      launcher.tell(
        CompletedFile(
          path: happening.path, file: "\(library)/\(copy)", url: happening.url ?? "", size: happening.bytes ?? 0))
    }
    guard hub.isHeard else { return }
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
