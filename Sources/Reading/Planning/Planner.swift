import Base
import Fetching

/// Decides what to ask an origin for, for one resource: pure, so that tests are lists of input -> steps.
///
/// The way of a plan:
/// 1. Each run of parked reads is one demand: its lowest missing byte (the rest of the run is the kernel's read-ahead). If a
///    transfer reaches that byte sooner than a new request would answer, wait for it. Else ask at the hole; a transfer that
///    would bring the same byte later is ended, so that no byte comes twice.
/// 2. Each reader gets play-ahead, the more the longer it has read in sequence, so that a look stays cheap and a player or a
///    copy soon has the whole line.
/// 3. With nobody waiting, the continuation asks for the next window of the holes.
///
/// All requests are closed ranges, windows of about a quarter second of the line: yielding to a reader is then just not
/// asking for the next one, and nothing that was asked for is thrown away. A run's next window is asked for when half of
/// the one before has come, which hides the round trip.
enum Planner {
  /// The least a window has: below it, the cost of a request outweighs what it brings.
  static let smallestWindow: Int64 = 128 << 10
  /// The most: a quarter second of 32 MB/s; more would only delay a reader that comes along.
  static let largestWindow: Int64 = 8 << 20
  /// What is asked for at the first touch: enough for most headers, so that stat, open and the first read are one request.
  static let headLength: Int64 = 256 << 10
  /// How far ahead of a reader that has proved nothing yet.
  static let lookAhead: Int64 = 256 << 10
  /// From this many bytes in sequence on a reader's play-ahead grows with what it has read.
  static let provenLength: Int64 = 1 << 20
  /// The most play-ahead; the continuation fills what lies behind it.
  static let largestAhead: Int64 = 16 << 20
  /// How many windows of one sequence are under way at most.
  static let lanes = 2

  /// A quarter second of the line, within the bounds.
  static func window(lineRate: Double) -> Int64 {
    min(max(Int64(lineRate / 4), smallestWindow), largestWindow)
  }

  /// How far ahead of `reader` bytes are worth asking for.
  static func allowance(of reader: ReaderView, lineRate: Double) -> Int64 {
    if reader.isLooker || reader.length < provenLength { return lookAhead }
    // Ten seconds of what it plays, or two windows for one that takes all it gets (a copy).
    let wanted = max(Int64(reader.rate * 10), 2 * window(lineRate: lineRate))
    return min(max(lookAhead, reader.length / 2), min(wanted, largestAhead))
  }

  /// The steps to take now; the first matter most.
  static func plan(_ input: PlanInput) -> [PlanStep] {
    var steps: [PlanStep] = []
    var transfers = input.transfers
    for demand in runs(input.demands) {
      serve(demand, input, &transfers, &steps)
    }
    for reader in input.readers {
      lead(reader, input, &transfers, &steps)
    }
    if input.continues && input.demands.isEmpty { fill(input, &transfers, &steps) }
    return steps
  }

  /// Joins parked reads that follow closely on each other: one reader's and its kernel's read-ahead.
  static func runs(_ demands: [ByteRange]) -> [ByteRange] {
    var result: [ByteRange] = []
    for demand in demands {
      if let last = result.last, demand.start <= last.end + lookAhead {
        result[result.count - 1] = ByteRange(last.start, max(last.end, demand.end))
      } else {
        result.append(demand)
      }
    }
    return result
  }

  private static func serve(
    _ demand: ByteRange, _ input: PlanInput, _ transfers: inout [ActiveTransfer], _ steps: inout [PlanStep]
  ) {
    let bounds = ByteRange(min(demand.start, input.size), min(demand.end, input.size))
    guard let gap = input.available.firstGap(in: bounds) else { return }
    if let index = transfers.firstIndex(where: { $0.rest.contains(gap.start) }) {
      let running = transfers[index]
      if running.isStream { return }
      let distance = gap.start - running.position
      let rate = running.rate ?? input.lineRate
      // A new request answers after a round trip; what lies before the byte must come sooner to be worth waiting for.
      if distance <= smallestWindow / 2 || Double(distance) < rate * input.roundTrip { return }
      steps.append(.cancel(running.id))
      transfers.remove(at: index)
    } else if transfers.contains(where: \.isStream) {
      return  // behind a stream's position: it is asked for anew when the stream has ended
    }
    let reader = input.readers.first { abs($0.position - demand.start) <= demand.count + lookAhead }
    let ahead = reader.map { allowance(of: $0, lineRate: input.lineRate) } ?? lookAhead
    let length = max(min(ahead, window(lineRate: input.lineRate)), min(demand.end - gap.start, largestWindow))
    ask(from: gap.start, length: length, .demand, input, &transfers, &steps)
  }

  private static func lead(
    _ reader: ReaderView, _ input: PlanInput, _ transfers: inout [ActiveTransfer], _ steps: inout [PlanStep]
  ) {
    guard reader.position < input.size, !transfers.contains(where: \.isStream) else { return }
    let goal = min(input.size, reader.position + allowance(of: reader, lineRate: input.lineRate))
    var covered = input.available
    for transfer in transfers { covered.insert(transfer.rest) }
    let frontier = covered.runEnd(from: reader.position)
    guard frontier < goal else { return }
    // Of this sequence at most `lanes` are under way, and the next only when half of the last has come.
    let ahead = transfers.filter { $0.end > reader.position && $0.position <= frontier }
    guard ahead.count < lanes else { return }
    let window = window(lineRate: input.lineRate)
    if let last = ahead.last(where: { $0.end == frontier }), last.rest.count > window / 2 { return }
    // In whole windows, not in the few bytes that each read frees: a request a read would be all head and no body.
    guard goal - frontier >= min(window, lookAhead) / 2 || goal == input.size else { return }
    ask(from: frontier, length: min(window, goal - frontier), .playAhead, input, &transfers, &steps)
  }

  private static func fill(_ input: PlanInput, _ transfers: inout [ActiveTransfer], _ steps: inout [PlanStep]) {
    guard !transfers.contains(where: \.isStream) else { return }
    while transfers.count < lanes {
      var covered = input.available
      for transfer in transfers { covered.insert(transfer.rest) }
      let start = min(input.continuationStart, input.size)
      guard
        let gap = covered.firstGap(in: ByteRange(start, input.size)) ?? covered.firstGap(in: ByteRange(0, start))
      else { return }
      ask(from: gap.start, length: window(lineRate: input.lineRate), .continuation, input, &transfers, &steps)
    }
  }

  /// Asks for at most `length` bytes from `start`, up to what is stored or already asked for.
  private static func ask(
    from start: Int64, length: Int64, _ purpose: Purpose, _ input: PlanInput,
    _ transfers: inout [ActiveTransfer], _ steps: inout [PlanStep]
  ) {
    var covered = input.available
    for transfer in transfers { covered.insert(transfer.rest) }
    guard let gap = covered.firstGap(in: ByteRange(start, max(start, min(input.size, start + length)))) else { return }
    steps.append(.start(gap, purpose))
    transfers.append(
      ActiveTransfer(
        id: TransferID(.max), position: gap.start, end: gap.end, purpose: purpose, rate: nil))
  }
}
