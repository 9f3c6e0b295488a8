import Base
import Fetching
import Manifest
import Testing

@testable import Reading

/// What makes a host silent, what ends that, and how long stats wait: events in, decisions out.
@Suite struct SilenceTables {
  private let start = Instant(nanoseconds: 1_000_000_000_000)
  private func at(_ seconds: Double) -> Instant { start.adding(seconds: seconds) }
  private let timeout = 10.0
  private func key(_ number: Int) -> ResourceKey { ResourceKey(high: 1, low: UInt64(number)) }
  private let shell = StatPatience.Listing(process: 7, folder: 3)
  private let reset = TransferFailure(kind: .transient, message: "reset")

  private func host(answered: Double? = nil, missed: [(asked: Double, at: Double)]) -> Line {
    var host = Line(connections: 32)
    if let answered { host.answered(at(answered)) }
    for (number, miss) in missed.enumerated() {
      host.missed(key(number), askedAt: at(miss.asked), reset, now: at(miss.at), random: 0.5)
    }
    return host
  }

  @Test("One long wait speaks against its file, two in a row against the host; a refusal at once against nothing")
  func begins() {
    #expect(!host(missed: []).silence.holds(at(0)))
    let once = host(missed: [(0, 3)]).silence
    #expect(once.covers(key(0), at(3)) && !once.covers(key(1), at(3)), "one file may hang")
    let twice = host(missed: [(0, 3), (3, 6)]).silence
    #expect(twice.covers(key(0), at(6)) && twice.covers(key(9), at(6)))
    #expect(host(answered: -1, missed: [(0, 3), (3, 6)]).silence.covers(key(9), at(6)), "it answered long ago")
    #expect(!host(answered: 4, missed: [(0, 5), (1, 6), (2, 7)]).silence.holds(at(8)), "asked before it answered")
    #expect(!host(missed: [(0, 0.5), (1, 1.5), (2, 2.5), (3, 3.5)]).silence.holds(at(4)))
  }

  @Test("An answer of any kind ends it, another network, and five minutes")
  func ends() {
    let silent = host(missed: [(0, 3), (0, 3)])
    var heard = silent
    heard.heard(at(4))
    #expect(!heard.silence.holds(at(4)))
    var elsewhere = silent
    elsewhere.reconnect(at(4))
    #expect(!elsewhere.silence.holds(at(4)))
    elsewhere.missed(key(5), askedAt: at(2), reset, now: at(5), random: 0.5)
    #expect(!elsewhere.silence.holds(at(5)), "asked over the network before")
    #expect(silent.silence.holds(at(302)) && !silent.silence.holds(at(304)))
  }

  @Test("With another network the connections are gone, too")
  func reconnects() {
    var line = Line(connections: 32)
    line.began(TransferID(1), isBackground: false, now: start)
    line.ended(TransferID(1), now: at(1), isBackground: false, hadResponse: true, isCut: false)
    #expect(line.flights.idleCount(at(1)) == 1 && line.openConnections(now: at(1)) == 1)
    line.reconnect(at(1))
    #expect(line.flights.idleCount(at(1)) == 0 && line.openConnections(now: at(1)) == 0)
  }

