import Fetching

/// When the rest of a file is fetched although no reader waits for it.
package enum ContinuationPolicy: String, Sendable, CaseIterable {
  /// Once a reader has read enough to show that it plays the file.
  case playing
  /// Once a program has opened the file.
  case always
  /// As `playing`, but only while a reader has it open.
  case open
  /// Never: only what readers wait for, and a little play-ahead.
  case never
}

/// What may go by itself to keep the store within its limits.
package enum EvictionPolicy: String, Sendable, CaseIterable {
  /// Parts of unfinished files.
  case partial
  /// Complete copies too, if this store placed them and nobody changed them.
  case complete
}

/// The limits that a user may change under a mount.
package struct ReadingLimits: Sendable, Equatable {
  /// The most that the store may have on disk, in bytes.
  package var maximumSize: Int64
  /// What may go to keep that limit.
  package var evicts = EvictionPolicy.partial
  /// What nobody used for so many seconds goes; nil: nothing does for its age.
  package var maximumAge: Double?
  /// The most bytes a second, of all transfers and of those from single hosts.
  package var rates: TransferRates
  /// The most connections to one origin (HTTP/2 has one, with many streams).
  package var connections: Int
  /// The same for single origins, by their hosts (``TransferRates/host(of:)``).
  package var hostConnections: [String: Int] = [:]

  /// Limits that hold for every host.
  package init(maximumSize: Int64, rates: TransferRates, connections: Int) {
    self.maximumSize = maximumSize
    self.rates = rates
    self.connections = connections
  }

  /// The most connections to an origin.
  func connections(of host: String) -> Int { hostConnections[host] ?? connections }
}

/// How the reading room behaves.
package struct ReadingOptions: Sendable {
  /// When the rest of a file is fetched.
  package var continuation = ContinuationPolicy.playing
  /// How long a read may wait without receiving data before it fails, in seconds (P2).
  package var timeout: Double = 30
  /// How long an origin's answer counts when a file is opened, in seconds (P8). At least as long as an open waits, or
  /// the open of a new version would ask again.
  package var fresh: Double = 600
  /// Of how many files the beginning is fetched while the one before them in their folder is being played.
  package var next = 2
  /// The limits that hold until a user changes them.
  package var limits = ReadingLimits(maximumSize: .max, rates: TransferRates(), connections: Line.demandLimit)
  /// What the keeper leaves free on the store's filesystem, in bytes.
  package var minimumFree: Int64 = 1 << 30
  /// See ``ReadingLimits``.
  package var maximumSize: Int64 {
    get { limits.maximumSize }
    set { limits.maximumSize = newValue }
  }
  /// See ``ReadingLimits``.
  package var connections: Int {
    get { limits.connections }
    set { limits.connections = newValue }
  }

  /// The mount's path, for the commands that messages name; empty where nobody can type one.
  package var mountpoint = ""

  /// Whether there is a second source, which hears of complete files that are opened.
  package var shares = false

  /// Whether something is fetched of the files that follow one that is being played.
  var looksAhead: Bool { next > 0 && continuation != .never }

  /// The defaults.
  package init() {}
}

extension ContinuationPolicy {
  /// Whether the background download of a file may run now. The file was played, or `isRequested`: a user asked for it
  /// by name.
  func goesOn(isRequested: Bool, isOpen: Bool) -> Bool {
    if isRequested { return true }
    switch self {
    case .playing, .always: return true
    case .open: return isOpen
    case .never: return false
    }
  }
}
