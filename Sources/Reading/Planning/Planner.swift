import Base
import Fetching

/// Decides which transfers to start and to cancel for one resource. Pure: tests list inputs and steps.
///
/// Terms: a *window* is a range that one transfer requests. The *lanes* of a file are how many windows it may have in
/// flight at once. *Play-ahead* is what a reader in sequence will ask for next; a *continuation* is the background
/// download of the rest. A *stream* is a body from start to end, from an origin that ignores ranges.
///
/// How a plan is made:
/// 1. Each run of parked reads is one demand for its lowest missing byte; the rest of the run is the kernel's
///    read-ahead. If a transfer in flight reaches that byte sooner than a new request would, the demand waits for it.
///    Otherwise the plan requests the hole, and cancels a transfer that would bring the same byte later, so that no
///    byte comes twice.
/// 2. Each reader gets play-ahead, the more the longer it has read in sequence. So a short look stays cheap, and a
///    player or a copy soon uses the whole line. It gets several windows at once when one connection is too slow
///    (``LaneControl``).
/// 3. The plan requests the tail of a file that was opened to be played: indexes are there, and players read them next.
/// 4. When no reader waits or is behind, the continuation requests the next window of the holes. Before it come the
///    ranges that are wanted because the file before this one is being played.
///
/// All requests are closed ranges. To yield to a reader, the plan just makes no further request. It throws no requested
/// byte away, unless a reader jumped and the byte would delay it. Background windows in flight hold less than a round
/// trip's bytes: when a reader comes, the last of them arrive about when its own first byte does.
enum Planner {
  /// The smallest window in bytes: below it, a request costs more than its bytes are worth.
  static let smallestWindow: Int64 = 128 << 10
  /// The largest window: a quarter second of 32 MB/s. A larger one would only delay a reader that comes meanwhile.
  static let largestWindow: Int64 = 8 << 20
  /// The most bytes of a first request: enough for most headers, so that stat, open and the first read need one
  /// request. On a line of which a round trip brings less, the first request is smaller (``firstWindow(_:)``).
  static let headLength: Int64 = 256 << 10
  /// The least bytes of a first request, and of one of many readers that have come at the same time.
  static let smallestFirstWindow: Int64 = 64 << 10
  static let smallestShare: Int64 = 32 << 10
  /// What is requested for a reader that jumps is a multiple of this.
  static let jumpStep: Int64 = 16 << 10
  /// The bytes of the tail, where MP4's moov, MKV's cues and ID3v1 are. Players read longer indexes on from there.
  static let tailLength: Int64 = 128 << 10
  /// The play-ahead in bytes of a reader below ``provenLength``. One that reads on gets ``leastAllowance(of:_:)``.
  static let lookAhead: Int64 = 256 << 10
  /// What the kernel reads at once for a program whose first read is one of 64 KiB, in bytes, where it reads 128 KiB
  /// ahead. It reads more when the program has read the half of that.
  static let firstReadAhead: Int64 = 128 << 10
  /// From this many bytes in sequence on, a reader's play-ahead grows with what it has read.
  static let provenLength: Int64 = 1 << 20
  /// The most play-ahead in bytes; the continuation fetches what lies behind it.
  static let largestAhead: Int64 = 32 << 20
  /// A reader with less than this many seconds of its own rate ahead of it is behind: no background window may compete.
  static let behindSeconds = 3.0
  /// From this many bytes in sequence on, a run is steady reading that may fall behind, not a jump.
  static let streamLength: Int64 = 512 << 10
  /// A reader with more than this many seconds ahead of it gets small windows, which yield to others.
  static let easySeconds = 0.3
  /// The longest wait, in seconds, for the bytes before a reader's own in a window, when too many bytes were thrown
  /// away already.
  static let longestDetour = 2.0

  /// A window for a waiting reader: a quarter second of the line, or a round trip of it where that is longer. More than
  /// two lanes share twice that.
  static func readerWindow(_ input: PlanInput) -> Int64 {
    clamped(input.line.share * max(0.25, input.line.roundTrip) * 2 / Double(max(2, input.lanes.now)))
  }

  /// A window for a reader that has shown little: a round trip's bytes of the line. The request for what follows is
  /// made when the first byte arrives, and is answered when the last one has arrived: a larger window gains nothing for
  /// one who reads on, and costs more where the reader only looks. Beside others that have just come it is a share of
  /// those bytes: as many get one as the origin answers at once.
  static func firstWindow(_ line: LineView) -> Int64 {
    let share = inRoundTrip(line) / Int64(max(1, min(line.waiting, line.requestLimit)))
    let least = line.waiting > 1 ? smallestShare : smallestFirstWindow
    return min(max((share + smallestShare - 1) / smallestShare * smallestShare, least), headLength)
  }

