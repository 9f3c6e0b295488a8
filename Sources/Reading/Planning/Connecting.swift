import Base
import Fetching

/// Play-ahead for which no connection is idle. Over TLS a new one brings its first byte after three round trips, and
/// little in each after that. So what the reader needs next waits for a connection in use, and new connections are made
/// with what it needs later.
extension Planner {
  /// How many connections are being made at once.
  private static let mostConnecting = 2
  /// The round trips of the handshakes of TCP and TLS 1.3.
  private static let handshakes = 2.0
  /// After how many round trips a transfer is no longer waited for.
  private static let longestWait = 10.0

  /// Whether a play-ahead request of `length` bytes waits for a connection in use, which is free before a new one would
  /// have brought the first of these bytes. Where the line loses packets, what is in flight may come late.
  static func waitsForConnection(_ length: Int64, _ draft: PlanDraft) -> Bool {
    let line = draft.input.line
    guard line.hasHandshakes, !line.losesPackets, draft.requests >= line.flights.count else { return false }
    let longest = (handshakes + Flights.moreTrips(min(length, smallestFirstWindow))) * line.roundTrip
    let rate = line.rate / Double(max(1, draft.transfers.count))
    return draft.transfers.contains { running in
      if running.isConnecting || running.isStuck || running.isStream { return false }
      let age = running.id == PlanDraft.asked ? 0 : running.age
      // One that hangs may never be free.
      if age > longestWait * line.roundTrip { return false }
      let answer = running.hasBegun ? 0 : max(0, line.roundTrip - age)
      return answer + Double(running.rest.count) / (running.rate ?? rate) < longest
    }
  }

  /// Makes a connection by a request for the last bytes before `goal`, not before `frontier`.
  static func connectAhead(_ frontier: Int64, _ goal: Int64, _ draft: inout PlanDraft) {
    let connecting = draft.transfers.count(where: \.isConnecting)
    guard connecting < mostConnecting else { return }
    draft.ask(from: max(frontier, goal - Int64(connecting + 1) * pieceLength), length: pieceLength, .playAhead)
  }
}
