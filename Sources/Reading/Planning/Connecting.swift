import Base
import Fetching

/// Play-ahead for which no connection is idle. Over TLS a new one brings its first byte after three round trips, and
/// little in each after that. So what the reader needs next waits for a connection in use, and new connections are made
/// with what it needs later.
extension Planner {
  /// For one file at most so many connections are made at once.
  private static let mostConnecting = 2
  /// The round trips of the handshakes of TCP and TLS 1.3.
  private static let handshakes = 2.0
  /// A transfer that has brought nothing for so many round trips, or has not ended after so many, is not waited for: it
  /// may hang.
  private static let longestAnswer = 2.0
  private static let longestWait = 10.0

  /// Whether a play-ahead request of `length` bytes waits for a connection in use, which is free before a new one would
  /// have brought these bytes, or the first 64 KiB of them. Where the line loses packets, a response may end late.
  static func waitsForConnection(_ length: Int64, _ draft: PlanDraft) -> Bool {
    let line = draft.input.line
    guard line.hasHandshakes, !line.staysSmall, !line.losesPackets, draft.requests >= line.flights.count else {
      return false
    }
    let longest = (handshakes + Flights.moreTrips(min(length, smallestFirstWindow))) * line.roundTrip
    let rate = line.rate / Double(max(1, draft.transfers.count))
    return draft.transfers.contains { running in
      if running.isConnecting || running.isStuck { return false }
      let age = running.id == PlanDraft.asked ? 0 : running.age
      if age > (running.hasBegun ? longestWait : longestAnswer) * line.roundTrip { return false }
      let answer = running.hasBegun ? 0 : max(0, line.roundTrip - age)
      return answer + Double(running.rest.count) / (running.rate ?? rate) < longest
    }
  }

  /// Makes a connection by a request for bytes before `goal`, which the reader needs last, and well behind `frontier`.
  static func connectAhead(_ frontier: Int64, _ goal: Int64, _ draft: inout PlanDraft) {
    let asking = draft.transfers.count { !$0.hasBegun && $0.position > frontier && $0.purpose == .playAhead }
    let piece = ByteRange(at: goal - Int64(asking + 1) * pieceLength, count: pieceLength)
    guard asking < mostConnecting, piece.start >= frontier + pieceLength, draft.covered.firstGap(in: piece) == piece
    else { return }
    draft.ask(from: piece.start, length: piece.count, .playAhead)
  }
}
