/// When the rest of a file is fetched although nobody waits for it.
package enum ContinuationPolicy: String, Sendable, CaseIterable {
  /// Once a file shows that it is being played.
  case playing
  /// Once it was opened.
  case always
  /// As `playing`, but only while a reader has it open.
  case open
  /// Never: only what readers wait for, and a little more.
  case never
}

/// How the reading room behaves.
package struct ReadingOptions: Sendable {
  /// When the rest of a file is fetched.
  package var continuation = ContinuationPolicy.playing
  /// How long a stall lasts until its readers are told, in seconds (P2).
  package var timeout: Double = 30
  /// The most that partial files may take, in bytes.
  package var maximumSize: Int64 = .max
  /// What must stay free on the store's filesystem, in bytes.
  package var minimumFree: Int64 = 1 << 30
  /// The most that is fetched, in bytes a second over all; nil for no limit.
  package var rateLimit: Int64?
  /// The most connections to one origin (HTTP/2 has one, with many streams).
  package var connections = Line.demandLimit

  /// The defaults.
  package init() {}
}

extension ContinuationPolicy {
  /// Whether the rest of a file that was played, or that a user asked for by name, is to be fetched now.
  func goesOn(isRequested: Bool, isOpen: Bool) -> Bool {
    if isRequested { return true }
    switch self {
    case .playing, .always: return true
    case .open: return isOpen
    case .never: return false
    }
  }
}
