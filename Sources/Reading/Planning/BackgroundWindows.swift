/// Windows that yield to others: short ones, of which a round trip's bytes are in flight.
extension Planner {
  /// The most background windows in flight. Mostly five fill the line (``hasRoom(beside:_:_:)``).
  static let mostBackgroundLanes = 6
  /// The smallest background window in bytes: on a slow line a larger one would delay a reader who comes.
  static let smallestBackgroundWindow: Int64 = 16 << 10

  /// Who may come to a line on which background windows are in flight, or is there. It decides which part of a round
  /// trip's bytes they may have in flight.
  enum Company: Sendable {
    /// No file is open. A newcomer's open comes before its read: then all of them and a quarter more, which is what the
    /// newcomer may have to wait for.
    case nobody
    /// Readers without a deadline have files open.
    case readers
    /// A reader has less than its lead, or is on trial: all of them, so that no part of the line is idle.
    case behind
    /// The same where congestion windows are small: a response takes some round trips.
    case behindOverSmallWindows
    /// The same where packets are lost: many of the bytes in flight have come, and wait for a lost packet.
    case behindWithLosses
    /// Somebody plays, or a background download meets a reader: less than all, so that the line does not queue them.
    case players

    var share: Double {
      switch self {
      case .nobody: 1.25
      case .readers: 1.2
      case .behind: 1.2
      case .behindOverSmallWindows: 1.5
      case .behindWithLosses: 2.5
      case .players: 0.8
      }
    }

    /// How many windows a reader that is behind may have in flight at least; nil: as many as any other download.
    var leastLanes: Int? {
      switch self {
      case .behind: 8
      case .behindOverSmallWindows, .behindWithLosses: 12
      case .nobody, .readers, .players: nil
      }
    }
  }

  /// A background window: 18 % of a round trip of the line, so that five are most of it; a quarter where nobody has a
  /// file open or few connections are allowed, and a little more where congestion windows are small. To a near origin
  /// it is at least 5 ms of the line, and 20 ms where nobody plays, because each request costs processor time.
  static func backgroundWindow(_ input: PlanInput, _ company: Company) -> Int64 {
    let part =
      switch company {
      case .behindOverSmallWindows, .behindWithLosses: 0.27
      case .nobody: 0.25
      default: input.line.backgroundLanes < mostBackgroundLanes ? 0.25 : 0.18
      }
    let seconds = max(input.line.horizon(company) * part, company == .players ? 0.005 : 0.02)
    let bytes = Int64(min(input.line.rate * seconds, 1e15))
    return min(max(bytes, smallestBackgroundWindow), largestWindow)
  }

  /// Whether another background window may be requested beside `transfers`: their missing bytes may be a round trip of
  /// the line. Counting bytes spreads the requests as evenly as the bytes arrive. Counting windows would request them
  /// in clusters, because windows that share the line end together.
  static func hasRoom(beside transfers: [ActiveTransfer], _ input: PlanInput, _ company: Company) -> Bool {
    if transfers.isEmpty { return true }
    let window = Double(backgroundWindow(input, company))
    let underWay = Double(transfers.reduce(0) { $0 + $1.rest.count })
    let most = mostUnderWay(window: window, of: input.line.rate * input.line.horizon(company), company)
    // Up to half a window more, so that the mean is as many as allowed.
    let lanes = max(company.leastLanes ?? 0, input.line.usualLanes)
    if transfers.count < lanes, underWay + window / 2 <= most { return true }
    // One more now and then keeps an extra connection open for a reader's jump.
    if company == .nobody || transfers.count >= input.line.backgroundLanes { return false }
    return underWay <= most + window / 2 && input.line.openConnections == transfers.count
  }

  /// The most background bytes in flight, in windows of `window` bytes, on a line that brings `inRoundTrip` bytes in a
  /// round trip. At least two windows: one is requested while the other arrives.
  static func mostUnderWay(window: Double, of inRoundTrip: Double, _ company: Company) -> Double {
    company.share * max(inRoundTrip, 2 * window)
  }
}
