import Base
import TestSupport
import Testing

@testable import Sharing

/// The probe that tells whether a store keeps the conditions of writes.
@Suite("The probe of conditions") struct ProbeTests {
  /// Plays the outcomes into a probe, one for each request, in order.
  private static func verdict(_ outcomes: [StoreOutcome]) -> (StoreProbe.Verdict?, requests: Int) {
    var probe = StoreProbe(first: 100, nonce: "n")
    var waiting = probe.begin()
    var left = outcomes
    var count = 0
    while let request = waiting.first, !left.isEmpty {
      waiting.removeFirst()
      count += 1
      waiting += probe.ended(left.removeFirst())
      #expect(probe.owns(request.id))
    }
    return (probe.verdict, count)
  }

  private static func race(_ winners: Int, _ other: StoreOutcome = .conflict) -> [StoreOutcome] {
    (0..<8).map { $0 < winners ? .written(etag: "\"e\"") : other }
  }

  @Test func whatIsKept() {
    let kept = StoreConditions()
    #expect(Self.verdict(Self.race(1) + [.conflict, .conflict, .deleted]) == (.known(kept), 11))
    #expect(kept.allowsLeases)
    let (two, _) = Self.verdict(Self.race(2) + [.conflict, .conflict, .deleted])
    guard case .known(let conditions) = two else {
      Issue.record("\(String(describing: two))")
      return
    }
    #expect(!conditions.keepsAbsence && conditions.keepsMatch && !conditions.allowsLeases)
    #expect(conditions.reasons.first?.hasPrefix("2 of 8") == true)
    let (none, _) = Self.verdict(Self.race(0) + [.conflict, .conflict, .deleted])
    if case .known(let conditions) = none { #expect(!conditions.allowsLeases) } else { Issue.record("no winner") }
    let (swapped, _) = Self.verdict(Self.race(1) + [.written(etag: nil), .conflict, .deleted])
    if case .known(let conditions) = swapped { #expect(!conditions.allowsLeases) } else { Issue.record("a swap") }
    let (deleted, _) = Self.verdict(Self.race(1) + [.conflict, .deleted, .deleted])
    guard case .known(let conditions) = deleted else {
      Issue.record("a DELETE")
      return
    }
    #expect(!conditions.keepsDelete && conditions.allowsLeases && conditions.reasons.count == 1)
    let refused = StoreOutcome.refused(reason: "AccessDenied")
    let (undeleted, _) = Self.verdict(Self.race(1) + [.conflict, refused, refused])
    if case .known(let conditions) = undeleted {
      #expect(!conditions.keepsDelete && conditions.allowsLeases)
    } else {
      Issue.record("keys that may not delete: \(String(describing: undeleted))")
    }
  }

  @Test("A store that fails meanwhile shows nothing, unless two of eight wrote") func whatIsNotKnown() {
    for outcome in [StoreOutcome.timedOut, .refused(reason: "r"), .busy(retryAfter: nil, reason: "b")] {
      #expect(Self.verdict(Self.race(1, outcome) + [.deleted]) == (.unknown(outcome), 9))
      #expect(Self.verdict(Self.race(1) + [outcome, .deleted]) == (.unknown(outcome), 10))
      if case .refused = outcome { continue }
      #expect(Self.verdict(Self.race(1) + [.conflict, outcome, .deleted]) == (.unknown(outcome), 11))
    }
    let (two, _) = Self.verdict(Self.race(2, .broken(reason: "500")) + [.conflict, .conflict, .deleted])
    if case .known(let conditions) = two { #expect(!conditions.allowsLeases) } else { Issue.record("two winners") }
  }

  @Test func aStoreThatKeepsThemAndOnesThatDoNot() throws {
    try withFakeStore { store in
      try withCalls(store.endpoint) { calls in
        #expect(calls.probe(nonce: "1") == .known(StoreConditions()))
        #expect(eventually { store.objects.isEmpty }, "the probe left an object")
        store.configure { $0.keepsConditions = false }
        guard case .known(let conditions) = calls.probe(nonce: "2") else { throw StoreFailure(description: "unknown") }
        #expect(!conditions.keepsAbsence && !conditions.keepsMatch && conditions.keepsDelete)
        store.configure { ($0.keepsConditions, $0.keepsDeleteConditions) = (true, false) }
        guard case .known(let others) = calls.probe(nonce: "3") else { throw StoreFailure(description: "unknown") }
        #expect(others.allowsLeases && !others.keepsDelete)
        store.configure { $0.fault = { $0.method == "PUT" ? .refuse(403, code: "AccessDenied") : nil } }
        guard case .unknown(.refused) = calls.probe(nonce: "4") else { throw StoreFailure(description: "known") }
      }
    }
  }
}
