import Base
import Fetching
import Testing

@testable import Reading

/// What readers may request of a line that are not to keep others waiting.
@Suite struct RationTables {
  private let start = Instant(nanoseconds: 1_000_000_000)
  private static let window: Int64 = 50_000

  /// Bytes a second that readers with `claim` may request of `line`, which is never idle.
  private func rate(_ line: Line, _ claim: ReaderView.Claim, due: Double = 0, seconds: Double = 20) -> Double {
    var line = line
    line.began(TransferID(1), isBackground: false, now: start)
    var bytes: Int64 = 0
    for tick in 0..<Int(seconds / 0.005) {
      let now = start.adding(seconds: Double(tick) * 0.005)
      guard line.admits(.playAhead, bytes: Self.window, claim: claim, isQuiet: false, now: now) else { continue }
      line.tookSpare(Self.window, claim, due: due, now: now)
      bytes += Self.window
    }
    return Double(bytes) / seconds
  }

  /// It brings 4 MB/s, and `others` have been there for `seconds`.
  private func line(_ others: LineStanding..., need: Double = 1e6, since seconds: Double = 0) -> Line {
    var line = Line(connections: 32)
    for other in others { line.readers.join(other, now: start.adding(seconds: -seconds)) }
    line.readers.need = need
    return line
  }

  @Test("While another waits, a player with a lead gets what it needs, and half of that when it is far ahead")
  func leads() {
    let player = LineStanding(host: "a", leads: true, plays: true)
    let busy = line(player, LineStanding(host: "a", waits: true, isNew: true))
    #expect((0.95e6...1.1e6).contains(rate(busy, .lead, due: 2)))
    #expect((0.45e6...0.6e6).contains(rate(busy, .lead, due: 6)))
    #expect(rate(busy, .urgent) > 9e6)
    // Beside a player near its deadline it has what both leave, and no more than it needs; where the line is too slow
    // for both, or that lasts, it keeps what it has.
    for (need, most, seconds) in [
      (1e6, 1e6, 0.0), (3.5e6, 0.5e6, 0), (4.5e6, 4.5e6, 0), (3.5e6, 3.5e6, 21),
    ] {
      var tight = line(player, LineStanding(host: "a", isUrgent: true), need: need, since: seconds)
      #expect((0.95 * most...1.1 * most).contains(rate(tight, .lead, due: 2, seconds: 8)), "\(need)")
      #expect(seconds > 0 || (0.95 * most...1.1 * most).contains(rate(tight, .lead, due: 6, seconds: 8)), "\(need)")
      #expect(rate(tight, .urgent) > 9e6)
      guard most < need else { continue }
      // What the other requests comes first.
      tight.began(TransferID(1), isBackground: false, now: start)
      #expect(tight.admits(.playAhead, bytes: Self.window, claim: .lead, isQuiet: false, now: start))
      tight.tookSpare(Self.window, .urgent, due: 0, now: start)
      #expect(!tight.admits(.playAhead, bytes: Self.window, claim: .lead, isQuiet: false, now: start))
    }
    // A copy that waits is no reason, and who is alone has the line.
    #expect(rate(line(player, LineStanding(host: "a", waits: true, shares: true)), .lead) > 9e6)
    #expect(rate(line(player), .lead) > 9e6 && rate(line(player, player), .lead) > 9e6)
  }

  @Test("Beside a player near its deadline newcomers save up one window at most, and copies get next to nothing")
  func besideUrgent() {
    var busy = line(
      LineStanding(host: "a", waits: true, isNew: true), LineStanding(host: "a", isUrgent: true), need: 3.5e6)
    busy.began(TransferID(1), isBackground: false, now: start)
    #expect(busy.admits(.demand, bytes: 64 << 10, claim: .start, isQuiet: false, now: start))
    busy.tookSpare(64 << 10, .start, due: 0, now: start)
    #expect(!busy.admits(.demand, bytes: 64 << 10, claim: .start, isQuiet: false, now: start.adding(seconds: 0.04)))
    #expect(busy.admits(.demand, bytes: 64 << 10, claim: .start, isQuiet: false, now: start.adding(seconds: 0.08)))
    let copies = line(LineStanding(host: "a", waits: true, shares: true), LineStanding(host: "a", isUrgent: true))
    #expect((0.05e6..<0.15e6).contains(sharedRate(copies, besides: nil)))
  }

