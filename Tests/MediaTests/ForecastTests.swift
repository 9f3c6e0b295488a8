import Base
import TestSupport
import Testing

@testable import Media

/// Whether a film stalls, from its bytes for each second, what is stored, and the rate.
@Suite struct ForecastTests {
  private func index(_ bytes: [Int64]) throws -> FilmIndex {
    var builder = FilmBuilder()
    var offset: Int64 = 0
    for (second, count) in bytes.enumerated() {
      builder.add(lane: 0, from: Double(second), to: Double(second + 1), bytes: offset, offset + count)
      offset += count
    }
    return try #require(builder.index(duration: Double(bytes.count), size: offset, isWhole: true))
  }

  @Test("What is stored holds to the first hole, and a hole before does not count")
  func holds() throws {
    let index = try index([Int64](repeating: 1000, count: 60))
    var stored = ByteRangeSet(ByteRange(0, 20_000))
    stored.insert(ByteRange(30_000, 45_500))
    let forecast = FilmForecast(index: index, stored: stored, supply: nil)
    #expect(forecast.holds(from: 0) == 20 && forecast.holds(from: 12.5) == 20)
    #expect(forecast.holds(from: 25) == 25 && forecast.holds(from: 30) == 45)
    #expect(forecast.playsFrom == nil, "without a rate nothing more comes")
    #expect(
      FilmForecast(index: index, stored: stored, supply: FilmSupply(rate: 100)).playsFrom == nil,
      "the last moments alone play through")
    #expect(forecast.verdict(from: 0) == FilmForecast.Verdict(stallsAt: 20, readyIn: nil))
    stored.insert(ByteRange(45_000, 60_000))
    let rest = FilmForecast(index: index, stored: stored, supply: nil)
    #expect(rest.holds(from: 40) == 60 && rest.playsFrom == 30)
    #expect(rest.verdict(from: 30).playsThrough && !rest.verdict(from: 29).playsThrough)
  }

  @Test("Not the mean counts, but the bytes of each second")
  func scenes() throws {
    // A minute of little, ten seconds of much, a minute of little.
    let bytes =
      [Int64](repeating: 500, count: 60) + [Int64](repeating: 8000, count: 10) + [Int64](repeating: 500, count: 60)
    let index = try index(bytes)
    // What comes in the first minute is enough: (60 + 10) s x 1600 > 110,000 bytes.
    let fast = FilmForecast(index: index, stored: ByteRangeSet(), supply: FilmSupply(rate: 1600))
    #expect(fast.verdict(from: 0).playsThrough)
    let slow = FilmForecast(index: index, stored: ByteRangeSet(), supply: FilmSupply(rate: 1100))
    let verdict = slow.verdict(from: 0)
    #expect(verdict.stallsAt.map { (62...70).contains($0) } == true, "\(verdict)")
    #expect(verdict.readyIn.map { (28...31).contains($0) } == true, "110,000 / 1100 - 70 s: \(verdict)")
    #expect(
      slow.playsFrom.map { (69...70).contains($0) } == true,
      "behind the ten seconds: \(String(describing: slow.playsFrom))")
    // A player that has read more than it shows has more time.
    for (ahead, playsThrough) in [(38_000, true), (30_000, false)] as [(Int64, Bool)] {
      let forecast = FilmForecast(
        index: index, stored: ByteRangeSet(ByteRange(0, ahead)), supply: FilmSupply(rate: 1100))
      #expect(forecast.verdict(from: 0, readTo: 0).playsThrough == playsThrough, "\(ahead)")
    }
  }

  @Test("A program gets the bytes of a read at once, and those of another request a round trip later")
  func units() throws {
    let index = try index([Int64](repeating: 1000, count: 60))
    func forecast(_ stored: Int64, _ supply: FilmSupply) -> FilmForecast {
      FilmForecast(index: index, stored: ByteRangeSet(ByteRange(0, stored)), supply: supply)
    }
    // The line is as fast as the film: what is stored ahead of a play stays as much.
    for (ahead, playsThrough) in [(7000, true), (3000, false)] as [(Int64, Bool)] {
      let said = forecast(10_000 + ahead, FilmSupply(rate: 1000, unit: 4000, delay: 1)).verdict(
        from: 10, readTo: 10)
      #expect(said.playsThrough == playsThrough, "\(ahead): \(said)")
      #expect(forecast(10_000 + ahead, FilmSupply(rate: 1000)).verdict(from: 10, readTo: 10).playsThrough)
    }
    // The read that holds what is shown may end behind what is stored. The last bytes come with no others.
    let said = forecast(12_000, FilmSupply(rate: 1000, unit: 4000)).verdict(from: 10, readTo: 10)
    #expect(said.stallsAt.map { (10...12).contains($0) } == true, "\(said)")
    let last = forecast(59_000, FilmSupply(rate: 1000, unit: 4000)).verdict(from: 58, readTo: 59)
    #expect(last.playsThrough, "\(last)")
  }

  @Test("What is said is what a play does, second by second, for random films")
  func random() throws {
    var random = SeededRandom.fromEnvironment(for: "ForecastTests.random")
    var (played, stalled) = (0, 0)
    for _ in 0..<300 {
      let bytes = (0..<Int.random(in: 5...40, using: &random)).map { _ in Int64.random(in: 200...3000, using: &random) }
      let index = try index(bytes)
      var stored = ByteRangeSet()
      for _ in 0..<Int.random(in: 0...3, using: &random) {
        let first = Int.random(in: 0..<bytes.count, using: &random)
        let last = Int.random(in: first..<bytes.count, using: &random)
        stored.insert(ByteRange(bytes[..<first].reduce(0, +), bytes[...last].reduce(0, +)))
      }
      let rate = Double.random(in: 500...3000, using: &random)
      let forecast = FilmForecast(index: index, stored: stored, supply: FilmSupply(rate: rate))
      let first = Int.random(in: 0..<bytes.count, using: &random)
      let said = forecast.verdict(from: Double(first), readTo: Double(first))
      let late = lateness(bytes, stored, rate: rate, from: first)
      // Within a second the bytes are taken as even, here by the quarter.
      if abs(late) < 0.05 { continue }
      #expect(said.playsThrough == (late <= 0), "\(said), \(late) s late from \(first): \(bytes) at \(rate), \(stored)")
      if let readyIn = said.readyIn, late > 0 { #expect(abs(readyIn - late) < 0.1, "\(readyIn), not \(late)") }
      if said.playsThrough { played += 1 } else { stalled += 1 }
      let busy = FilmSupply(rate: rate, start: Double.random(in: 0...1, using: &random))
      for forecast in [forecast, FilmForecast(index: index, stored: stored, supply: busy)] {
        guard let earliest = forecast.playsFrom else { continue }
        #expect(forecast.verdict(from: earliest).playsThrough)
        // A start that takes too long is none, though the play behind it may not stall.
        let longest = Double(index.slot) * 3000 / rate
        let isSlow = longest + min(longest, forecast.supply?.start ?? 0) > FilmForecast.longestStart
        for slot in 0..<index.slot(at: earliest) {
          let before = Double(slot) * index.slot
          #expect(isSlow || !forecast.verdict(from: before).playsThrough, "\(before) is earlier than \(earliest)")
        }
      }
    }
    #expect(played > 30 && stalled > 30, "\(played) \(stalled)")
  }

  /// By how much the byte comes too late that is latest, when the missing bytes come in their order from now on.
  private func lateness(_ bytes: [Int64], _ stored: ByteRangeSet, rate: Double, from first: Int) -> Double {
    let start = bytes[..<first].reduce(0, +)
    var (missing, latest, offset) = (0.0, -Double.infinity, start)
    for second in first..<bytes.count {
      for part in 0..<4 {
        let end = start + bytes[first..<second].reduce(0, +) + bytes[second] * Int64(part + 1) / 4
        let range = ByteRange(offset, end)
        missing += Double(range.count - stored.count(in: range))
        let due = Double(second - first) + Double(part + 1) / 4
        latest = max(latest, missing / rate - due)
        offset = end
      }
    }
    return latest
  }
}
