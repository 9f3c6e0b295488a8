import Base
import Testing

@testable import Sharing

/// The breaker, the budget of uploads, and the times of nodes far and many.
@Suite("A tier's bounds") struct TierTests {
  private func at(_ seconds: Double) -> Instant { Instant(nanoseconds: 1_000_000_000_000).adding(seconds: seconds) }

  @Test func aSilentStoreIsLeftAloneAtOnceAndAskedAgain() {
    var breaker = TierBreaker()
    breaker.answered(now: at(0))
    breaker.failed(.silent, now: at(1))
    #expect(!breaker.isUp && !breaker.takesUploads(now: at(1)))
    let answer1 = breaker.asks(now: at(1.4))
    #expect(!answer1)
    let answer2 = breaker.asks(now: at(1.5))
    #expect(answer2)
    let answer3 = breaker.asks(now: at(1.6))
    #expect(!answer3, "one question at a time")
    breaker.failed(.silent, now: at(1.8))
    #expect(breaker.asksAt == at(2.3))
    let answer4 = breaker.asks(now: at(7))
    #expect(answer4)
    breaker.failed(.silent, now: at(9))
    #expect(breaker.asksAt == at(11), "a quarter of the time that it was away")
    let answer5 = breaker.asks(now: at(11))
    #expect(answer5)
    breaker.answered(now: at(11.1))
    #expect(breaker.isUp && breaker.takesUploads(now: at(11.1)))
    breaker.failed(.silent, now: at(12))
    #expect(breaker.asksAt == at(16), "it fails again soon after it came back")
    // One detection takes 0.3 s at most, however far the store is.
    #expect(TierBreaker().detection(now: at(0)) == 0.3)
  }

  @Test func aStoreThatIsSlowForAMomentIsGivenMoreTime() {
    var breaker = TierBreaker()
    breaker.answered(now: at(0), after: 0.25)
    #expect(breaker.detection(now: at(0)) == 0.5 && breaker.detection(now: at(5)) < 0.5)
    #expect(breaker.detection(now: at(10)) == 0.3)
    // It was left, and answers when it is asked: it was slow, not gone.
    var former = 0.3
    for time in [20.0, 30, 40] {
      breaker.failed(.silent, now: at(time))
      #expect(!breaker.isUp)
      let isAsked = breaker.asks(now: at(time + 5))
      #expect(isAsked)
      breaker.answered(now: at(time + 5.1), after: 0.1)
      let next = breaker.detection(now: at(time + 5.1))
      #expect(breaker.isUp && next > former, "\(time): \(next)")
      former = next
    }
    #expect(former == 1)
    // A quarter of an hour later that is forgotten.
    #expect(breaker.detection(now: at(900)) == 0.3)
  }

  @Test func anAnswerToAnOldRequestIsNoneToTheQuestion() {
    var breaker = TierBreaker()
    breaker.failed(.silent, now: at(0))
    breaker.answered(now: at(0.1))
    #expect(!breaker.isUp)
  }

  @Test func oneSlowAnswerAmongOthersDoesNotOpenIt() {
    var breaker = TierBreaker()
    for second in 0..<100 {
      let time = at(Double(second))
      breaker.answered(now: time)
      breaker.failed(.silent, now: time.adding(seconds: 0.1))
      for _ in 0..<7 { breaker.answered(now: time.adding(seconds: 0.2)) }
    }
    #expect(breaker.isUp)
    for _ in 0..<3 { breaker.failed(.error, now: at(100)) }
    #expect(!breaker.isUp)
  }

  @Test func eachFailureHasItsPause() {
    for (failure, pause) in [(TierBreaker.Failure.slowDown, 1.0), (.denied, 30)] {
      var breaker = TierBreaker()
      breaker.failed(failure, now: at(0))
      #expect(!breaker.isUp && breaker.asksAt == at(pause))
    }
    var full = TierBreaker()
    full.failed(.full, now: at(0))
    #expect(full.isUp && !full.takesUploads(now: at(29)) && full.takesUploads(now: at(30)))
    var down = TierBreaker()
    var now = 0.0
    for _ in 0..<20 {
      down.failed(.silent, now: at(now))
      now += 5
      _ = down.asks(now: at(now))
    }
    #expect(down.asksAt == nil, "it asks each 5 s, however long the store is gone")
  }

  @Test func uploadsAreBoundedAndDroppedFirst() {
    var budget = UploadBudget(limit: 3, rate: 2)
    let answer6 = budget.admit(2, now: at(0))
    #expect(answer6 == at(0))
    let answer7 = budget.admit(1, now: at(0))
    #expect(answer7 == at(1))
    let answer8 = budget.admit(1, now: at(0))
    #expect(answer8 == nil)
    #expect(budget.dropped == 1)
    budget.ended(2)
    let answer9 = budget.admit(1, now: at(0))
    #expect(answer9 == at(1.5))
    #expect(budget.waiting == 2)
  }

  @Test func farStoresAndSlowOriginsHaveLongerTimes() {
    let near = ShareTimes(roundTrip: 0, nodes: 8, rank: 0)
    let far = ShareTimes(roundTrip: 200, nodes: 8, rank: 0)
    #expect(near.expiry(rate: 0) == 3000 && near.expiry(rate: 51_200) == 3000)
    #expect(near.renewal(rate: 1024) == 2000 && near.expiry(rate: 1024) == 6000)
    #expect(far.expiry(rate: 0) == near.expiry(rate: 0) + 4 * 200)
    #expect(far.standing(rate: 0) == near.standing(rate: 0) + 4 * 200)
    #expect(near.patience == 2000 && far.patience == 2800)
    #expect([51_200, 1024, 100].map { near.nextWindow(rate: $0, isCrowded: true) } == [1000, 4000, 10_000])
  }

  /// Nodes that were seen today, and may be gone, cost a reader half a second at most, before it gets windows.
  @Test func nobodyWaitsForTheTurnsOfThousands() {
    for nodes in [9, 1000, 1_000_000] {
      let last = ShareTimes(roundTrip: 2, nodes: nodes, rank: nodes - 1)
      #expect(last.patience <= 2508 && last.turn <= 2508)
      #expect(last.jitter <= 1000 && last.nextWindow(rate: 51_200, isCrowded: false) == 1000)
      #expect(last.resort(rate: 51_200, isCrowded: false) <= 14_000)
      #expect(last.resort(rate: 100, isCrowded: true) <= 200_000)
    }
  }

  /// Of a thousand nodes few help in the same tenth of a second.
  @Test func theTurnsOfManyNodesAreSpread() {
    let times = (0..<1000).map { ShareTimes(roundTrip: 2, nodes: 1000, rank: $0) }
    let tenths = Dictionary(grouping: times) { $0.standing(rate: 0) / 100 }
    #expect((tenths.values.map(\.count).max() ?? 0) <= 18)
    #expect(times.allSatisfy { $0.poll(rate: 51_200, blocks: 0) >= 500 })
  }

  @Test func ranksAreAPermutationAndDifferBySegment() {
    let nodes = (1...40).map { UInt64($0) }
    var firsts: Set<UInt64> = []
    for segment in 0..<64 {
      let ranks = nodes.map { Rendezvous.rank(of: $0, among: nodes, generation: 9, segment: segment) }
      #expect(ranks.sorted() == Array(0..<40))
      if let first = ranks.firstIndex(of: 0) { firsts.insert(nodes[first]) }
    }
    #expect(firsts.count > 20)
  }
}