  /// The window of a reader that has just come, beside others that have; nil for any other. All of them together have
  /// about one round trip's bytes in flight, however many they are: who comes next waits for all of that.
  static func newcomersWindow(_ reader: ReaderView?, _ line: LineView) -> Int64? {
    guard let reader, reader.claim == .start, reader.takes == nil, line.waiting > 1, line.isMeasured else { return nil }
    return firstWindow(line)
  }

  /// The bytes of the first request of a file, of whose kind looks read `learned`. One who looks gets that. Anyone else
  /// may play, and then goes on reading.
  static func firstRequest(_ line: LineView, learned: ProbeSet?, isLook: Bool) -> Int64 {
    guard let learned else { return firstWindow(line) }
    return isLook ? learned.head : max(learned.head, firstWindow(line))
  }

  /// The bytes that the line brings in a round trip.
  static func inRoundTrip(_ line: LineView) -> Int64 { Int64(min(line.rate * line.roundTrip, 1e15)) }

  static func clamped(_ bytes: Double) -> Int64 {
    min(max(Int64(min(bytes, 1e15)), smallestWindow), largestWindow)
  }

  /// How many bytes ahead of `reader` are worth a request.
  static func allowance(of reader: ReaderView, _ input: PlanInput) -> Int64 {
    if reader.takes != nil { return 0 }
    if reader.length < provenLength, !reader.isPaced {
      // What looks at this kind of file read was requested as a whole: who reads on shows it by reading further.
      if reader.isLooker, let head = input.learned?.head, reader.position <= head { return 0 }
      return reader.isLooker ? min(reader.length, lookAhead) : leastAllowance(of: reader, input.line)
    }
    if reader.isLooker {
      return min(max(lookAhead, 2 * Int64(min(input.line.rate * input.line.roundTrip, 1e12))), reader.length / 4)
    }
    if let slow = slowConnections(for: reader, input) { return allowance(of: reader, over: slow, input) }
    // Ten seconds of the rate at which it reads, or a window in each lane for a copy, which takes all it gets.
    let wanted = max(Int64(min(reader.rate, 1e12) * 10), Int64(input.lanes.now) * readerWindow(input))
    // A reader that has read for a second earns as much as it read. A burst may be a look that ends as suddenly.
    let proven = Double(reader.length) >= reader.rate || reader.isPaced ? reader.length : reader.length / 4
    let earned = reader.isPaced ? max(proven, Int64(min(reader.rate, 1e12) * Playouts.leadSeconds)) : proven
    return min(max(leastAllowance(of: reader, input.line), earned), min(wanted, largestAhead))
  }

  /// The least play-ahead in bytes. A reader that has shown that it reads on gets two first requests: while the bytes
  /// of one arrive, the next must be under way, or the line falls idle.
  private static func leastAllowance(of reader: ReaderView, _ line: LineView) -> Int64 {
    hasShown(reader, line) ? max(lookAhead, 2 * firstWindow(line)) : lookAhead
  }

  /// Whether `reader` has shown that it reads on: it has read more than the kernel reads ahead by itself. It does not
  /// count where responses pause: there, more bytes in flight lose more packets.
  private static func hasShown(_ reader: ReaderView, _ line: LineView) -> Bool {
    !line.hasPauses && reader.length > lookAhead
  }

  /// Whether `reader` may soon have to wait: it reads in sequence, has less than ``behindSeconds`` ahead of it, and the
  /// file goes on there. (A reader that jumps about counts only when it waits.)
  static func isBehind(_ reader: ReaderView, _ input: PlanInput) -> Bool {
    if reader.isLooker || !reader.isFresh || reader.length < streamLength { return false }
    let there = input.available.runEnd(from: reader.position)
    return there < input.size && Double(there - reader.position) < reader.rate * behindSeconds
  }

