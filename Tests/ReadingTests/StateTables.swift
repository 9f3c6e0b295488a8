import Base
import Storing
import Testing

@testable import Reading

/// Who reads a file, and what is held of it: reads in, decisions out.
@Suite struct StateTables {
  private let start = Instant(nanoseconds: 1_000_000_000)
  private func at(_ seconds: Double) -> Instant { start.adding(seconds: seconds) }
  private func known(_ size: Int64, stored: ByteRange...) -> Content.Guarded {
    var held = FileState(beginning: .of(size), file: Self.file)
    for range in stored { _ = held.landed(range, in: Self.file, now: start) }
    return Content.Guarded(held: held)
  }
  /// A file that is never read.
  private static let file = ServedFile.untouched
  private func ticket(_ number: UInt) -> Ticket { Ticket(rawValue: number) }

  @Test(
    "A read of a known length",
    arguments: [
      (0, 10, Waiters.ReadDecision.hit(10)), (90, 20, .hit(10)), (100, 5, .hit(0)), (1000, 5, .hit(0)),
      (0, 0, .hit(0)), (45, 10, .park), (50, 1, .park), (49, 1, .hit(1)), (60, 40, .hit(40)),
    ])
  func reads(offset: Int64, count: Int, expected: Waiters.ReadDecision) {
    var state = known(100, stored: ByteRange(0, 50), ByteRange(60, 100))
    #expect(state.read(at: offset, count: count, ticket: ticket(1), process: 1, now: start) == expected)
    #expect(state.waiters.parkedReads.count == (expected == .park ? 1 : 0))
  }

  @Test("What landed releases the reads that are whole, and no others")
  func releases() {
    var state = known(100)
    for (number, offset) in [(UInt(1), Int64(0)), (2, 10), (3, 25)] {
      _ = state.read(at: offset, count: 10, ticket: ticket(number), process: 1, now: start)
    }
    for (landed, released) in [
      (ByteRange(0, 10), ticket(1)), (ByteRange(10, 30), ticket(2)), (ByteRange(30, 40), ticket(3)),
    ] {
      let reads = state.landed(landed, in: Self.file, now: start)?.released
      #expect(reads?.map(\.ticket) == [released])
    }
    #expect(state.waiters.isEmpty && state.held.claim == .behind)
  }

  @Test("A read that waits behind the end is answered when the end is known")
  func clamps() {
    var state = Content.Guarded(held: FileState(beginning: .of(nil), file: Self.file))
    _ = state.read(at: 0, count: 100, ticket: ticket(1), process: 1, now: start)
    _ = state.read(at: 200, count: 100, ticket: ticket(2), process: 1, now: start)
    #expect(state.landed(ByteRange(0, 60), in: Self.file, now: start)?.released.isEmpty == true)
    #expect(state.held.ended(at: 60)?.size == 60)
    #expect(state.waiters.clampReads(state.held).map(\.range.count) == [60, 0])
    #expect(state.held.isWhole)
  }

  @Test("A superseded generation gives what is stored, and ESTALE for the rest")
  func superseded() {
    var state = known(100, stored: ByteRange(0, 50))
    state.held.superseded()
    #expect(state.read(at: 0, count: 50, ticket: ticket(1), process: 1, now: start) == .hit(50))
    #expect(state.read(at: 40, count: 20, ticket: ticket(2), process: 1, now: start) == .fail(.stale))
  }

  @Test("Who comes while a failure is fresh is told at once; later they wait again; what is stored is always there")
  func refusal() {
    var state = known(100, stored: ByteRange(0, 50))
    _ = state.read(at: 60, count: 1, ticket: ticket(1), process: 1, now: start)
    #expect(state.waiters.refuse(.io, until: at(5)).reads.map(\.ticket) == [ticket(1)])
    #expect(state.read(at: 60, count: 1, ticket: ticket(2), process: 1, now: at(4)) == .fail(.io))
    #expect(state.read(at: 0, count: 1, ticket: ticket(3), process: 1, now: at(4)) == .hit(1))
    #expect(state.read(at: 60, count: 1, ticket: ticket(4), process: 1, now: at(5)) == .park)
    state.waiters.clearRefusal()
    #expect(state.read(at: 70, count: 1, ticket: ticket(5), process: 1, now: at(1)) == .park)
  }

