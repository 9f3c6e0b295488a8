import Base

/// Runs (sequences of reads) in one resource, recognized from single reads.
///
/// Runs are told apart by offset, not by handle: a media server opens, reads and closes for every chunk, and the
/// kernel's read-ahead of one handle arrives out of order. Each resource keeps its last few runs; nothing allocates
/// after the first reads.
struct ReaderRuns: Sendable {
  /// One sequence of reads.
  struct Run: Sendable {
    /// Its first byte.
    var start: Int64
    /// Where the next read is expected.
    var position: Int64
    /// Bytes read, those read twice counted twice.
    var bytes: Int64
    var firstRead: Instant
    /// When its first read came. Unlike ``firstRead`` no pause changes it.
    let began: Instant
    var lastRead: Instant
    /// When the last of its reads that had to wait was answered.
    var lastAnswer: Instant?
    /// The process that read last.
    var process: Int32
    /// Tells it from the file's other runs, also those that are no longer kept.
    let number: UInt64
    /// The bytes of its largest read.
    var largest: Int64 = 0
    /// How fast it reads.
    var pace = RecentRate(slice: 4)

    /// Bytes read in sequence. The parts of a read-ahead window arrive in any order; bytes that were skipped or read
    /// twice do not count.
    var length: Int64 { min(bytes, position - start) }

    /// Whether its reader has read nothing since its last answer, and may have closed the file. The kernel tells of a
    /// close only when its read-ahead is answered too. So this holds while a read of the run waits (`isParked`), and
    /// for a moment after the last answer.
    func mayBeOver(isParked: Bool, _ now: Instant) -> Bool {
      guard let lastAnswer, lastAnswer > lastRead else { return false }
      return isParked || now.seconds(since: lastAnswer) < Self.moment
    }
    /// Seconds in which the kernel tells of a close.
    private static let moment = 0.01
  }

  /// How many runs are kept. With more readers than this on one file, a new run replaces the one idle for longest.
  static let most = 8
  /// How far a read may be from the expected place, in bytes: the kernel's read-ahead window arrives in any order.
  static let slack: Int64 = 2 << 20
  /// A pause longer than this, in seconds, starts the clock of a run's reading again.
  static let longestPause = 8.0
  /// A reader rests if it has read nothing for so many seconds, though enough bytes are stored for it.
  static let rest = 0.5
  /// For how many seconds after a read the reader of an open file may come back and jump.
  static let longestVisit = 60.0
  /// Evidence of playing: this many bytes in sequence …
  static let playedLength: Int64 = 8 << 20
  /// … or reading for this many seconds without a longer pause …
  static let playedSeconds = 10.0
  /// … or half of a file smaller than this.
  static let smallFile: Int64 = 4 << 20

  private(set) var runs: [Run] = []
  /// The last runs of processes that have ended.
  private(set) var gone: [Run] = []
  /// The start of the newest read, where the background download looks for the next hole.
  private(set) var latest: Int64 = 0
  /// The number of the last run.
  private var lastNumber: UInt64 = 0

  init() { runs.reserveCapacity(Self.most) }

  /// Forgets all but the numbers: what is kept of a former run is not another one's.
  mutating func forget() { (runs, gone, latest) = ([], [], 0) }

  /// Notes a read of `count` bytes at `offset`.
  mutating func note(offset: Int64, count: Int64, process: Int32, now: Instant) {
    latest = offset
    let end = offset + count
    if let index = nearest(ByteRange(offset, offset)), continues(runs[index], at: offset, now) {
      let position = runs[index].position
      runs[index].bytes += count
      runs[index].largest = max(runs[index].largest, count)
      runs[index].start = min(runs[index].start, offset)
      runs[index].position = max(position, end)
      if now.seconds(since: runs[index].lastRead) > Self.longestPause { runs[index].firstRead = now }
      runs[index].lastRead = now
      runs[index].process = process
      runs[index].pace.note(count, now: now)
      return
    }
    lastNumber += 1
    var run = Run(
      start: offset, position: end, bytes: count, firstRead: now, began: now, lastRead: now, process: process,
      number: lastNumber, largest: count)
    run.pace.note(count, now: now)
    if runs.count < Self.most {
      runs.append(run)
    } else if let oldest = runs.indices.min(by: { runs[$0].lastRead < runs[$1].lastRead }) {
      runs[oldest] = run
    }
  }

  /// Whether a read at `offset` goes on with `run`. A reader that was away for long and comes back to another place
  /// plays anew, also in a small file, of which every place is near.
  private func continues(_ run: Run, at offset: Int64, _ now: Instant) -> Bool {
    now.seconds(since: run.lastRead) <= Self.longestPause || abs(offset - run.position) <= Planner.lookAhead
  }

  /// `process` ended while it waited: it has no place any more.
  mutating func ended(_ process: Int32) {
    guard process > 0 else { return }
    gone = (gone + runs.filter { $0.process == process }).suffix(Self.most)
    runs.removeAll { $0.process == process }
  }

  /// A read of `range` that had to wait was answered.
  mutating func answered(_ range: ByteRange, now: Instant) {
    if let index = nearest(range) { runs[index].lastAnswer = now }
  }

  /// The run that a read of `range` belongs to.
  func run(of range: ByteRange) -> Run? { nearest(range).map { runs[$0] } }

  /// The run whose expected place is nearest to `range`; nil when all are too far.
  private func nearest(_ range: ByteRange) -> Int? {
    var (nearest, least) = (nil as Int?, Self.slack + 1)
    for index in runs.indices {
      let position = runs[index].position
      let distance = max(range.start - position, position - range.end, 0)
      if distance < least { (nearest, least) = (index, distance) }
    }
    return nearest
  }

  /// Whether the reader of `run` has gone on elsewhere: it began another run after its last read here, or read there
  /// last and was here only for a moment. (A reader that takes turns between two places comes back to both.) Processes
  /// in another PID namespace all have the number 0: nothing is known of them.
  func wentOn(from run: Run) -> Bool {
    run.process > 0
      && runs.contains {
        $0.process == run.process && $0.lastRead > run.lastRead
          && ($0.firstRead > run.lastRead || run.length < Planner.provenLength)
      }
  }

  /// The most bytes that a reader takes at one place, if it jumps from place to place; nil if the reader of `run` does
  /// not. Three other places, of which it read little each, show that it does.
  func taken(besides run: Run) -> Int64? {
    guard run.process > 0, run.length <= Self.longestStop else { return nil }
    var most: Int64 = 0
    var stops = 0
    for other in runs where other.process == run.process && other.start != run.start {
      if other.length > Self.longestStop { return nil }
      most = max(most, other.length)
      stops += 1
    }
    return stops < 3 ? nil : most
  }
  private static let longestStop: Int64 = 128 << 10

  /// The process whose run shows that the file is being played; nil while none does. `size` in bytes. Only runs that
  /// began later than `start` show it.
  func player(size: Int64, after start: Instant? = nil, now: Instant) -> Int32? {
    runs.first { run in
      if let start, run.began <= start { return false }
      return run.length >= Self.playedLength
        // The kernel reads ahead for seconds of a film: what counts is that the reader came back.
        || (now.seconds(since: run.firstRead) >= Self.playedSeconds && run.length >= Planner.lookAhead
          && now.seconds(since: run.lastRead) < Self.longestPause
          && run.lastRead.seconds(since: run.firstRead) >= Self.playedSeconds / 2)
        || (size < Self.smallFile && run.length * 2 >= size)
    }?.process
  }
}