  /// The steps to take now, the most important first.
  static func plan(_ input: PlanInput) -> [PlanStep] {
    var draft = PlanDraft(input: input)
    for demand in runs(input.demands) { serve(demand, &draft) }
    if !draft.steps.isEmpty { giveWay(&draft) }
    if input.tail > 0, !draft.hasStream { draft.ask(from: max(0, input.size - input.tail), length: input.tail, .index) }
    for reader in input.readers { lead(reader, &draft) }
    if !input.demands.isEmpty { return draft.steps }
    // While bytes come for the place to which the reader went on, it will ask for more there.
    let isBusy = draft.transfers.contains { $0.purpose <= .playAhead }
    if !isBusy, !input.readers.contains(where: { !$0.isElsewhere && isBehind($0, input) }) {
      for demand in runs(input.abandonedReads) { serve(demand, &draft) }
    }
    if draft.hasStream || !input.abandonedReads.isEmpty { return draft.steps }
    // A reader that has just jumped and was behind at its old place has nothing ahead of it at the new one either.
    if input.readers.contains(where: { isBehind($0, input) }) { return draft.steps }
    fill(&draft, input.ahead, .next)
    let start = min(input.continuationStart, input.size)
    if input.continues {
      fill(&draft, input.bounds ?? [ByteRange(start, input.size), ByteRange(0, start)], .continuation)
    }
    return draft.steps
  }