  @Test("A stall ends the wait of its run alone, and the page that is asked for again")
  func expires() {
    var state = known(100 << 20)
    let far: Int64 = 50 << 20
    _ = state.read(at: 0, count: 4096, ticket: ticket(1), process: 1, now: start)
    _ = state.read(at: 4096, count: 4096, ticket: ticket(2), process: 1, now: at(5))
    _ = state.read(at: far, count: 4096, ticket: ticket(3), process: 1, now: at(5))
    #expect(state.waiters.expire(at(9), timeout: 10, shunning: 1).reads.isEmpty)
    #expect(Set(state.waiters.expire(at(10), timeout: 10, shunning: 1).reads.map(\.ticket)) == [ticket(1), ticket(2)])
    #expect(state.read(at: 0, count: 512, ticket: ticket(4), process: 1, now: at(10.5)) == .fail(.timedOut))
    #expect(state.read(at: far + 4096, count: 512, ticket: ticket(5), process: 1, now: at(10.5)) == .park)
    #expect(state.read(at: 0, count: 512, ticket: ticket(6), process: 1, now: at(11.5)) == .park)
  }

  @Test("Bytes towards a read put its deadline off, by as much as they are worth, and never beyond a whole one")
  func progress() {
    var state = known(100 << 20)
    _ = state.read(at: 1 << 20, count: 4096, ticket: ticket(1), process: 1, now: start)
    state.waiters.progressed(1 << 20, from: 0, to: 2 << 20, now: at(8))
    #expect(state.waiters.expire(at(17.9), timeout: 10, shunning: 1).reads.isEmpty)
    #expect(state.waiters.expire(at(18.1), timeout: 10, shunning: 1).reads.count == 1)
    _ = state.read(at: 1 << 20, count: 4096, ticket: ticket(2), process: 1, now: at(20))
    state.waiters.progressed(1 << 20, from: 3 << 20, to: 4 << 20, now: at(29))  // another reader's
    state.waiters.progressed(1 << 20, from: 0, to: 1 << 19, now: at(29))  // ends before it gets there
    state.waiters.progressed(512, from: 0, to: 2 << 20, now: at(29))  // half a second's worth
    #expect(state.waiters.expire(at(30.1), timeout: 10, shunning: 1).reads.isEmpty)
    #expect(state.waiters.expire(at(30.6), timeout: 10, shunning: 1).reads.count == 1)
  }

  @Test("Bytes for a read put off the deadline of the read-ahead behind it too, of the same process alone")
  func readAhead() {
    var state = known(100 << 20)
    for (place, process) in [(0, 1), (1, 1), (2, 2)] as [(Int64, Int32)] {
      _ = state.read(at: place << 16, count: 1 << 16, ticket: ticket(UInt(place)), process: process, now: start)
    }
    state.waiters.progressed(8192, from: 0, to: 16384, now: at(8))  // eight seconds' worth
    #expect(state.waiters.expire(at(10.1), timeout: 10, shunning: 1).reads.map(\.ticket) == [ticket(2)])
    #expect(state.waiters.expire(at(17.9), timeout: 10, shunning: 1).reads.isEmpty)
    #expect(state.waiters.expire(at(18.1), timeout: 10, shunning: 1).reads.count == 2)
    // The kernel reads ahead, while the reader still waits for bytes far before that.
    for place in [Int64(0), 1 << 20] {
      _ = state.read(at: place, count: 1 << 16, ticket: ticket(UInt(3 + place)), process: 1, now: at(20))
    }
    state.waiters.progressed(8192, from: 0, to: 16384, now: at(28))
    #expect(state.waiters.expire(at(37.9), timeout: 10, shunning: 1).reads.isEmpty)
  }

