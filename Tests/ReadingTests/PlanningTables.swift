import Base
import Fetching
import Testing

@testable import Reading

/// The pure parts of planning: relations that must hold whatever the constants are.
@Suite struct PlanningTables {
  private let start = Instant(nanoseconds: 1_000_000_000)

  // MARK: Retry

  @Test("Pauses grow, up to a bound; a reader's are short; progress ends them; Retry-After is kept")
  func retry() throws {
    let failure = TransferFailure(kind: .transient, message: "")
    for random in [0, 0.5, 0.999] {
      var retry = Retry()
      #expect(retry.permits(start, readerWaits: false))
      var now = start
      var last = 0.0
      for _ in 0..<40 {
        retry.failed(failure, now: now, random: random)
        let alone = try #require(retry.due(readerWaits: false)).seconds(since: now)
        let reader = try #require(retry.due(readerWaits: true)).seconds(since: now)
        #expect(alone > 0 && alone <= Retry.longest && alone >= last * 0.9)
        #expect(reader > 0 && reader <= Retry.longestWithReader && reader <= alone)
        last = alone
        now = now.adding(seconds: alone)
      }
      #expect(last > 2 * Retry.longestWithReader)
      retry.progressed()
      #expect(retry.permits(now, readerWaits: false) && retry.failures == 0)
    }
    var asked = Retry()
    asked.failed(TransferFailure(kind: .transient, retryAfter: 60, message: ""), now: start, random: 0)
    asked.hurry()
    asked.skipPause()
    #expect(!asked.permits(start.adding(seconds: 59), readerWaits: true))
    #expect(asked.permits(start.adding(seconds: 60), readerWaits: false))
    asked.failed(TransferFailure(kind: .transient, retryAfter: 1e9, message: ""), now: start, random: 0)
    #expect(asked.permits(start.adding(seconds: Retry.longestAsked), readerWaits: false))
  }

  @Test("Another mirror is asked at once, and the count goes on")
  func mirrors() {
    var retry = Retry()
    retry.failed(TransferFailure(kind: .transient, message: ""), now: start, random: 0)
    retry.skipPause()
    #expect(retry.permits(start, readerWaits: false) && retry.failures == 1)
  }

  // MARK: Generations

  private func identity(
    _ etag: String?, weak: Bool = false, _ modified: Int64?, _ size: Int64?, _ type: String? = nil
  ) -> GenerationCheck.Identity {
    GenerationCheck.Identity(
      validators: Validators(etag: etag, etagIsWeak: weak, lastModified: modified), size: size, mediaType: type)
  }

  @Test("Which answers are of the known generation")
  func generations() {
    let known = identity("\"a\"", 10, 100)
    let table: [(GenerationCheck.Identity, GenerationCheck.Verdict)] = [
      (known, .same),
      (identity("\"b\"", 10, 100), .different),
      (identity("\"a\"", 10, 101), .different),
      (identity("\"a\"", 11, 100), .same),  // a strong tag says all
      (identity(nil, 10, 100), .same),
      (identity(nil, 11, 100), .different),
      (identity("\"a\"", 10, nil), .same),
      (identity(nil, nil, 100), .different),  // it lost every validator
    ]
    for (found, verdict) in table { #expect(GenerationCheck.compare(found, with: known) == verdict, "\(found)") }
    let weak = identity("\"a\"", weak: true, nil, 100)
    #expect(GenerationCheck.compare(identity("\"a\"", weak: true, nil, 100), with: weak) == .same)
    #expect(GenerationCheck.compare(identity("\"b\"", weak: true, nil, 100), with: weak) == .different)
    let bare = identity(nil, nil, 100)
    #expect(GenerationCheck.compare(identity(nil, nil, 100), with: bare) == .same)
    #expect(GenerationCheck.compare(identity(nil, nil, 99), with: bare) == .different)
  }

  @Test("Only a second opinion of a third version has the next one asked where its redirect led")
  func redirectsOfOpinions() {
    var opinion = SecondOpinion()
    let (known, other, third) = (
      identity("\"1\"", nil, 100), identity("\"2\"", nil, 100), identity("\"3\"", nil, 100)
    )
    opinion.replaced(other, now: start)
    #expect(opinion.heard(other, isConfirmation: false, redirect: "a", now: start) == .ask && opinion.target == nil)
    // It was replaced a moment ago: six have to agree, by the name and not by one host.
    #expect(opinion.heard(other, isConfirmation: true, redirect: "b", now: start) == .wait && opinion.target == nil)
    #expect(opinion.heard(third, isConfirmation: true, redirect: "c", now: start) == .ask && opinion.target == "c")
    #expect(opinion.heard(third, isConfirmation: true, now: start) == .believe)
    opinion.superseded()
    #expect(opinion.target == nil)
    _ = opinion.heard(known, isConfirmation: true, redirect: "d", now: start)
    opinion.agreed()
    #expect(opinion.target == nil)
  }

  @Test("An origin that sent one version after the other, and is stable again, is believed again")
  func fickle() {
    var opinion = SecondOpinion()
    var verdict = SecondOpinion.Verdict.ask
    for version in 1...7 {
      verdict = opinion.heard(identity("\"\(version)\"", nil, 100), isConfirmation: false, now: start)
    }
    #expect(verdict == .fickle)
    let stable = identity("\"stable\"", nil, 100)
    #expect(opinion.heard(stable, isConfirmation: false, now: start) == .ask)
    #expect(opinion.heard(stable, isConfirmation: true, now: start) == .believe)
  }

  @Test("A page is no new version of media, nor media of a page; what is not told fits all")
  func types() {
    #expect(!GenerationCheck.compatible("video/mp4", "text/html"))
    #expect(!GenerationCheck.compatible("text/html", "audio/mpeg"))
    #expect(GenerationCheck.compatible("video/mp4", "video/webm"))
    #expect(GenerationCheck.compatible(nil, "text/html") && GenerationCheck.compatible("text/html", nil))
  }

  @Test("If-Range gets a strong tag, else a date, never a weak tag")
  func ifRange() {
    #expect(GenerationCheck.ifRange(for: Validators(etag: "\"a\"", etagIsWeak: false, lastModified: 0)) == "\"a\"")
    #expect(
      GenerationCheck.ifRange(for: Validators(etag: "\"a\"", etagIsWeak: true, lastModified: 784_111_777))
        == "Sun, 06 Nov 1994 08:49:37 GMT")
    #expect(GenerationCheck.ifRange(for: Validators(etag: "\"a\"", etagIsWeak: true, lastModified: nil)) == nil)
  }

