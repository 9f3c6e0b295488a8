import Base
import Fetching
import Storing
import Testing

@testable import Reading

/// What the sum of what connections bring says of each, and what is noted of a host.
@Suite struct LaneTables {
  private let start = Instant(nanoseconds: 1_000_000_000)

  /// What comes for `seconds` over `flowing(second)` connections that together bring `sum(number, second)` bytes a
  /// second. The number that is worth a trial at the end of each tenth of a second, 0 while none is known.
  @discardableResult
  private func feed(
    _ connections: inout SlowConnections, from: Double = 0, seconds: Double, flowing: (Double) -> Int,
    sum: (Int, Double) -> Double
  ) -> [Int] {
    var counts: [Int] = []
    var last = 0
    for tick in 0..<Int(seconds / 0.005) {
      let second = from + Double(tick) * 0.005
      let count = flowing(second)
      if count != last { connections.changed() }
      last = count
      let now = start.adding(seconds: second)
      connections.received(Int(sum(count, second) * 0.005), over: count, after: 0.005, roundTrip: 0.05, now: now)
      if tick % 20 == 19 { counts.append(connections.known(now)?.count ?? 0) }
    }
    return counts
  }

  /// One connection, two, and one again: as two windows that take turns overlap.
  private func turns(_ second: Double) -> Int { Int(second / 0.06) % 2 + 1 }

  @Test("Two connections that bring twice what one brings are slow: four times as many, and again")
  func slow() {
    var connections = SlowConnections()
    let first = feed(&connections, seconds: 0.6, flowing: turns) { count, _ in 4e6 * Double(count) }
    #expect(first.last == 8 && first.first == 0, "\(first)")
    let known = connections.known(start)
    #expect(abs((known?.rate ?? 0) - 4e6) < 4e5, "\(String(describing: known))")
    let more = feed(&connections, from: 0.6, seconds: 0.3, flowing: { _ in 8 }) { count, _ in 4e6 * Double(count) }
    #expect(more.last == 32, "\(more)")
    #expect(connections.hasFound && connections.noted?.count == 8)
  }

  /// Connections that the line does not fill: each asks for `length` bytes, which come after `trip` seconds at `rate`,
  /// again and again. The second begins when half of the first has come. Before them a response comes in flights; if
  /// windows `areSmall`, with silences in between.
  private func known(length: Double, rate: Double, trip: Double = 0.06, areSmall: Bool = true) -> SlowConnections.Known?
  {
    var line = Line(connections: 6)
    let start = start.adding(seconds: 1.3)
    line.began(TransferID(.max), isBackground: false, now: self.start)
    line.estimate.responded(after: trip, now: self.start)
    for flight in 0..<30 {
      let second = (areSmall ? 0.04 : 0.004) * Double(flight)
      line.received(14_600, of: TransferID(.max), now: self.start.adding(seconds: second))
    }
    line.ended(TransferID(.max), now: start, isBackground: false, hadResponse: true, isCut: false)
    line.estimate.ended(30 * 14_600, after: 1.3, now: start)
    #expect(line.estimate.windows.areSmall(start) == areSmall)
    var ids: [TransferID?] = [nil, nil]
    var (begun, left) = ([0.0, 0.5 * length / rate], [0.0, 0.0])
    var (next, known) = (UInt64(0), SlowConnections.Known?.none)
    for tick in 0..<8000 {
      let second = Double(tick) * 0.001
      let now = start.adding(seconds: second)
      for index in ids.indices where second >= begun[index] {
        if ids[index] == nil {
          next += 1
          ids[index] = TransferID(next)
          (begun[index], left[index]) = (second, length)
          line.began(TransferID(next), isBackground: false, now: now)
        }
        guard let id = ids[index], second >= begun[index] + trip else { continue }
        if left[index] == length {
          line.estimate.responded(after: trip, now: now)
          line.responded(id, over: index + 1, isBackground: false)
        }
        let count = min(left[index], rate * 0.001)
        left[index] -= count
        line.received(Int(count), of: id, now: now)
        guard left[index] <= 0 else { continue }
        line.ended(id, now: now, isBackground: false, hadResponse: true, isCut: false)
        line.estimate.ended(Int64(length), after: second - begun[index], now: now)
        ids[index] = nil
      }
      known = known ?? line.estimate.connections.known(now)
    }
    return known
  }

  @Test(
    "Only responses that last for long show that connections are slow: windows of a flight come one after the other")
  func lasting() {
    #expect(known(length: 32_000, rate: 1.6e6) == nil)
    #expect(known(length: 48_000, rate: 1.6e6) == nil)
    #expect(known(length: 1_600_000, rate: 1.6e6) != nil)
    // Where windows are not small, an origin that holds connections back shows it in short responses too.
    #expect(known(length: 32_000, rate: 1.6e6, areSmall: false) != nil)
  }

