import Base
import Fetching

/// A reader jumped: what is requested for its new place, and what is cancelled for the old one.
extension Planner {
  /// The delay that a reader who jumped may notice: so many seconds, or so much of a round trip if that is longer.
  private static let noticedSeconds = 0.02
  private static let noticedTrips = 0.25
  /// The seconds of its medium that a player may need before it shows anything.
  private static let shownSeconds = 0.5

  /// Whether what `reader` needs behind its jump is spread over several connections, of which each brings little.
  static func isSpread(_ reader: ReaderView, _ input: PlanInput) -> Bool {
    input.line.hasSmallWindows && max(input.line.openConnections, input.line.flights.count) > 1
      && reader.length < provenLength && !reader.isLooker && reader.position > reader.length
  }

  /// Whether the `needed` bytes that `reader` waits for, of a file of a known size, are spread over the idle
  /// connections of a line that has rested. Together they bring these bytes in one round trip, and the first one
  /// alone does not. The line and a router's queue of one round trip have room for them. Beside other readers the
  /// next one would find no connection idle.
  static func startsCold(_ reader: ReaderView, needs needed: Int64, _ draft: PlanDraft) -> Bool {
    let (input, line) = (draft.input, draft.input.line)
    guard line.hasRested, !line.isLimited, !isSpread(reader, input), reader.length < provenLength, !reader.isLooker,
      reader.takes == nil, !line.hasOthers, !input.isCompared, input.bounds == nil,
      needed >= pieceLength, needed <= 2 * inRoundTrip(line)
    else { return false }
    let idle = line.flights.prefix(line.requestLimit).dropFirst(draft.requests)
    guard let first = idle.first, first < needed + overhead else { return false }
    return idle.reduce(0) { $0 + idlePiece($1) } >= needed
  }

  /// How many bytes behind its jump are requested for a player before the first of them is there: what it plays in half
  /// a second and a round trip, and no more than a round trip brings. A player may show nothing before it has half a
  /// second of its medium, and what is requested when the first byte is there comes a round trip later.
  static func jumpAhead(of reader: ReaderView, _ input: PlanInput) -> Int64 {
    guard reader.isPaced, !reader.isLooker, !input.line.hasSmallWindows else { return 0 }
    let seconds = shownSeconds + input.line.roundTrip
    return min(inRoundTrip(input.line), Int64(min(reader.rate, 1e12) * seconds))
  }

  /// A reader jumped, and its new place was requested. Transfers for its old place are cancelled if they would delay
  /// it, unless too many bytes were thrown away before.
  static func giveWay(_ draft: inout PlanDraft) {
    let input = draft.input
    let here = input.readers.filter { !$0.isElsewhere }.map { reader in
      ByteRange(max(0, reader.position - lookAhead), reader.position + allowance(of: reader, input))
    }
    let isForOldPlace = { (running: ActiveTransfer) -> Bool in
      // Players look at the end and come back to the head, so the head is kept.
      running.id != PlanDraft.asked && !running.isStream && !running.isConnecting && running.purpose <= .shared
        && running.end > max(headLength, input.learned?.head ?? 0)
        && !(here + input.demands).contains { $0.overlaps(running.rest) }
    }
    // The connections that are cancelled have the largest congestion windows, which the new place needs.
    if input.line.hasSmallWindows { return }
    let old = draft.transfers.filter(isForOldPlace)
    var underWay = old.reduce(0) { $0 + $1.rest.count }
    let sooner = input.line.rate * min(old.map(\.age).max() ?? 0, input.line.roundTrip)
    // Bytes that arrive within the round trip for which the reader waits anyway delay nobody. Of what was requested
    // just now few do. A player that looks at the end and comes back needs what it left under way: over a long line it
    // would stall if that were cancelled for a short delay.
    let noticed = max(noticedSeconds, input.line.roundTrip * noticedTrips)
    while Double(underWay) - sooner > input.line.rate * noticed,
      let index = draft.transfers.indices.filter({ isForOldPlace(draft.transfers[$0]) }).max(by: {
        draft.transfers[$0].rest.count < draft.transfers[$1].rest.count
      })
    {
      let rest = draft.transfers[index].rest.count
      let lost = lost(byCutting: draft.transfers[index], input)
      guard lost <= draft.spare else { return }
      draft.spare -= lost
      underWay -= rest
      draft.cancel(index)
    }
  }

  /// The bytes that are lost when a transfer is cancelled: about a round trip's, which are in flight.
  static func lost(byCutting transfer: ActiveTransfer, _ input: PlanInput) -> Int64 {
    min(transfer.rest.count, inRoundTrip(input.line) + smallestBackgroundWindow)
  }
}
