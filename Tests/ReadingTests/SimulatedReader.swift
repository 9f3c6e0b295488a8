import Base
import Glibc

import Reading

/// A file handle as the kernel keeps one: a page cache, and read-ahead that asks for more than the program reads.
///
/// The rules are those of Linux's `ondemand_readahead` (mm/readahead.c): a window that doubles up to the device's
/// read-ahead, asked for when the reader comes to the mark within the last one.
final class SimulatedHandle {
  /// The device's read-ahead, and the most that one READ asks for, in bytes.
  static let readAhead: Int64 = 256 << 10
  static let mostRead: Int64 = 64 << 10

  private let bench: Bench
  private let inode: Inode
  private let size: Int64
  private var cached = ByteRangeSet()
  private var asked: [(ticket: Ticket, range: ByteRange)] = []
  private var window = ByteRange(0, 0)
  private var mark: Int64 = -1
  private var last: Int64 = -1
  /// How many reads ended with an error.
  private(set) var errors = 0

  private let process: Int32

  init(_ bench: Bench, _ inode: Inode, size: Int64, process: Int32 = getpid()) {
    self.process = process
    self.bench = bench
    self.inode = inode
    self.size = size
  }

  /// Takes in what came. An error leaves its pages out.
  func poll() {
    asked.removeAll { item in
      guard let reply = bench.port.take(item.ticket) else { return false }
      if case .data = reply { cached.insert(item.range) } else { errors += 1 }
      return true
    }
  }

  /// Whether the pages of `range` are there.
  func has(_ range: ByteRange) -> Bool { cached.contains(range) }

  /// A program begins to read `range`: asks for what is missing, and ahead.
  func begin(_ range: ByteRange) {
    let covered = asked.reduce(into: cached) { $0.insert($1.range) }
    if covered.contains(range) {
      if range.contains(mark) { advance() }
    } else if range.start == 0 || range.start == last {
      if window.count > 0, range.start == window.end {
        advance()
      } else {
        let first = min(Self.readAhead, range.count <= Self.readAhead / 4 ? 2 * range.count : Self.readAhead)
        window = ByteRange(at: range.start, count: first)
        mark = first > range.count ? range.end : range.start
        ask(window)
      }
    } else {
      // Anywhere else: just what is read.
      ask(range)
    }
    last = range.end
  }

  /// Reads `range`; whether it came within five seconds.
  func wait(for range: ByteRange) -> Bool {
    begin(range)
    return bench.run(until: 5, step: 0.001) {
      poll()
      return has(range)
    }
  }

  private func advance() {
    let next = min(Self.readAhead, window.count * (window.count <= Self.readAhead / 16 ? 4 : 2))
    window = ByteRange(at: window.end, count: next)
    mark = window.start
    ask(window)
  }

  private func ask(_ range: ByteRange) {
    let covered = asked.reduce(into: cached) { $0.insert($1.range) }
    let whole = ByteRange(min(range.start, size), min(range.end, size))
    var position = whole.start
    var parts: [ByteRange] = []
    while let gap = covered.firstGap(in: ByteRange(position, whole.end)) {
      let part = ByteRange(gap.start, min(gap.end, gap.start + Self.mostRead))
      parts.append(part)
      position = part.end
    }
    // A server with several threads sees them in any order.
    for part in parts.reversed() {
      asked.append((bench.read(inode, part.start, Int(part.count), process: process), part))
    }
  }
}

/// A player: reads in chunks, at a rate, at most a second ahead of what it shows; jumps; notes when a chunk is late.
final class SimulatedPlayer {
  struct Jump {
    /// The second of the medium, and where the reading goes on.
    var second: Double
    var offset: Int64
  }
  static let chunk: Int64 = 64 << 10
  static let shownAfter = 0.2
  static let ahead = 1.0

  private let handle: SimulatedHandle
  private let rate: Double
  private let allowed: Double
  private var jumps: [Jump]
  private var offset: Int64 = 0
  /// Bytes read since the last jump.
  private var fed: Int64 = 0
  private var first: Int64
  private var beganAt: Instant
  /// When the medium's second 0 would have been shown; nil while it waits to begin.
  private var shift: Instant?
  private var shownFrom = 0.0
  private var isStart = true
  private var isReading = false
  private(set) var started: Double?
  private(set) var waits: [(second: Double, seconds: Double)] = []

  /// The time a jump may take is the round trip, and the first bytes at the line's rate, and 15 %.
  init(_ handle: SimulatedHandle, rate: Double, line: Double, roundTrip: Double, jumps: [Jump], now: Instant) {
    self.handle = handle
    self.rate = rate
    self.jumps = jumps
    first = Int64((Self.shownAfter * rate / Double(Self.chunk)).rounded(.up)) * Self.chunk
    allowed = 1.15 * (roundTrip + Double(first) / line)
    beganAt = now
  }

  /// What came later than it was due, in seconds.
  var stalls: [(second: Double, seconds: Double)] { waits }

  func move(_ now: Instant) {
    handle.poll()
    while step(now) {}
  }

  /// The second of the medium up to which it has read.
  var have: Double { shownFrom + Double(fed) / rate }

  private func step(_ now: Instant) -> Bool {
    if let shift, let jump = jumps.first, now.seconds(since: shift) >= jump.second, !isReading {
      jumps.removeFirst()
      offset = jump.offset
      fed = 0
      shownFrom = jump.second
      self.shift = nil
      beganAt = now
      return true
    }
    let next = ByteRange(at: offset + fed, count: Self.chunk)
    if !isReading {
      if let shift {
        // A second ahead, and not beyond the next jump: it is told then where to go on.
        if now.seconds(since: shift) < have - Self.ahead { return false }
        if let jump = jumps.first, have >= jump.second { return false }
      }
      handle.begin(next)
      isReading = true
    }
    guard handle.has(next) else { return false }
    isReading = false
    if let shift {
      let late = now.seconds(since: shift) - have
      if late > 0 {
        waits.append((have, late))
        self.shift = shift.adding(seconds: late)
      }
    }
    fed += Self.chunk
    if shift == nil, fed >= first {
      let waited = now.seconds(since: beganAt)
      if isStart {
        started = waited
        isStart = false
      } else if waited > allowed {
        waits.append((shownFrom, waited - allowed))
      }
      shift = now.adding(seconds: -shownFrom)
    }
    return true
  }
}
