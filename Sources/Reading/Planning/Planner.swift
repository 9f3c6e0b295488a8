import Base
import Fetching

/// Decides what to ask an origin for, for one resource: pure, so that tests are lists of input -> steps.
///
/// The way of a plan:
/// 1. Each run of parked reads is one demand: its lowest missing byte (the rest of the run is the kernel's read-ahead).
///    If a transfer reaches that byte sooner than a new request would answer, wait for it. Else ask at the hole; a
///    transfer that would bring the same byte later is ended, so that no byte comes twice.
/// 2. Each reader gets play-ahead, the more the longer it has read in sequence, so that a look stays cheap and a player
///    or a copy soon has the whole line. Several windows at once when one connection is the limit (``LaneControl``).
/// 3. The tail of a file that was opened to be played: indexes are there, and players ask for them next.
/// 4. With nobody waiting or behind, the continuation asks for the next window of the holes.
///
/// All requests are closed ranges, so that yielding to a reader is just not asking for the next one, and nothing that
/// was asked for is thrown away, unless a reader jumped and it would stand in its way. Of what nobody waits for less
/// than a round trip's bytes are under way: when a reader comes along, they have run out about when its first byte
/// arrives.
enum Planner {
  /// The least a window has: below it, the cost of a request outweighs what it brings.
  static let smallestWindow: Int64 = 128 << 10
  /// The most: a quarter second of 32 MB/s; more would only delay a reader that comes along.
  static let largestWindow: Int64 = 8 << 20
  /// What is asked for at the first touch: enough for most headers, so that stat, open and the first read are one
  /// request.
  static let headLength: Int64 = 256 << 10
  /// The end of a file, where MP4's moov, MKV's cues and ID3v1 are; the longer ones are read on from there.
  static let tailLength: Int64 = 128 << 10
  /// How far ahead of a reader that has proved nothing yet.
  static let lookAhead: Int64 = 256 << 10
  /// From this many bytes in sequence on a reader's play-ahead grows with what it has read.
  static let provenLength: Int64 = 1 << 20
  /// The most play-ahead; the continuation fills what lies behind it.
  static let largestAhead: Int64 = 32 << 20
  /// A reader with less than this many seconds of its own rate before it is behind: nothing may compete with it.
  static let behindSeconds = 3.0
  /// From this many bytes in sequence on a run is a stream that may fall behind, not a jump.
  static let streamLength: Int64 = 512 << 10
  /// A reader with more than this many seconds before it can do with windows that yield.
  static let easySeconds = 0.3
  /// The most windows of what nobody waits for that are under way; mostly five fill the line (``hasRoom(beside:_:)``).
  static let mostBackgroundLanes = 6
  /// How much of the line they take, so that it does not queue what it is asked for; and while no file is open, when a
  /// newcomer opens one first: all of it, and a quarter of a round trip more, which is what that one may find in its
  /// way.
  static let backgroundShare = 0.85
  static let quietShare = 1.25
  /// A delay in seconds that a reader who jumped may notice.
  static let noticedSeconds = 0.02
  /// How many seconds a reader waits at most for what lies before its bytes in a window, when too much was thrown away
  /// already.
  static let longestDetour = 2.0
  /// The least such a window has: on a slow line a larger one would be in the way of who comes.
  static let smallestBackgroundWindow: Int64 = 16 << 10

  /// A window for a reader that waits: a quarter second of the line, shared among `lanes` of them.
  static func readerWindow(_ input: PlanInput) -> Int64 {
    clamped(input.line.share / 4 * 2 / Double(max(2, input.lanes)))
  }

  /// A window that nobody waits for: 18 % of a round trip of the line, of which five are most of it; a quarter while
  /// no file is open or where few connections are allowed. On a near origin at least 5 ms of the line, and while no
  /// file is open 20 ms: requests cost the processor's time.
  static func backgroundWindow(_ input: PlanInput) -> Int64 {
    let part = input.line.isQuiet || input.line.backgroundLanes < mostBackgroundLanes ? 0.25 : 0.18
    let seconds = max(input.line.roundTrip * part, input.line.isQuiet ? 0.02 : 0.005)
    let bytes = Int64(min(input.line.rate * seconds, 1e15))
    return min(max(bytes, smallestBackgroundWindow), largestWindow)
  }

  /// Whether another window that nobody waits for may be asked for beside `transfers`, by what is still to come of
  /// them: no more than a round trip of the line. Counted in bytes, so that requests follow each other as evenly as the
  /// bytes come: counted in windows, they would be asked for in clusters, as windows that share the line end together.
  static func hasRoom(beside transfers: [ActiveTransfer], _ input: PlanInput) -> Bool {
    if transfers.isEmpty { return true }
    let window = Double(backgroundWindow(input))
    let underWay = Double(transfers.reduce(0) { $0 + $1.rest.count })
    let most = mostUnderWay(window: window, of: input.line.rate * input.line.roundTrip, isQuiet: input.line.isQuiet)
    // Up to half of a window more: so many are under way on the mean.
    if transfers.count < input.line.usualLanes, underWay + window / 2 <= most { return true }
    // One more now and then leaves a connection behind for a reader's jump.
    if input.line.isQuiet || transfers.count >= input.line.backgroundLanes { return false }
    return underWay <= most + window / 2 && input.line.openConnections == transfers.count
  }

