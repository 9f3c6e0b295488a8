/// Whether a store keeps the conditions of writes. A store may ignore them, or not look at them atomically: then leases
/// would be no leases.
package struct StoreConditions: Sendable, Equatable {
  /// Of eight PUTs at once that each want no object to be there, one alone wrote.
  package var keepsAbsence = true
  /// A PUT for an ETag that the object does not have did not write.
  package var keepsMatch = true
  /// A DELETE for such an ETag did not delete.
  package var keepsDelete = true
  /// What was seen instead, for status; empty if all three are kept.
  package var reasons: [String] = []

  /// Whether leases are worth having. Without, each node does its best alone. A lease that cannot be deleted under a
  /// condition is overwritten as released, so ``keepsDelete`` is not needed for it.
  package var allowsLeases: Bool { keepsAbsence && keepsMatch }
}

/// Finds out by requests which conditions a store keeps. Pure: outcomes go in, requests come out.
///
/// Eight PUTs at once, each only if there is no object; then a PUT, and then a DELETE, only if the object has an ETag
/// that it does not have; at last the object is removed. When the store fails meanwhile, nothing is known.
package struct StoreProbe {
  package enum Verdict: Sendable, Equatable {
    case known(StoreConditions)
    /// The store failed, or refuses: to be asked again later.
    case unknown(StoreOutcome)
  }

  package static let racers = 8
  /// How many numbers of requests a probe takes.
  package static let requests: UInt64 = 16
  /// A store that has its writers of a key wait gives the last of eight its answer after some seconds.
  package static let timeout: Double = 20
  private static let wrongTag = "\"00000000000000000000000000000000\""

  private enum Stage { case race, swap, delete, removal, over }

  package let key: String
  /// Set once the probe is over.
  package private(set) var verdict: Verdict?

  private let first: UInt64
  private var stage = Stage.race
  private var outcomes: [StoreOutcome] = []
  private var found = StoreConditions()

  /// - Parameters:
  ///   - first: the first of ``requests`` numbers that no other request has.
  ///   - nonce: what no other probe has, of letters and digits: the object must be new.
  package init(first: UInt64, nonce: String) {
    (self.first, key) = (first, "mfs1/probe/\(nonce)")
  }

  /// Whether a request is the probe's.
  package func owns(_ id: StoreRequestID) -> Bool { first..<first + Self.requests ~= id.rawValue }

  /// The first requests, to be started at once.
  package func begin() -> [StoreRequest] {
    (0..<Self.racers).map { racer in
      .putIfAbsent(id(racer), key, StoreBody(Array("racer \(racer)".utf8)), timeout: Self.timeout)
    }
  }

  /// The next requests, after the outcome of one of the probe's.
  package mutating func ended(_ outcome: StoreOutcome) -> [StoreRequest] {
    switch stage {
    case .race:
      outcomes.append(outcome)
      return outcomes.count == Self.racers ? judgeRace() : []
    case .swap:
      switch outcome {
      case .conflict: break
      case .written, .absent: refute(\.keepsMatch, "a PUT for another ETag was not refused with 412")
      default: return fail(outcome)
      }
      stage = .delete
      return [.delete(id(Self.racers + 1), key, ifMatch: Self.wrongTag, timeout: Self.timeout)]
    case .delete:
      switch outcome {
      case .conflict: break
      case .deleted, .absent: refute(\.keepsDelete, "a DELETE for another ETag was not refused with 412")
      // The keys may not delete. Leases do without.
      case .refused: refute(\.keepsDelete, "a DELETE was refused")
      default: return fail(outcome)
      }
      return remove(.known(found))
    case .removal:
      // What stays of the object harms nobody: no other probe has its key.
      stage = .over
      return []
    case .over: return []
    }
  }

  private mutating func judgeRace() -> [StoreRequest] {
    var winners = 0
    for outcome in outcomes {
      switch outcome {
      case .written: winners += 1
      case .conflict: break
      // Of a store that keeps conditions, none of eight may fail so. Of a busy one it says nothing.
      default: return fail(outcome)
      }
    }
    return swap(winners)
  }

  private mutating func swap(_ winners: Int) -> [StoreRequest] {
    if winners != 1 {
      refute(\.keepsAbsence, "\(winners) of \(Self.racers) PUTs at once wrote, though each wanted no object there")
    }
    stage = .swap
    let body = StoreBody(Array("another ETag".utf8))
    return [.swap(id(Self.racers), key, body, etag: Self.wrongTag, timeout: Self.timeout)]
  }

  private mutating func refute(_ condition: WritableKeyPath<StoreConditions, Bool>, _ reason: String) {
    found[keyPath: condition] = false
    found.reasons.append(reason)
  }

  private mutating func fail(_ outcome: StoreOutcome) -> [StoreRequest] {
    // Two winners are proof, whatever became of the others (rclone's server answers 500 to some racers).
    let winners = outcomes.count { if case .written = $0 { true } else { false } }
    if stage == .race, winners > 1 { return swap(winners) }
    return remove(.unknown(outcome))
  }

  private mutating func remove(_ verdict: Verdict) -> [StoreRequest] {
    self.verdict = verdict
    stage = .removal
    return [.delete(id(Self.racers + 2), key, ifMatch: nil, timeout: Self.timeout)]
  }

  private func id(_ index: Int) -> StoreRequestID { StoreRequestID(first + UInt64(index)) }
}