  @Test("Connections that share a line show nothing, however many there are", arguments: [1.0, 2.0, 5.0])
  func shared(mean: Double) {
    var connections = SlowConnections()
    // The number changes as readers come and go; the line's rate swings by a tenth.
    let counts = feed(&connections, seconds: 20, flowing: { Int(mean + 1 + mean * 0.9 * (7 * $0).wave) }) { _, second in
      20e6 * (1 + 0.1 * (3 * second).wave)
    }
    #expect(counts.allSatisfy { $0 == 0 }, "\(counts)")
  }

  @Test("Connections of which one filled the line are not held back by their origin, however slow losses make them")
  func lossy() {
    var connections = SlowConnections()
    connections.ended(400 << 10, after: 0.1, now: start.adding(seconds: 1.5))
    let counts = feed(&connections, from: 1.5, seconds: 10, flowing: turns) { count, _ in 0.9e6 * Double(count) }
    #expect(counts.allSatisfy { $0 == 0 }, "\(counts)")
    // An origin may begin to hold them back.
    let later = feed(&connections, from: 40, seconds: 3, flowing: turns) { count, _ in 0.9e6 * Double(count) }
    #expect(later.last == 8, "\(later)")
  }

  @Test("A connection that gains speed shows nothing")
  func gaining() {
    var connections = SlowConnections()
    // TCP doubles its rate with each round trip, and then fills the line.
    let counts = feed(&connections, seconds: 3, flowing: turns) { count, second in
      min(0.3e6 * Double(count) * (second / 0.1).power, 30e6)
    }
    #expect(counts.allSatisfy { $0 == 0 }, "\(counts)")
  }

  @Test("A line that ten connections fill gets a few more; more are tried, ever more seldom")
  func full() {
    var connections = SlowConnections()
    let line = { (count: Int, _: Double) in min(40e6, 4e6 * Double(count)) }
    feed(&connections, seconds: 0.6, flowing: turns, sum: line)
    feed(&connections, from: 0.6, seconds: 0.4, flowing: { _ in 8 }, sum: line)
    let tried = feed(&connections, from: 1, seconds: 0.4, flowing: { _ in 32 }, sum: line)
    #expect(tried.last == 16, "\(tried)")
    // A reader uses what it may have.
    var trials = 0
    var second = 1.4
    var settled: Set<Int> = []
    while second < 61.4 {
      let count = connections.known(start.adding(seconds: second))?.count ?? 0
      if count > 16 { trials += 1 } else { settled.insert(count) }
      feed(&connections, from: second, seconds: 0.2, flowing: { _ in min(count, 32) }, sum: line)
      second += 0.2
    }
    #expect((4...24).contains(trials), "\(trials) fifths of a second")
    #expect(settled == [12, 16])
  }

  @Test("A machine that had other work for a moment has its connections again two seconds later")
  func hiccup() {
    var connections = SlowConnections()
    let slow = { (count: Int, _: Double) in 4e6 * Double(count) }
    feed(&connections, seconds: 0.6, flowing: turns, sum: slow)
    feed(&connections, from: 0.6, seconds: 0.6, flowing: { _ in 24 }, sum: slow)
    // Nothing much comes, and then all that waited.
    let during = feed(&connections, from: 1.2, seconds: 0.4, flowing: { _ in 24 }) { _, _ in 2e6 }
    #expect(during.contains { $0 < 24 }, "\(during)")
    feed(&connections, from: 1.6, seconds: 0.2, flowing: { _ in 24 }) { _, _ in 300e6 }
    let later = feed(&connections, from: 1.8, seconds: 2, flowing: { _ in 24 }, sum: slow)
    #expect(later.last ?? 0 >= 24, "\(later)")
    #expect((connections.known(start.adding(seconds: 4))?.rate ?? 0) < 6e6)
  }

  @Test("Connections that are not slow any more are forgotten")
  func unlimited() {
    var connections = SlowConnections()
    feed(&connections, seconds: 0.6, flowing: turns) { count, _ in 4e6 * Double(count) }
    let counts = feed(&connections, from: 0.6, seconds: 30, flowing: { _ in 2 }) { _, _ in 5.6e6 }
    #expect(counts.last == 0 && connections.hasFound && connections.noted == nil, "\(counts)")
  }

  @Test("A refusal halves them for a minute; refusals that come together count as one")
  func refused() {
    var connections = SlowConnections()
    feed(&connections, seconds: 0.6, flowing: turns) { count, _ in 4e6 * Double(count) }
    feed(&connections, from: 0.6, seconds: 0.3, flowing: { _ in 8 }) { count, _ in 4e6 * Double(count) }
    let now = start.adding(seconds: 1)
    for active in [24, 23, 22, 21] { connections.pushedBack(active: active, now: now) }
    #expect(connections.known(now)?.count == 12)
    #expect(connections.known(now.adding(seconds: 59))?.count == 12)
  }

  // MARK: What lasts