  @Test("Beside a player, sizes for which nobody waits get a fiftieth of the line; a player's tail is not limited")
  func sizes() {
    var busy = line(LineStanding(host: "a", isUrgent: true, plays: true))
    busy.began(TransferID(1), isBackground: false, now: start)
    var bytes: Int64 = 0
    for tick in 0..<2000 {
      let now = start.adding(seconds: Double(tick) * 0.005)
      guard busy.admits(.index, bytes: 4096, claim: .share, isQuiet: false, now: now) else { continue }
      busy.tookSize(4096, now: now)
      bytes += 4096
    }
    #expect((0.7e6...0.9e6).contains(Double(bytes)), "\(bytes) bytes in 10 s of 40 MB")
    #expect(busy.admits(.index, bytes: 128 << 10, isQuiet: false, now: start.adding(seconds: 10)))
    // Beside nobody who goes first they are requested at once, and beside the listing that will want them.
    var alone = line(
      LineStanding(host: "a", waits: true, shares: true),
      LineStanding(host: "a", waits: true, isNew: true, wantsSize: true))
    alone.began(TransferID(1), isBackground: false, now: start)
    for _ in 0..<1000 { alone.tookSize(4096, now: start) }
    #expect(alone.admits(.index, bytes: 4096, claim: .share, isQuiet: false, now: start))
  }

  @Test("Whoever comes finds copies that have saved up no more than a small window")
  func saved() {
    // A large window counts whole, although it is more than may be saved up.
    let urgent = line(LineStanding(host: "a", waits: true, shares: true), LineStanding(host: "a", isUrgent: true))
    #expect(sharedRate(urgent, besides: nil, window: 200_000) < 0.11e6)
    for isArrival in [false, true] {
      var busy = line(LineStanding(host: "a", waits: true, shares: true))
      let copy = line(LineStanding(host: "a", waits: true, shares: true))
      #expect(sharedRate(copy, besides: nil) > 1e6)
      busy.readers.join(LineStanding(host: "a", waits: true, isNew: true), now: start.adding(seconds: 5))
      if isArrival { busy.readers.arrived(.start, start.adding(seconds: 5)) }
      busy.began(TransferID(1), isBackground: false, now: start)
      var bytes: Int64 = 0
      for tick in 0..<100 {
        let now = start.adding(seconds: 5 + Double(tick) * 0.005)
        guard busy.admits(.shared, bytes: Self.window, claim: .share, isQuiet: false, now: now) else { continue }
        busy.tookSpare(Self.window, .share, due: 0, now: now)
        bytes += Self.window
      }
      #expect(bytes <= 2 * Self.window, "\(bytes)")
    }
  }

  @Test("Who is near its deadline again within a second has been so all the time; a jump begins anew")
  func urgency() {
    let urgent = LineStanding(host: "a", isUrgent: true)
    var readers = LineReaders()
    for (change, second, since) in [(1, 0.0, 0.0), (-1, 2, 0), (1, 2.5, 0), (-1, 3, 0), (1, 4.5, 4.5)] {
      let now = start.adding(seconds: second)
      if change > 0 { readers.join(urgent, now: now) } else { readers.leave(urgent, now: now) }
      #expect(readers.urgentSince == start.adding(seconds: since), "\(second)")
    }
    readers.arrived(.start, start.adding(seconds: 9))
    #expect(readers.urgentSince == start.adding(seconds: 4.5))
    readers.arrived(.urgent, start.adding(seconds: 9))
    #expect(readers.urgentSince == start.adding(seconds: 9))
  }

