import Base
import Fetching
import TestSupport
import Testing

@testable import Reading

/// What a line does while a film plays.
enum LineChange: Sendable, CustomStringConvertible {
  /// Its rate is multiplied by `factor` from `start` until `end`, in seconds from the film's opening.
  case rate(factor: Double, start: Double, end: Double)
  /// Each answer comes up to so many seconds late.
  case jitter(Double)
  /// All connections die each time so many seconds have passed.
  case deaths(every: Double)
  /// TCP over a router's queue of so many seconds of the line.
  case queue(Double)

  var description: String {
    switch self {
    case .rate(let factor, let start, let end): "the rate times \(factor) from \(start) to \(end) s"
    case .jitter(let seconds): "jitter of \(seconds) s"
    case .deaths(let seconds): "connections die every \(seconds) s"
    case .queue(let seconds): "a router's queue of \(seconds) s"
    }
  }

  func rate(at second: Double) -> Double {
    guard case .rate(let factor, let start, let end) = self, second >= start, second < end else { return 1 }
    return factor
  }

  /// The lateness of the answer to a request: the same in each run.
  static func jitter(_ most: Double, of id: TransferID) -> Double {
    var random = SeededRandom(seed: id.rawValue)
    return most * Double(random.next() % 1000) / 1000
  }
}

/// Films over lines that change, against an oracle that knows each line's future.
@Suite struct LineChangeScenarios {
  /// The seconds for which a film stalls within `seconds` if its bytes, in their order, have the whole line from its
  /// first round trip on.
  static func oracle(_ setting: DeadlineScenarios.Setting, rate: Double, seconds: Double) -> Double {
    let chunk = Double(SimulatedPlayer.chunk)
    let first = (SimulatedPlayer.shownAfter * rate / chunk).rounded(.up)
    var (time, arrived, chunks) = (setting.roundTrip, 0.0, 0.0)
    var began: Double?
    var stall = 0.0
    let step = 0.001
    while time < seconds {
      arrived += setting.rate * (setting.change?.rate(at: time) ?? 1) * step
      time += step
      while arrived >= (chunks + 1) * chunk {
        if let began { stall = max(stall, time - began - chunks * chunk / rate) }
        chunks += 1
        if began == nil, chunks >= first { began = time }
      }
    }
    // What has not come yet is late too.
    if let began { stall = max(stall, time - began - chunks * chunk / rate) }
    return stall
  }

  @Test(
    "A film stalls at most a round trip and 100 ms longer than where the line's future is known, alone and beside copies",
    arguments: [
      LineChange.rate(factor: 0.5, start: 8, end: 20), .rate(factor: 2, start: 8, end: 20),
      .rate(factor: 0, start: 10, end: 12), .rate(factor: 0, start: 3, end: 5), .jitter(0.3), .deaths(every: 20),
      .queue(0.5),
    ], [0, 3])
  func stalls(change: LineChange, copies: Int) throws {
    // What copies get of a tight line so that they do not starve is more than a film can spare when it is halved.
    var lines = [(copies == 0 ? 1.5e6 : 2e6, 0.08), (4e6, 0.08), (4e6, 0.3)]
    // The oracle's line has no slow start, which takes seconds where a round trip takes 0.3 s.
    if case .queue = change { lines.removeLast() }
    for (rate, roundTrip) in lines {
      var setting = DeadlineScenarios.Setting(rate: rate, roundTrip: roundTrip, copies: copies)
      setting.change = change
      let known = Self.oracle(setting, rate: 1e6, seconds: 40)
      let waits = try DeadlineScenarios.run(setting, seconds: 40).stalls[0]
      let stalled = waits.reduce(0) { $0 + $1.seconds }
      var trip = roundTrip
      switch change {
      case .jitter(let most), .queue(let most): trip += most
      case .rate, .deaths: break
      }
      #expect(stalled <= known + trip + 0.1, "\(rate / 1e6) MB/s, \(roundTrip) s: \(known) s known; \(waits)")
    }
  }

  @Test("A copy over one connection of HTTP/2 fills the line, also where answers are late", arguments: [0, 0.1])
  func copies(jitter: Double) throws {
    var setting = DeadlineScenarios.Setting(rate: 20e6, roundTrip: 0.04, copies: 1)
    (setting.players, setting.httpVersion, setting.change) = ([], 20, .jitter(jitter))
    let copied = try DeadlineScenarios.run(setting, seconds: 20).copies[0]
    #expect(Double(copied) > (jitter == 0 ? 0.97 : 0.85) * 20 * setting.rate, "\(copied)")
  }
}