  private func note(lanes: Int = 24, connectionRate: Double? = 4e6, at: Int64 = 1_000_000) -> HostNote {
    HostNote(
      name: "http://a", lanes: lanes, connectionRate: connectionRate, rate: 9e7, roundTrip: 0.05, httpVersion: 11,
      at: at)
  }

  @Test("A host's note is believed for a day, and not when it comes from the future")
  func doubt() {
    var notes = HostNotes()
    notes.remember([note()])
    for date in [Int64(1_000_000), 1_086_399] { #expect(notes.believed("http://a", date) == note()) }
    for date in [Int64(999_999), 1_086_400] { #expect(notes.believed("http://a", date) == nil) }
    #expect(notes.believed("http://b", 1_000_000) == nil)
  }

  @Test("What is noted is where a host begins; a note that is wrong is forgotten within a second")
  func expected() {
    var connections = SlowConnections()
    connections.expect(.init(rate: 4e6, count: 24))
    #expect(connections.known(start) == .init(rate: 4e6, count: 24) && !connections.hasFound)
    feed(&connections, seconds: 1, flowing: { _ in 24 }) { _, _ in 8e6 }
    #expect(connections.known(start) == nil && connections.hasFound)
    // Of two notes the first counts, and none counts against what was seen.
    var seen = SlowConnections()
    feed(&seen, seconds: 0.6, flowing: turns) { count, _ in 4e6 * Double(count) }
    seen.expect(.init(rate: 1e6, count: 24))
    #expect((seen.known(start)?.rate ?? 0) > 3e6)
  }

  @Test(
    "An absurd note does nothing, or no more than a sound one",
    arguments: [(0.0, 24), (1, 24), (1e14, 24), (.infinity, 4), (4e6, 4096), (4e6, 0)])
  func absurd(rate: Double, count: Int) {
    var connections = SlowConnections()
    connections.expect(.init(rate: rate, count: count))
    let known = connections.known(start)
    #expect(known == nil || SlowConnections.rates.contains(rate) && known?.count ?? 0 <= SlowConnections.mostNoted)
  }

  @Test("A host is noted when it is measured first, and when something was found out; not again and again")
  func noted() {
    var (line, notes) = (Line(connections: 32), HostNotes())
    #expect(notes.take("http://a", line, date: 5) == nil)
    line.speaks(httpVersion: 11)
    line.estimate.responded(after: 0.1, now: start)
    for tick in 0..<30 { line.estimate.received(10_000, now: start.adding(seconds: Double(tick) * 0.01)) }
    let first = notes.take("http://a", line, date: 5)
    #expect(first?.lanes == 2 && first?.connectionRate == nil && first?.httpVersion == 11 && first?.at == 5)
    #expect(notes.take("http://a", line, date: 4000) == nil)
    feed(&line.estimate.connections, seconds: 0.6, flowing: turns) { count, _ in 4e6 * Double(count) }
    let second = notes.take("http://a", line, date: 4001)
    #expect(second?.lanes == 2 && abs((second?.connectionRate ?? 0) - 4e6) < 4e5)
    #expect(notes.take("http://a", line, date: 4002) == nil)
    // An hour later a note is made again, of what was found again.
    line.estimate.connections.wasNoted()
    #expect(notes.take("http://a", line, date: 4001 + 3600) == nil)
    feed(&line.estimate.connections, from: 0.6, seconds: 0.6, flowing: turns) { count, _ in 4e6 * Double(count) }
    #expect(notes.take("http://a", line, date: 4001 + 3600)?.at == 7601)
  }

  @Test("Of many hosts the older half of the notes is dropped")
  func manyHosts() {
    var (line, notes) = (Line(connections: 32), HostNotes())
    line.estimate.responded(after: 0.1, now: start)
    for tick in 0..<30 { line.estimate.received(10_000, now: start.adding(seconds: Double(tick) * 0.01)) }
    for number in 0..<5000 { _ = notes.take("http://\(number)", line, date: Int64(number)) }
    #expect(notes.believed("http://0", 5000) == nil)
    #expect(notes.believed("http://4000", 5000)?.at == 4000 && notes.believed("http://4999", 5000)?.at == 4999)
  }

  @Test("A note that nothing confirmed keeps its date, and is replaced after its day")
  func unconfirmed() {
    var (line, notes) = (Line(connections: 32), HostNotes())
    notes.remember([note()])
    line.estimate.connections.expect(.init(rate: 4e6, count: 24))
    line.estimate.responded(after: 0.1, now: start)
    for tick in 0..<30 { line.estimate.received(10_000, now: start.adding(seconds: Double(tick) * 0.01)) }
    #expect(notes.take("http://a", line, date: 1_080_000) == nil)
    #expect(notes.take("http://a", line, date: 1_086_400) != nil)
  }
}

extension Double {
  /// Between -1 and 1, in seven steps.
  fileprivate var wave: Double { Double([0, 2, 3, 1, -1, -3, -2][Int(self) % 7]) / 3 }
  /// Two to this power.
  fileprivate var power: Double { Double(Int64(1) << Int64(Swift.min(self, 40))) }
}