  @Test("Of more than 256 hosts those are forgotten that nobody has used for ten minutes")
  func prunes() {
    let lines = Lines(limits: ReadingOptions.testing.limits, clock: .system)
    lines.update("http://busy") { $0.began(TransferID(1), isBackground: false, now: start) }
    lines.update("http://used") { $0.received(1, of: TransferID(2), now: at(500)) }
    lines.update("http://dead") { $0.missed(key(1), askedAt: start, reset, now: at(999), random: 0.5) }
    for number in 0..<200 { lines.update("http://\(number)") { _ in } }
    lines.prune(at(1000))
    #expect(lines.known("http://0") != nil, "there are not many")
    for number in 200..<300 { lines.update("http://\(number)") { _ in } }
    lines.prune(at(1000))
    #expect((0..<300).allSatisfy { lines.known("http://\($0)") == nil })
    for name in ["busy", "used", "dead"] { #expect(lines.known("http://\(name)") != nil, "\(name)") }
  }

  @Test("A stat that waited in vain speaks against a host that did not answer since, no other")
  func waitedInVain() {
    var unknown = Line(connections: 32)
    unknown.waitedInVain(since: at(0), now: at(5))
    #expect(unknown.silence.holds(at(5)))
    var good = host(answered: 1, missed: [])
    good.waitedInVain(since: at(2), now: at(5))
    #expect(!good.silence.holds(at(5)), "a file of it may hang")
    var gone = host(answered: 1, missed: [(2, 4)])
    gone.waitedInVain(since: at(0), now: at(5))
    #expect(!gone.silence.covers(key(9), at(5)), "it answered meanwhile")
    gone.waitedInVain(since: at(2), now: at(5))
    #expect(gone.silence.covers(key(9), at(5)))
  }

  @Test("Stats of one process in one folder wait for the timeout in all, and a small rest of it")
  func shared() {
    var patience = StatPatience(timeout: timeout)
    var now = start
    var waited: [Double] = []
    for _ in 0..<100 {
      let since = now
      while !patience.isOver(shell, since: since, answerBy: nil, now: now) { now = now.adding(seconds: 0.01) }
      patience.endedInVain(shell, since: since, now: now)
      waited.append(now.seconds(since: since))
    }
    #expect(abs(waited[0] - timeout) < 0.02)
    #expect(abs(waited[1] - 0.5) < 0.02 && abs(waited[2] - 0.25) < 0.02, "half of the rest each time")
    #expect(now.seconds(since: start) < 1.2 * timeout)
    #expect(waited.last == 0)
    #expect(!patience.isOver(.init(process: 7, folder: 4), since: now, answerBy: nil, now: now), "another folder")
    #expect(!patience.isOver(.init(process: 8, folder: 3), since: now, answerBy: nil, now: now), "another process")
    #expect(patience.count == 1)
  }

  @Test("A stat that is answered uses up nothing")
  func answered() {
    let patience = StatPatience(timeout: timeout)
    for second in 0..<1000 {
      #expect(!patience.isOver(shell, since: at(Double(second)), answerBy: nil, now: at(Double(second) + 0.9)))
    }
    #expect(patience.count == 0)
    #expect(!patience.isOver(shell, since: at(1000), answerBy: nil, now: at(1000 + timeout - 0.1)))
    #expect(patience.isOver(shell, since: at(1000), answerBy: nil, now: at(1000 + timeout)))
  }

  @Test("What threads wait at the same time counts once")
  func sideBySide() {
    var patience = StatPatience(timeout: timeout)
    for _ in 0..<8 { patience.endedInVain(shell, since: at(0), now: at(4)) }
    #expect(!patience.isOver(shell, since: at(4), answerBy: nil, now: at(9.9)))
    #expect(patience.isOver(shell, since: at(4), answerBy: nil, now: at(10.1)))
  }

  @Test("A host that answers is given its round trip, also when nothing is left")
  func roundTrip() {
    var patience = StatPatience(timeout: timeout)
    patience.endedInVain(shell, since: at(0), now: at(10.99))
    #expect(patience.isOver(shell, since: at(10.99), answerBy: nil, now: at(10.99)))
    #expect(!patience.isOver(shell, since: at(10.99), answerBy: at(11.3), now: at(11.2)))
    #expect(patience.isOver(shell, since: at(10.99), answerBy: at(11.3), now: at(11.3)))
  }

  @Test("It begins anew after a quiet time, and with another network")
  func anew() {
    var patience = StatPatience(timeout: timeout)
    patience.endedInVain(shell, since: at(0), now: at(10))
    #expect(patience.isOver(shell, since: at(15), answerBy: nil, now: at(16)), "still the same listing")
    patience.asks(shell, now: at(18))
    #expect(patience.isOver(shell, since: at(26), answerBy: nil, now: at(27)), "a stat that was answered continues it")
    #expect(!patience.isOver(shell, since: at(28), answerBy: nil, now: at(29)))
    patience.endedInVain(shell, since: at(30), now: at(40))
    #expect(patience.isOver(shell, since: at(40), answerBy: nil, now: at(41)))
    patience.restart()
    #expect(!patience.isOver(shell, since: at(40), answerBy: nil, now: at(41)))
  }

  @Test("Only so many lookers are remembered; the quietest goes")
  func bounded() {
    var patience = StatPatience(timeout: timeout)
    for process in 0..<1000 {
      let begun = at(Double(process) / 1000)
      patience.endedInVain(.init(process: Int32(process), folder: 3), since: begun, now: begun.adding(seconds: 9.9))
    }
    #expect(patience.count == StatPatience.most)
    #expect(patience.isOver(.init(process: 999, folder: 3), since: at(11), answerBy: nil, now: at(12)))
    #expect(!patience.isOver(.init(process: 0, folder: 3), since: at(11), answerBy: nil, now: at(12)))
  }
}