  /// Joins parked reads that follow closely on each other: they are one reader's, with the kernel's read-ahead.
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
      // A new request takes a round trip. A transfer is waited for if it reaches the byte sooner.
      let isSooner = distance <= smallestWindow / 2 || Double(distance) < rate * input.line.roundTrip
      if isSooner && !running.isStuck { return }
      // A reader that goes on in steps gets no byte twice, unless it would wait long.
      let lost = lost(byCutting: running, input)
      guard lost <= draft.spare || Double(distance) > rate * longestDetour else { return }
      draft.spare -= lost
      draft.cancel(index)
    } else if draft.hasStream {
      return  // behind the stream's position: requested again when the stream has ended
    }
    let needed = min(demand.end - gap.start, largestWindow)
    let reader = input.readers.first { abs($0.position - demand.start) <= demand.count + lookAhead }
    // The kernel may read far ahead of what it waits for.
    let sharing = reader ?? input.readers.first { $0.isNear(demand) }
    if let sharing, sharesLine(sharing, input) {
      // What it reads beyond the window follows as play-ahead.
      let company = sharing.claim == .trial ? .behind : input.line.company(isReader: true)
      guard hasRoom(beside: draft.transfers, input, company) else { return }
      var length = backgroundWindow(input, company)
      // Who looks, jumps or passes by may want no more than it reads, however much the line brings.
      if sharing.isLooker || sharing.takes != nil || sharing.length < provenLength {
        length = min(length, max(needed, window(of: sharing, at: gap.start, needed: needed, input)))
      }
      return draft.ask(from: gap.start, length: length, .shared)
    }
    if let reader, reader.isLooker, reader.takes == nil, let start = tailStart(gap.start, draft) {
      return draft.ask(from: start, length: input.size - start, .demand)
    }
    if let share = newcomersWindow(reader, input.line) {
      // What it reads beyond its share follows as play-ahead.
      return draft.ask(from: gap.start, length: share, .demand)
    }
    let waited = input.demands.first { $0.contains(gap.start) } ?? demand
    if let reader, startsCold(reader, needs: waited.end - gap.start, draft) {
      // What the kernel reads ahead of it follows, over connections that have become warm.
      return spread(ByteRange(gap.start, min(waited.end, input.size)), more: 0, &draft)
    }
    let least = goesOnOverOne(reader, needs: needed, draft) ? max(needed, 2 * lookAhead) : needed
    let length = max(least, window(of: reader, at: gap.start, needed: needed, input))
    if let reader, isSpread(reader, input), gap.start > headLength {
      // A reader that jumps again and again may read in small steps, and soon waits for the next ones.
      let least = max(needed, (reader.takes ?? 0) / 2)
      return spread(ByteRange(gap.start, gap.start + least), more: reader.takes == nil ? 0 : length - least, &draft)
    }
    draft.ask(from: gap.start, length: length, .demand)
  }

  /// Where the request begins for one who looks and jumped to `start`, when that is near the end; else nil. An index or
  /// a tag there is read up to the end. What looks read shortly before it too is fetched with it.
  private static func tailStart(_ start: Int64, _ draft: PlanDraft) -> Int64? {
    let size = draft.input.size
    let isJump = start > 0 && draft.covered.firstGap(in: ByteRange(start - 1, start)) != nil
    guard isJump, size - start <= ProbeSets.longest else { return nil }
    let first = max(0, start - jumpStep, min(start, size - (draft.input.learned?.tail ?? 0)))
    return draft.covered.firstGap(in: ByteRange(first, size))?.contains(start) ?? false ? first : start
  }

  /// How many bytes from `start` on are requested at once for `reader`, which waits for `needed` bytes there.
  private static func window(of reader: ReaderView?, at start: Int64, needed: Int64, _ input: PlanInput) -> Int64 {
    guard let reader else { return min(firstWindow(input.line), readerWindow(input)) }
    if let takes = reader.takes {
      // A little more than it takes: the next byte would cost it a round trip.
      let bytes = max(takes, needed)
      return (bytes + bytes / 4 + jumpStep - 1) / jumpStep * jumpStep
    }
    if reader.length >= provenLength {
      return min(allowance(of: reader, input), readerWindow(of: reader, from: start, input))
    }
    let first = firstRequest(input.line, learned: input.learned, isLook: reader.isLooker)
    if start < first { return first - start }
    // It grows with what was read: beside others who have large windows a small one gets little of the line.
    let shown = reader.isLooker ? reader.length : lookAhead
    return max(firstWindow(input.line), min(shown, lookAhead, readerWindow(input)))
  }

  /// Whether `reader` gets background windows: it has no deadline near, and other files have readers that wait or play,
  /// or that may jump. For the latter a reader stands back only where it fills the line: if it needs more lanes than
  /// the least, its connections are what is slow, and no queue stands in which a jump would wait.
  static func sharesLine(_ reader: ReaderView, _ input: PlanInput) -> Bool {
    guard reader.claim.shares else { return false }
    let fillsLine = input.lanes.settled == LaneControl.least && input.slowConnections == nil
    return input.line.hasOthers || (input.line.hasVisits && fillsLine)
  }

  /// Whether `reader` may want no more than its first read, which is answered. Programs that are known to look have
  /// rules of their own.
  static func mayBeOver(_ reader: ReaderView) -> Bool {
    reader.mayBeOver && reader.length <= firstReadAhead && !reader.isPaced && !reader.isLooker
  }

  private static func lead(_ reader: ReaderView, _ draft: inout PlanDraft) {
    let input = draft.input
    guard reader.position < input.size, !reader.isElsewhere, !draft.hasStream else { return }
    // Who looks and waits for nothing may have seen enough.
    if reader.isLooker, reader.length < provenLength, draft.transfers.isEmpty { return }
    if mayBeOver(reader) { return }
    let goal = min(input.size, reader.position + allowance(of: reader, input))
    let there = input.available.runEnd(from: reader.position)
    let slow = slowConnections(for: reader, input)
    // Slow connections bring their windows together: between two such sets there is little before the reader.
    let together = slow.map { Double(readerWindow(of: reader, from: there, input)) * Double($0.count) } ?? 0
    // A reader that has just begun has shown little of its rate.
    let isEasy =
      reader.length >= provenLength && Double(there - reader.position) >= max(reader.rate * easySeconds, together)
    let shares = sharesLine(reader, input)
    // Where each connection is slow, a background download's few lanes would bring less than the reader plays.
    let rests =
      reader.isResting && input.line.hasSmallWindows && slow == nil && input.lanes.settled == LaneControl.least
    let hasNoLead = !rests && Double(there - reader.position) < reader.rate * Playouts.leadSeconds
    let isBehind = hasNoLead && (!shares || reader.claim == .trial)
    let isBounded = input.line.hasSmallWindows && slow == nil && !reader.isLooker && !rests
    let bounded = input.line.losesPackets ? Company.behindWithLosses : .behindOverSmallWindows
    let behind = isBounded ? bounded : .behind
    let company = isBehind ? behind : input.line.company(isReader: shares)
    // On a contended line a quarter second of the line, as one window, is more than may be in flight: the next one
    // would be requested when the last byte has come, and the line would be idle for a round trip each time.
    let isRationed =
      input.line.isContended && (reader.claim == .lead || reader.claim == .start && reader.length >= provenLength)
    // What a server of HTTP/2 has written into its socket comes even if the request is cancelled. Over that one
    // connection small windows bring as much as large ones, and delay a jump less.
    let isCommitted = input.line.fillsOneConnection && reader.length >= provenLength && slow == nil
    let usesSmallWindows = isEasy || shares || isBounded || isRationed || rests || isCommitted
    let shared = backgroundWindow(input, company)
    let isSpread = isSpread(reader, input)
    // The lanes of a trial would delay what a reader waits for that has just jumped.
    let lanes = slow?.count ?? max(2, reader.length < provenLength ? input.lanes.settled : input.lanes.now)
    let waiting = input.demands.map(\.start).filter { $0 >= reader.position - ReaderRuns.slack }.min() ?? .max
    while true {
      // Begins just before the reader's position, and where it waits: the kernel's read-ahead arrives in any order, and
      // its furthest read must not leave a hole that is requested late.
      let back = ByteRange(max(0, reader.position - min(reader.length, lookAhead)), reader.position)
      let hole = draft.covered.firstGap(in: ByteRange(min(waiting, back.start), reader.position))
      let frontier = hole?.start ?? draft.covered.runEnd(from: reader.position)
      guard frontier < goal else { return }
      // Beside others, a copy asks for less than what has grown while it was alone.
      let window =
        isBounded
        ? min(flight(draft, grows: letsGrow(reader, input)), shares ? max(pieceLength, shared) : .max)
        : usesSmallWindows
          ? shared
          : newcomersWindow(reader, input.line) ?? readerWindow(of: reader, from: frontier, input)
      let ahead = draft.transfers.filter { $0.end > back.start && $0.position <= frontier }
      guard usesSmallWindows ? hasRoom(beside: ahead, input, company) : ahead.count < lanes else { return }
      // What the reader waits for comes first: one that has just come may want no more, or jump from the head to where
      // it begins to play. Who has jumped reads on.
      let hasJumped = reader.position > reader.length && !reader.isLooker
      // The reader has shown it, or one of its reads waits for bytes beyond what is requested. Beside others that have
      // just come it waits its turn.
      let readsOn =
        !reader.isLooker && input.line.waiting <= 1
        && (hasShown(reader, input.line) || input.demands.contains { $0.start <= frontier && $0.end > frontier })
      let isAwaited = isSpread && input.demands.contains { $0.contains(frontier) }
      let underWay = ahead.reduce(0) { $0 + $1.rest.count }
      let isPart =
        hasJumped && reader.length < provenLength && underWay + smallestWindow <= jumpAhead(of: reader, input)
      let isFirst =
        isAwaited || isPart
        || isSpread && reader.takes == nil && underWay < firstWindow(input.line)
      if reader.length < provenLength, !input.demands.isEmpty, !isFirst,
        ahead.contains(where: { hasJumped || readsOn ? !$0.hasBegun : $0.rate == nil })
      {
        return
      }
      // Two lanes hide the round trip if the second window is requested when the first has little more than that left;
      // side by side they would only delay the first. More lanes are for origins that limit each connection, and all
      // run at once.
      let lead =
        input.line.share
        * (reader.length < provenLength
          ? input.line.roundTrip : 1.5 * max(input.line.roundTrip, input.line.lateTrip) + 0.005)
      if !usesSmallWindows, lanes == 2, let last = ahead.last(where: { $0.end == frontier }),
        Double(last.rest.count) > max(lead, Double(smallestBackgroundWindow))
      {
        return
      }
      // Requests whole windows, not the few bytes that each read frees: a request per read would be mostly headers.
      // The reader waits for what the pieces of its jump have left.
      guard isAwaited || goal - frontier >= min(window, lookAhead) / 2 || goal == input.size else { return }
      let before = draft.steps.count
      // Who still reads the head may jump to where it begins to play: what is on the way then delays it.
      let readsHead = reader.position == reader.length && reader.length < streamLength && !reader.isLooker
      let part = isPart && !input.demands.isEmpty ? jumpAhead(of: reader, input) - underWay : .max
      let most = min(window, readsHead ? headLength : .max, part)
      let length = min(most, goal - frontier)
      // At its start a reader takes what each connection brings, the new ones too.
      let isUsual = isBounded && !shares && lanes == LaneControl.least && reader.length >= provenLength
      if isUsual, waitsForConnection(length, draft) {
        return connectAhead(frontier, goal, &draft)
      }
      draft.ask(from: frontier, length: length, shares ? .shared : .playAhead)
      if draft.steps.count == before { return }
    }
  }

  /// Requests background windows for the holes of `ranges`, the first range first.
  private static func fill(_ draft: inout PlanDraft, _ ranges: [ByteRange], _ purpose: Purpose) {
    let input = draft.input
    let company = input.line.company(isReader: false)
    let window = backgroundWindow(input, company)
    for range in ranges.compactMap({ $0.intersection(ByteRange(0, input.size)) }) {
      while hasRoom(beside: draft.transfers, input, company), let gap = draft.covered.firstGap(in: range) {
        draft.ask(from: gap.start, length: min(window, gap.count), purpose)
      }
    }
  }
}
