import Base
import Manifest

/// What `status` and `metrics` tell of a member of a fleet. Any thread may read it.
package struct MemberReport: Sendable, Equatable {
  /// What the store is to the mount.
  package enum State: Sendable, Equatable {
    /// It has not answered yet, or not with what is needed: why, if that is known.
    case asking(why: String)
    case up
    /// It is not used, and every file comes from its origin: why; empty: it does not answer.
    case down(since: Instant, why: String)
    /// The bucket is not for this mount: why.
    case refused(String)
  }

  /// A segment that this node fetches for all: which bytes of which file.
  package struct HeldLease: Sendable, Equatable {
    package let key: ResourceKey
    package let range: ByteRange

    package init(key: ResourceKey, range: ByteRange) { (self.key, self.range) = (key, range) }
  }

  package var state = State.asking(why: "")
  /// `s3://bucket/prefix`.
  package var place = ""
  package var isReadOnly = false
  /// Why there are no leases, if the store does not keep the conditions of writes; empty: it keeps them, or nothing is
  /// known yet.
  package var lacks: [String] = []
  /// Whether there are no leases yet, as the store was probed and did not show whether it keeps the conditions.
  package var isInDoubt = false
  /// The nodes that were seen today, this one included.
  package var nodes = 1
  /// The round trip to the store in milliseconds.
  package var roundTrip = 0
  package var leases: [HeldLease] = []
  /// Bytes that are here and not known to be in the store, also of what is going up, and blocks for which there was no
  /// room.
  package var waitingBytes: Int64 = 0
  package var droppedBlocks: Int64 = 0
  /// Why the store refused the last of them that it answered; empty: it took that.
  package var refusal = ""
  /// Files of which the store is still to be told what they are.
  package var waitingPointers = 0
  /// Until when nothing is stored, as the store has no room; nil: it has.
  package var fullUntil: Instant?

  package init() {}
}

extension FleetMember {
  /// How often what is told is made anew at most, in seconds.
  private static let tellsEach = 0.2

  /// Tells what there is to tell, or returns when it will.
  func tell(_ now: Instant) -> Instant {
    guard now >= nextReport else { return nextReport }
    nextReport = now.adding(seconds: Self.tellsEach)
    publish(now)
    return .never
  }

  private func publish(_ now: Instant) {
    var report = MemberReport()
    report.place = store.location.description
    report.isReadOnly = setup.isReadOnly
    report.state =
      switch phase {
      case .asking: .asking(why: reason)
      case .refused(let why): .refused(why)
      case .ready: breaker.isUp ? .up : .down(since: downSince ?? now, why: reason)
      }
    report.lacks = start.conditions.map { $0.allowsLeases ? [] : $0.reasons } ?? []
    report.isInDoubt = start.doubt != nil
    report.nodes = fleet.nodes.count
    report.roundTrip = fleet.identity.roundTrip
    report.leases = fleet.leases.compactMap { place, _ in
      guard let file = files[Int64(place.generation)] else { return nil }
      let segment = Int64(layout.segment) * file.block
      let start = min(Int64(place.segment) * segment, file.size)
      return MemberReport.HeldLease(key: file.key, range: ByteRange(start, min(start + segment, file.size)))
    }
    report.waitingBytes = uploads.budget.waiting + owedBytes
    report.refusal = offers.refusal
    report.waitingPointers = pointers.waiting.count + pointers.writing
    report.droppedBlocks = uploads.budget.dropped
    report.fullUntil = breaker.fullUntil.flatMap { $0 > now ? $0 : nil }
    setup.report.withLock { $0 = report }
  }
}