  /// How many bytes that nobody waits for may be under way in windows of so many, on a line that brings `inRoundTrip`
  /// in a round trip. Two windows at least: one is asked for while the other comes.
  static func mostUnderWay(window: Double, of inRoundTrip: Double, isQuiet: Bool) -> Double {
    (isQuiet ? quietShare : backgroundShare) * max(inRoundTrip, 2 * window)
  }

  private static func clamped(_ bytes: Double) -> Int64 {
    min(max(Int64(min(bytes, 1e15)), smallestWindow), largestWindow)
  }

  /// How far ahead of `reader` bytes are worth asking for.
  static func allowance(of reader: ReaderView, _ input: PlanInput) -> Int64 {
    if reader.isLooker || reader.length < provenLength { return lookAhead }
    // Ten seconds of what it plays, or every lane's window for one that takes all it gets (a copy).
    let wanted = max(Int64(min(reader.rate, 1e12) * 10), Int64(input.lanes) * readerWindow(input))
    // Who has been at it for a second gets as much again as it read; a burst may be a look that ends as suddenly.
    let earned = Double(reader.length) >= reader.rate ? reader.length : reader.length / 4
    return min(max(lookAhead, earned), min(wanted, largestAhead))
  }

  /// Whether `reader` may soon have to wait: it reads in sequence, has less than ``behindSeconds`` before it, and the
  /// file goes on there. (One that jumps about is nobody's stream: it matters when it waits.)
  static func isBehind(_ reader: ReaderView, _ input: PlanInput) -> Bool {
    if reader.isLooker || !reader.isFresh || reader.length < streamLength { return false }
    let there = input.available.runEnd(from: reader.position)
    return there < input.size && Double(there - reader.position) < reader.rate * behindSeconds
  }