  @Test("A later read far away shows that its process has left the place of an earlier one")
  func leaves() {
    let read = { (place: Int64, process: Int32, second: Double) in
      ParkedRead(ticket: ticket(1), range: ByteRange(at: place, count: 4096), since: at(second), process: process)
    }
    let first = read(0, 1, 0)
    #expect(read(8 << 20, 1, 1).leaves(first) && !first.leaves(read(8 << 20, 1, 1)))
    #expect(!read(1 << 20, 1, 1).leaves(first), "the kernel reads ahead")
    #expect(!read(8 << 20, 2, 1).leaves(first) && !read(8 << 20, 0, 1).leaves(read(0, 0, 0)))
  }

  @Test("Each ticket is given back once, whoever takes it")
  func takes() {
    var state = Content.Guarded()
    _ = state.waiters.probe(ParkedProbe(ticket: ticket(1), kind: .open, inode: 5, since: start, process: 7))
    _ = state.read(at: 0, count: 1, ticket: ticket(2), process: 7, now: start)
    _ = state.read(at: 9, count: 1, ticket: ticket(3), process: 8, now: start)
    let taken = [state.waiters.take(ticket(1)), state.waiters.take(ticket(1))]
    #expect(taken == [true, false])
    #expect(state.waiters.takeReads { $0 == 7 }.map(\.ticket) == [ticket(2)])
    let again = state.waiters.take(ticket(2))
    #expect(!again)
    _ = state.held.identified(.of(5), file: Self.file)
    #expect(state.waiters.identified(state.held).reads.map(\.ticket) == [ticket(3)])
    #expect(state.waiters.isEmpty && state.waiters.oldestWait == nil)
  }

  @Test("The window in memory is bounded, gives what came last, and keeps what is waited for")
  func window() {
    var window = MemoryWindow()
    let piece = [UInt8](repeating: 7, count: 256 << 10)
    let length = Int64(piece.count)
    var position: Int64 = 0
    let waited = [ByteRange(0, 10)]
    for _ in 0..<40 {
      let fits = window.makeSpace(for: length, keeping: waited)
      #expect(fits)
      piece.withUnsafeBytes { window.insert($0, at: position) }
      position += length
      #expect(window.count <= MemoryWindow.most)
    }
    #expect(window.ranges.contains(ByteRange(0, length)))
    #expect(window.ranges.contains(ByteRange(position - 1, position)))
    let fits = window.makeSpace(for: length, keeping: [ByteRange(0, position)])
    #expect(!fits)
    var bytes = [UInt8](repeating: 0, count: 100)
    bytes.withUnsafeMutableBytes { window.copy(into: $0, at: position - 50) }
    #expect(bytes == [UInt8](repeating: 7, count: 50) + [UInt8](repeating: 0, count: 50))
  }

  @Test(
    "Reads in any order within the kernel's read-ahead are one run; far ones are others; the oldest place is given up")
  func runs() {
    var runs = ReaderRuns()
    let step: Int64 = 128 << 10
    for index in [0, 2, 1, 3, 5, 4] as [Int64] {
      runs.note(offset: index * step, count: step, process: 1, now: at(Double(index)))
    }
    #expect(runs.runs.count == 1)
    #expect(runs.runs[0].position == 6 * step && runs.runs[0].length == 6 * step)
    for index in 1...(ReaderRuns.most + 2) {
      runs.note(offset: Int64(index) * 100 << 20, count: step, process: 2, now: at(100 + Double(index)))
    }
    #expect(runs.runs.count == ReaderRuns.most)
    #expect(!runs.runs.contains { $0.position == 6 * step })
  }

  @Test("A reader that comes back after a while, to another place of a small file, plays anew")
  func anew() {
    var runs = ReaderRuns()
    runs.note(offset: 1 << 20, count: 65536, process: 1, now: start)
    runs.note(offset: 0, count: 65536, process: 1, now: at(ReaderRuns.longestPause - 1))
    #expect(runs.runs.count == 1)
    runs.note(offset: 1 << 20 + 65536, count: 65536, process: 1, now: at(3 * ReaderRuns.longestPause))
    #expect(runs.runs.count == 1)
    runs.note(offset: 0, count: 65536, process: 1, now: at(5 * ReaderRuns.longestPause))
    #expect(runs.runs.map(\.start) == [0, 0] && runs.runs.last?.position == 65536)
  }