  @Test("A reader that shares the line from now on does not stand back for itself")
  func ownPress() {
    let new = LineStanding(host: "a", waits: true, isNew: true)
    let shares = LineStanding(host: "a", waits: true, shares: true)
    var both = new
    both.shares = true
    for (former, next, isPressed) in [
      (new, shares, false), (new, LineStanding(host: "a", plays: true), true), (new, nil, true),
      // Another reader of the same file shared the line before.
      (both, shares, true),
    ] as [(LineStanding, LineStanding?, Bool)] {
      var readers = LineReaders()
      readers.join(former, now: start)
      readers.leave(former, for: next, now: start)
      if let next { readers.join(next, now: start) }
      #expect(readers.isPressed(within: 0.6, start.adding(seconds: 0.3)) == isPressed)
    }
  }

  @Test("A reader on trial goes before those that share, and stands back for newcomers")
  func trial() {
    let trial = LineStanding(host: "a", waits: true, leads: true, shares: true)
    let copy = LineStanding(host: "a", waits: true, shares: true)
    let held = line(trial, copy)
    #expect(held.isHeldBack(.share, start) && !held.isHeldBack(.trial, start))
    let pressed = line(trial, copy, LineStanding(host: "a", waits: true, isNew: true))
    #expect(pressed.isHeldBack(.share, start) && pressed.isHeldBack(.trial, start))
    // What it requests is no part of what the others get.
    let alone = sharedRate(held, besides: nil)
    #expect(alone > 0.03e6 && sharedRate(held, besides: .trial) == alone, "\(alone)")
    #expect(sharedRate(held, besides: .share) < alone)
  }

  /// Bytes a second that a copy may request of `line`, which is never idle, while one with the claim `other` requests
  /// windows, too.
  private func sharedRate(
    _ line: Line, besides other: ReaderView.Claim?, window: Int64 = RationTables.window
  ) -> Double {
    var line = line
    line.began(TransferID(1), isBackground: false, now: start)
    var bytes: Int64 = 0
    for tick in 0..<4000 {
      let now = start.adding(seconds: Double(tick) * 0.005)
      if let other, tick % 20 == 0 { line.tookSpare(Self.window, other, due: 0, now: now) }
      guard line.admits(.shared, bytes: window, claim: .share, isQuiet: false, now: now) else { continue }
      line.tookSpare(window, .share, due: 0, now: now)
      bytes += window
    }
    return Double(bytes) / 20
  }

  @Test(
    "Every starving file gets a window within half of the timeout, at least 1 KiB/s, and not all at once",
    arguments: [1, 30, 600])
  func starving(timeout: Double) {
    let copies = Array(repeating: LineStanding(host: "a", waits: true, shares: true), count: 30)
    var line = Line(connections: 32)
    for copy in copies { line.readers.join(copy, now: start) }
    let window = PendingStart.starvingWindow
    var fed: [Double] = []
    let seconds = min(timeout / 2, 16)
    for tick in 0..<Int(seconds * 20) {
      let second = Double(tick) * 0.05
      let now = start.adding(seconds: second)
      while line.mayFeed(window, timeout: timeout, now) {
        line.noteFed(window, timeout: timeout, now)
        fed.append(second)
      }
    }
    #expect((28...36).contains(fed.count), "\(fed.count)")
    #expect(fed.count { $0 < seconds / 10 } <= 8, "\(fed)")
  }

  @Test("Beside a player near its deadline newcomers get what players leave, from the first one on")
  func newcomers() {
    let player = LineStanding(host: "a", isUrgent: true, plays: true)
    let newcomer = LineStanding(host: "a", waits: true, isNew: true)
    let busy = line(player, newcomer)
    #expect((2.8e6...3.2e6).contains(rate(busy, .start)), "of the 4 MB/s that a line is assumed to bring")
    #expect(rate(line(newcomer, newcomer), .start) > 9e6)
  }
}