  /// The steps to take now; the first matter most.
  static func plan(_ input: PlanInput) -> [PlanStep] {
    var draft = PlanDraft(input: input)
    for demand in runs(input.demands) { serve(demand, &draft) }
    if !draft.steps.isEmpty { giveWay(&draft) }
    for reader in input.readers { lead(reader, &draft) }
    if !input.demands.isEmpty { return draft.steps }
    if !input.readers.contains(where: { !$0.isElsewhere && isBehind($0, input) }) {
      for demand in runs(input.left) { serve(demand, &draft) }
    }
    if draft.hasStream || !input.left.isEmpty { return draft.steps }
    if input.wantsTail, input.size > tailLength + headLength, draft.transfers.isEmpty {
      draft.ask(from: input.size - tailLength, length: tailLength, .index)
    }
    // Also not while one that just jumped was behind at its old place: it has nothing before it at the new one either.
    if input.continues, !input.readers.contains(where: { isBehind($0, input) }) { fill(&draft) }
    return draft.steps
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

  private static func serve(_ demand: ByteRange, _ draft: inout PlanDraft) {
    let input = draft.input
    let bounds = ByteRange(min(demand.start, input.size), min(demand.end, input.size))
    guard let gap = input.available.firstGap(in: bounds) else { return }
    if let index = draft.transfers.firstIndex(where: { $0.rest.contains(gap.start) }) {
      let running = draft.transfers[index]
      if running.isStream { return }
      let distance = gap.start - running.position
      let rate = running.rate ?? input.line.rate
      // A new request answers after a round trip; what lies before the byte must come sooner to be worth waiting for.
      if distance <= smallestWindow / 2 || Double(distance) < rate * input.line.roundTrip { return }
      // No byte comes twice for a reader that goes on in steps, unless it would wait for long.
      let lost = lost(byCutting: running, input)
      guard lost <= draft.spare || Double(distance) > rate * longestDetour else { return }
      draft.spare -= lost
      draft.cancel(index)
    } else if draft.hasStream {
      return  // behind a stream's position: it is asked for anew when the stream has ended
    }
    let reader = input.readers.first { abs($0.position - demand.start) <= demand.count + lookAhead }
    let ahead = reader.map { allowance(of: $0, input) } ?? lookAhead
    let length = max(min(ahead, readerWindow(input)), min(demand.end - gap.start, largestWindow))
    draft.ask(from: gap.start, length: length, .demand)
  }

  /// A reader jumped and is asked for anew: what its old place still brings is kept only if it does not come in the
  /// way, or if too much was thrown away before.
  private static func giveWay(_ draft: inout PlanDraft) {
    let input = draft.input
    let here = input.readers.filter { !$0.isElsewhere }.map { reader in
      ByteRange(max(0, reader.position - lookAhead), reader.position + allowance(of: reader, input))
    }
    let isLeft = { (running: ActiveTransfer) -> Bool in
      // (Players look at the end and come back to the head.)
      running.id != PlanDraft.asked && !running.isStream && running.purpose <= .playAhead && running.end > headLength
        && !(here + input.demands).contains { $0.overlaps(running.rest) }
    }
    var underWay = draft.transfers.filter(isLeft).reduce(0) { $0 + $1.rest.count }
    let inRoundTrip = input.line.rate * input.line.roundTrip
    // What comes within the round trip that the reader waits anyway is in nobody's way.
    while Double(underWay) - inRoundTrip > input.line.rate * noticedSeconds,
      let index = draft.transfers.indices.filter({ isLeft(draft.transfers[$0]) }).max(by: {
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

  /// What of a transfer is on its way, and lost when it is ended: about a round trip's bytes.
  static func lost(byCutting transfer: ActiveTransfer, _ input: PlanInput) -> Int64 {
    min(transfer.rest.count, Int64(min(input.line.rate * input.line.roundTrip, 1e15)) + smallestBackgroundWindow)
  }

  private static func lead(_ reader: ReaderView, _ draft: inout PlanDraft) {
    let input = draft.input
    guard reader.position < input.size, !reader.isElsewhere, !draft.hasStream else { return }
    let goal = min(input.size, reader.position + allowance(of: reader, input))
    let there = input.available.runEnd(from: reader.position)
    // What it read so far tells little of the rate of one that has just begun.
    let isEasy = reader.length >= provenLength && Double(there - reader.position) >= reader.rate * easySeconds
    let window = isEasy ? backgroundWindow(input) : readerWindow(input)
    let lanes = max(2, input.lanes)
    while true {
      // From what lies just before the position on: the kernel's read-ahead arrives in any order, and the furthest of
      // it must not leave a hole behind that is asked for late.
      let back = ByteRange(max(0, reader.position - min(reader.length, lookAhead)), reader.position)
      let frontier = draft.covered.firstGap(in: back)?.start ?? draft.covered.runEnd(from: reader.position)
      guard frontier < goal else { return }
      let ahead = draft.transfers.filter { $0.end > back.start && $0.position <= frontier }
      guard isEasy ? hasRoom(beside: ahead, input) : ahead.count < lanes else { return }
      // What it waits for comes first: who has just come may want no more.
      if reader.length < provenLength, !input.demands.isEmpty, ahead.contains(where: { $0.rate == nil }) { return }
      // Two lanes hide the round trip when the second is asked for as the first has little more than that left; beside
      // each other they would only delay the one that is due. More lanes are for origins that hold each connection
      // back, and all run at once.
      let lead =
        input.line.share * (reader.length < provenLength ? input.line.roundTrip : 1.5 * input.line.roundTrip + 0.005)
      if !isEasy, lanes == 2, let last = ahead.last(where: { $0.end == frontier }),
        Double(last.rest.count) > max(lead, Double(smallestWindow / 2))
      {
        return
      }
      // In whole windows, not in the few bytes that each read frees: a request a read would be all head and no body.
      guard goal - frontier >= min(window, lookAhead) / 2 || goal == input.size else { return }
      let before = draft.steps.count
      draft.ask(from: frontier, length: min(window, goal - frontier), .playAhead)
      if draft.steps.count == before { return }
    }
  }

  private static func fill(_ draft: inout PlanDraft) {
    let input = draft.input
    let start = min(input.continuationStart, input.size)
    while hasRoom(beside: draft.transfers, input) {
      guard
        let gap = draft.covered.firstGap(in: ByteRange(start, input.size))
          ?? draft.covered.firstGap(in: ByteRange(0, start))
      else { return }
      draft.ask(from: gap.start, length: backgroundWindow(input), .continuation)
    }
  }
}

/// A plan in the making: what is under way, with what the plan has asked for so far.
struct PlanDraft {
  /// The id of what this plan asks for.
  static let asked = TransferID(.max)
  let input: PlanInput
  var transfers: [ActiveTransfer]
  var steps: [PlanStep] = []
  /// Bytes under way that may be thrown away yet.
  var spare: Int64
  /// What is stored or will come without another request.
  private(set) var covered: ByteRangeSet

  init(input: PlanInput) {
    self.input = input
    transfers = input.transfers
    spare = input.spareBytes
    covered = input.available
    for transfer in transfers { covered.insert(transfer.rest) }
  }

  /// Whether a body from start to end is under way: nothing else can be asked for beside it.
  var hasStream: Bool { transfers.contains { $0.isStream } }

  /// Ends a transfer; what it would have brought is a hole again.
  mutating func cancel(_ index: Int) {
    steps.append(.cancel(transfers[index].id))
    transfers.remove(at: index)
    covered = input.available
    for transfer in transfers { covered.insert(transfer.rest) }
  }

  /// Asks for at most `length` bytes from `start`, up to what is stored or already asked for.
  mutating func ask(from start: Int64, length: Int64, _ purpose: Purpose) {
    let bounds = ByteRange(start, max(start, min(input.size, start + length)))
    guard let gap = covered.firstGap(in: bounds) else { return }
    steps.append(.start(gap, purpose))
    covered.insert(gap)
    transfers.append(
      ActiveTransfer(id: Self.asked, position: gap.start, end: gap.end, purpose: purpose, rate: nil))
  }
}