  @Test(
    "Dates as HTTP writes them",
    arguments: [
      (Int64(0), "Thu, 01 Jan 1970 00:00:00 GMT"), (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
      (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"), (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
      (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"), (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
      (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
    ])
  func dates(seconds: Int64, text: String) { #expect(HTTPDate.format(seconds) == text) }

  @Test("A year that has not four digits is no date of HTTP, and no If-Range", arguments: [253_402_300_800, Int64.max])
  func noDate(seconds: Int64) {
    #expect(HTTPDate.format(seconds) == nil)
    #expect(GenerationCheck.ifRange(for: Validators(lastModified: seconds)) == nil)
  }

  @Test("The ring forgets what is older than it is long")
  func ring() {
    var pace = DownloadPace(seconds: 10)
    var now = Instant(nanoseconds: 5_000_000_000)
    pace.progressed(100, now: now)
    now = now.adding(seconds: 5)
    pace.progressed(50, now: now)
    #expect(pace.recentProgress(now: now) == 150)
    #expect(pace.recentProgress(now: now.adding(seconds: 5.5)) == 50)
    #expect(pace.recentProgress(now: now.adding(seconds: 1000)) == 0)
  }

  // MARK: Planner

  private func input(_ size: Int64 = 1 << 30) -> PlanInput {
    PlanInput(size: size, line: LineView(roundTrip: 0.1, rate: 2_000_000))
  }

  private func starts(_ steps: [PlanStep]) -> [(ByteRange, Purpose)] {
    steps.compactMap { step in
      if case .start(let range, let purpose) = step { (range, purpose) } else { nil }
    }
  }

  @Test("A demand is asked for from its first missing byte on, once, within the file")
  func demand() throws {
    var input = input()
    input.demands = [ByteRange(1000, 5000)]
    input.available = ByteRangeSet(ByteRange(0, 2000))
    let asked = starts(Planner.plan(input))
    let first = try #require(asked.first { $0.1 == .demand })
    #expect(first.0.start == 2000 && first.0.end >= 5000)
    input.transfers = [
      ActiveTransfer(id: TransferID(1), position: first.0.start, end: first.0.end, purpose: .demand)
    ]
    #expect(starts(Planner.plan(input)).allSatisfy { !$0.0.overlaps(first.0) })
    input.size = 3000
    input.transfers = []
    #expect(starts(Planner.plan(input)).allSatisfy { $0.0.end <= 3000 })
  }

  @Test("A demand waits for a transfer that is near, and not for one that is far behind")
  func waitOrAsk() {
    var input = input()
    let demand = ByteRange(500 << 20, (500 << 20) + 4096)
    input.demands = [demand]
    input.transfers = [
      ActiveTransfer(id: TransferID(1), position: demand.start - 1000, end: demand.end + 1000, purpose: .demand)
    ]
    #expect(!starts(Planner.plan(input)).contains { $0.1 == .demand })
    input.transfers[0].position = 0
    let steps = Planner.plan(input)
    #expect(steps.contains(.cancel(TransferID(1))))
    #expect(starts(steps).contains { $0.1 == .demand && $0.0.start == demand.start })
  }

  @Test("What is in front of a reader's furthest read is asked for before what lies behind it")
  func order() throws {
    var input = input()
    // Two windows of the kernel's read-ahead wait, behind what is in flight.
    let position: Int64 = 1200 << 10
    input.available = ByteRangeSet(ByteRange(0, 650 << 10))
    input.transfers = [ActiveTransfer(id: TransferID(1), position: 650 << 10, end: 720 << 10, purpose: .demand)]
    input.demands = [ByteRange(640 << 10, position)]
    input.readers = [ReaderView(position: position, length: position, rate: 1e5)]
    let first = try #require(starts(Planner.plan(input)).first)
    #expect(first.0.start == 720 << 10)
  }

  @Test("A continuation asks only when nobody waits, and only for holes")
  func continuation() {
    var input = input(10 << 20)
    input.continues = true
    input.available = ByteRangeSet(ByteRange(0, 4 << 20))
    let asked = starts(Planner.plan(input))
    #expect(!asked.isEmpty && asked.allSatisfy { $0.1 == .continuation && $0.0.start >= 4 << 20 })
    input.demands = [ByteRange(8 << 20, (8 << 20) + 10)]
    #expect(!starts(Planner.plan(input)).contains { $0.1 == .continuation })
    input.demands = []
    input.available = ByteRangeSet(ByteRange(0, 10 << 20))
    #expect(Planner.plan(input).isEmpty)
  }

  @Test("A looker gets little, however long it has read; a player more, the longer")
  func allowances() {
    let input = input()
    func reader(_ length: Int64, _ isLooker: Bool) -> Int64 {
      Planner.allowance(
        of: ReaderView(position: length, length: length, rate: 1_000_000, isLooker: isLooker), input)
    }
    #expect(reader(100 << 20, true) <= max(Planner.lookAhead, 2 * 200_000))
    #expect(reader(100 << 20, false) > reader(0, false))
    var last: Int64 = 0
    for length in stride(from: Int64(0), to: 100 << 20, by: 1 << 20) {
      let now = reader(length, false)
      #expect(now >= last && now <= Planner.largestAhead)
      last = now
    }
  }

  @Test("Who reads on from the head has a round trip's bytes on the way, unless responses pause")
  func readsOn() {
    let (head, parked) = (Planner.headLength, ByteRange(192 << 10, 320 << 10))
    var input = PlanInput(size: 1 << 30, line: LineView(roundTrip: 0.06, rate: 4e6))
    input.available.insert(ByteRange(0, parked.start))
    input.demands = [ByteRange(parked.start, head)]
    input.readers = [ReaderView(position: parked.end, length: parked.end, rate: 1e6)]
    input.transfers = [ActiveTransfer(id: TransferID(1), position: parked.start, end: head, purpose: .demand)]
    func asked() -> ByteRange? {
      for case .start(let range, .playAhead) in Planner.plan(input) { return range }
      return nil
    }
    #expect(asked() == nil, "its answer may be late")
    input.transfers[0].hasBegun = true
    // It may jump from the head: it gets no more at once.
    #expect(asked() == ByteRange(head, 2 * head))
    input.line.hasPauses = true
    #expect(asked() == nil)
    input.transfers[0].rate = 1e6
    #expect(asked() == ByteRange(head, 2 * head))
    // One that began elsewhere has jumped already.
    input.line.hasPauses = false
    input.readers[0].length -= 4096
    #expect(asked() == ByteRange(head, parked.end + 2 * head))
    // A read of a whole read-ahead may be all that it wants.
    (input.readers[0].position, input.readers[0].length) = (head, head)
    #expect(asked() == ByteRange(head, head + Planner.lookAhead))
    input.transfers[0].rate = nil
    #expect(asked() == nil)
    input.readers[0].length = parked.end
    input.readers[0].isLooker = true
    #expect(asked() == nil)
  }

  @Test("Who may be done after its first read gets no more before it reads on; who has read on, or plays, does")
  func mayBeOver() {
    var input = PlanInput(size: 1 << 30, line: LineView(roundTrip: 0.06, rate: 4e6))
    input.available.insert(ByteRange(0, 128 << 10))
    input.readers = [ReaderView(position: 128 << 10, length: 128 << 10, rate: 1e6)]
    #expect(!starts(Planner.plan(input)).isEmpty)
    input.readers[0].mayBeOver = true
    #expect(Planner.plan(input).isEmpty)
    input.readers[0].isPaced = true
    #expect(!starts(Planner.plan(input)).isEmpty)
    input.readers[0].isPaced = false
    (input.readers[0].position, input.readers[0].length) = (192 << 10, 192 << 10)
    input.available.insert(ByteRange(0, 192 << 10))
    #expect(!starts(Planner.plan(input)).isEmpty)
  }

  @Test("A player that jumps asks at once for what it plays until the next request is answered, and no more")
  func jumpOfAPlayer() {
    var input = PlanInput(size: 1 << 30, line: LineView(roundTrip: 0.3, rate: 3.45e6))
    input.demands = [ByteRange(at: 512 << 20, count: 64 << 10)]
    input.readers = [ReaderView(position: input.demands[0].start, length: 0, rate: 1.5e6)]
    input.readers[0].claim = .urgent
    func asked() -> Int64 { starts(Planner.plan(input)).reduce(0) { $0 + $1.0.count } }
    let demand = asked()
    #expect(demand <= Planner.headLength, "its pace is not known")
    input.readers[0].isPaced = true
    #expect(asked() == Int64(0.3 * 3.45e6), "a round trip brings no more")
    input.line.rate = 20e6
    #expect(asked() == Int64(0.8 * 1.5e6))
    input.line.roundTrip = 0.01
    #expect(asked() <= Planner.headLength, "it waits for the first byte")
    (input.line.roundTrip, input.line.hasSmallWindows) = (0.3, true)
    #expect(asked() <= Planner.headLength)
  }

  @Test("Who shares a fast line gets a copy's windows only once it has read much")
  func passesBy() throws {
    var line = LineView(roundTrip: 0.001, rate: 400e6)
    line.hasOthers = true
    var input = PlanInput(size: 1 << 30, line: line)
    input.demands = [ByteRange(512 << 20, (512 << 20) + 4096)]
    input.readers = [ReaderView(position: input.demands[0].end, length: 4096, rate: 1e6)]
    input.readers[0].claim = .share
    let little = try #require(starts(Planner.plan(input)).first)
    #expect(little.1 == .shared && little.0.count <= Planner.lookAhead, "\(little)")
    input.readers[0].length = Planner.provenLength
    let much = try #require(starts(Planner.plan(input)).first)
    #expect(much.0.count > 1 << 20, "\(much)")
  }

  @Test("While a body comes as a whole nothing else is asked for")
  func streams() {
    var input = input()
    var stream = ActiveTransfer(id: TransferID(1), position: 1000, end: input.size, purpose: .demand)
    stream.isStream = true
    input.transfers = [stream]
    input.continues = true
    input.demands = [ByteRange(5000, 6000)]
    #expect(Planner.plan(input).isEmpty)
  }

  @Test("Read-ahead at a place that its reader left waits until nothing comes for the reader's new place")
  func abandonedReads() {
    var input = input()
    input.abandonedReads = [ByteRange(at: 256 << 10, count: 128 << 10)]
    #expect(starts(Planner.plan(input)).contains { $0.0.start == 256 << 10 })
    input.transfers = [
      ActiveTransfer(id: TransferID(1), position: 600 << 20, end: 600 << 20 + 256 << 10, purpose: .demand)
    ]
    #expect(starts(Planner.plan(input)).isEmpty)
    input.transfers[0].purpose = .continuation
    #expect(starts(Planner.plan(input)).contains { $0.0.start == 256 << 10 })
  }

  @Test("Over one connection of HTTP/2 a reader's windows are small, and hold little more than a round trip's bytes")
  func overOneConnection() {
    func lengths(_ change: (inout PlanInput) -> Void = { _ in }) -> [Int64] {
      var input = PlanInput(size: 1 << 30, line: LineView(roundTrip: 0.06, rate: 4e6))
      input.line.fillsOneConnection = true
      input.available.insert(ByteRange(0, 8 << 20))
      input.readers = [ReaderView(position: 8 << 20, length: 8 << 20, rate: 4e6)]
      change(&input)
      return Planner.plan(input).compactMap { if case .start(let range, .playAhead) = $0 { range.count } else { nil } }
    }
    let small = lengths()
    #expect(small.allSatisfy { $0 <= 80_000 } && (240_000...320_000).contains(small.reduce(0, +)), "\(small)")
    let large: Int64 = 1_000_000
    #expect(lengths { $0.line.fillsOneConnection = false } == [large])
    let first = lengths {
      $0.readers[0].length = Planner.provenLength - 1
      $0.available = ByteRangeSet()
      $0.available.insert(ByteRange(7 << 20, 8 << 20))
    }
    #expect(first.first.map { $0 > 80_000 } ?? false, "\(first)")
    let slow = lengths { $0.slowConnections = .init(rate: 1e6, count: 4) }
    #expect(slow.count == 4 && slow.allSatisfy { $0 > 80_000 }, "\(slow)")
  }
}
