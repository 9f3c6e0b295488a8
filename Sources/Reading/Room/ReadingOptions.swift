/// When the rest of a file is fetched although nobody waits for it.
public enum ContinuationPolicy: String, Sendable, CaseIterable {
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
public struct ReadingOptions: Sendable {
  /// When the rest of a file is fetched.
  public var continuation = ContinuationPolicy.playing
  /// How long a stall lasts until its readers are told, in seconds (P2).
  public var timeout: Double = 30
  /// The most that partial files may take, in bytes.
  public var maximumSize: Int64 = .max
  /// What must stay free on the store's filesystem, in bytes.
  public var minimumFree: Int64 = 1 << 30
  /// The most that is fetched, in bytes a second over all; nil for no limit.
  public var rateLimit: Int64?
  /// The most connections to one origin (HTTP/2 has one, with many streams).
  public var connections = Line.demandLimit

  /// The defaults.
  public init() {}
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