  @Test("A reader that got an answer may be done until it reads on, or for a moment after the last one")
  func mayBeOver() throws {
    var runs = ReaderRuns()
    let (first, second) = (ByteRange(0, 65536), ByteRange(65536, 131072))
    for range in [first, second] { runs.note(offset: range.start, count: range.count, process: 1, now: start) }
    func mayBeOver(isParked: Bool, at second: Double) -> Bool { runs.runs[0].mayBeOver(isParked: isParked, at(second)) }
    #expect(!mayBeOver(isParked: true, at: 0.1), "it waits")
    runs.answered(first, now: at(0.1))
    #expect(mayBeOver(isParked: true, at: 0.5), "the kernel's read-ahead is on its way")
    #expect(!mayBeOver(isParked: false, at: 0.5))
    runs.answered(second, now: at(0.5))
    #expect(mayBeOver(isParked: false, at: 0.505) && !mayBeOver(isParked: false, at: 0.52))
    runs.note(offset: second.end, count: 65536, process: 1, now: at(0.506))
    #expect(!mayBeOver(isParked: true, at: 0.507))
  }

  @Test("Playing shows in a long run, in paced reading, or in half of a small file")
  func players() {
    var long = ReaderRuns()
    var position: Int64 = 0
    while position < ReaderRuns.playedLength {
      #expect(long.player(size: 1 << 30, now: start) == nil)
      long.note(offset: position, count: 1 << 20, process: 4, now: start)
      position += 1 << 20
    }
    #expect(long.player(size: 1 << 30, now: start) == 4)
    // A window of the kernel's read-ahead may come from its end on: all of it is read in sequence.
    var turned = ReaderRuns()
    for window in stride(from: Int64(0), to: ReaderRuns.playedLength, by: 256 << 10) {
      for part in [3, 0, 2, 1] as [Int64] {
        turned.note(offset: window + part << 16, count: 1 << 16, process: 4, now: start)
      }
    }
    #expect(turned.player(size: 1 << 30, now: start) == 4)
    // Skipping through a file, or reading the same again, is not.
    var skipping = ReaderRuns()
    for index in 0..<Int64(1000) { skipping.note(offset: index << 20, count: 4096, process: 4, now: start) }
    #expect(skipping.player(size: 1 << 30, now: start) == nil)
    var again = ReaderRuns()
    for _ in 0..<1000 { again.note(offset: 5 << 20, count: 1 << 16, process: 4, now: start) }
    #expect(again.player(size: 1 << 30, now: start) == nil)
    var paced = ReaderRuns()
    for second in 0...Int(ReaderRuns.playedSeconds) {
      paced.note(offset: Int64(second) * 65536, count: 65536, process: 5, now: at(Double(second)))
    }
    #expect(paced.player(size: 1 << 30, now: at(ReaderRuns.playedSeconds)) == 5)
    // The kernel may have read ahead for seconds of it. Who has not come back for a while may be gone.
    for (last, isPlayer) in [(ReaderRuns.playedSeconds * 0.6, true), (1, false)] {
      var ahead = ReaderRuns()
      ahead.note(offset: 0, count: 300_000, process: 5, now: start)
      ahead.note(offset: 300_000, count: 300_000, process: 5, now: at(last))
      #expect(ahead.player(size: 1 << 30, now: at(ReaderRuns.playedSeconds - 0.1)) == nil)
      #expect((ahead.player(size: 1 << 30, now: at(ReaderRuns.playedSeconds)) == 5) == isPlayer)
    }
    var paused = ReaderRuns()
    paused.note(offset: 0, count: 300_000, process: 6, now: start)
    paused.note(offset: 300_000, count: 65536, process: 6, now: at(ReaderRuns.longestPause + ReaderRuns.playedSeconds))
    #expect(paused.player(size: 1 << 30, now: at(ReaderRuns.longestPause + ReaderRuns.playedSeconds)) == nil)
    var small = ReaderRuns()
    small.note(offset: 0, count: 1000, process: 7, now: start)
    #expect(small.player(size: 2001, now: start) == nil && small.player(size: 2000, now: start) == 7)
  }
}
