import Base
import Fetching

/// So many objects, and what they have in all.
package struct FleetTally: Sendable, Encodable, Equatable {
  package var objects: Int64 = 0
  package var bytes: Int64 = 0

  mutating func add(_ entry: StoreListing.Entry) {
    objects += 1
    bytes = .clampedSum(bytes, entry.size)
  }
}

/// What lies in a fleet's bucket. A whole list is read, a page at a time: what stays in memory is the sums, and of what
/// is incomplete or held so many as are named.
package struct FleetCensus: Sendable, Encodable {
  /// So many incomplete generations and leases are named; the others are counted.
  package static let named = 1000
  /// A lease that was renewed in the last so many seconds counts as held: its time is 3 s, or 6 with a slow origin.
  private static let leaseSeconds: Int64 = 10
  /// So many heads are asked for at once.
  private static let headsAtOnce = 512

  /// A generation of which not all blocks are there. Without its head its size is not known.
  package struct Incomplete: Sendable, Encodable, Equatable {
    package var generation: String
    package var blocks: Int64
    package var bytes: Int64
    package var size: Int64?
  }

  package struct Held: Sendable, Encodable, Equatable {
    package var generation: String
    package var segment: Int
    package var node: String
    /// The blocks of the segment that are there, the one that is under way, and the rate in KiB a second.
    package var blocks: Int
    package var at: Int
    package var rate: Int64
  }

  package var place: String
  package var block: Int
  package var segment: Int
  /// By ``ObjectName/Kind``.
  package var kinds: [String: FleetTally] = [:]
  /// Generations that have blocks; those of them that are incomplete, and the first of these.
  package var generations: Int64 = 0
  package var incompleteGenerations: Int64 = 0
  package var incomplete: [Incomplete] = []
  package var leasesHeld: Int64 = 0
  package var leases: [Held] = []
  package var nodesToday: Int64 = 0
  /// Whether leases are worth having; nil when that could not be found out.
  package var keepsConditions: Bool?
  /// What the store does instead, or why that is not known.
  package var conditions: [String] = []

  package subscript(kind: ObjectName.Kind) -> FleetTally { kinds[kind.rawValue] ?? FleetTally() }

  /// Counts. `progress` hears how many objects so far.
  package init(_ bucket: FleetBucket, progress: (Int64) -> Void) throws(FleetCareError) {
    (place, block, segment) = (bucket.place, bucket.format.block, bucket.format.segment)
    let today = StoreDay.number(of: bucket.time)
    var open: Incomplete?
    var waiting: [Incomplete] = []
    var objects: Int64 = 0
    try bucket.pages("mfs1/") { page throws(FleetCareError) in
      var renewed: [StoreListing.Entry] = []
      for entry in page.entries {
        let name = ObjectName(key: entry.key)
        let kind = ObjectName.kind(of: entry.key).rawValue
        kinds[kind, default: FleetTally()].add(entry)
        switch name {
        case .block(let generation, _):
          let id = generation.description
          if open?.generation != id {
            if let open { waiting.append(open) }
            open = Incomplete(generation: id, blocks: 0, bytes: 0)
          }
          open?.blocks += 1
          let bytes = open?.bytes ?? 0
          open?.bytes = .clampedSum(bytes, entry.size)
        case .lease where (entry.modified ?? 0) >= bucket.time - Self.leaseSeconds: renewed.append(entry)
        case .node(today, _): nodesToday += 1
        default: break
        }
      }
      objects += Int64(page.entries.count)
      progress(objects)
      if waiting.count >= Self.headsAtOnce {
        try judge(waiting, bucket)
        waiting = []
      }
      try readLeases(renewed, bucket)
    }
    if let open { waiting.append(open) }
    try judge(waiting, bucket)
  }

  /// Compares what generations have with the sizes that their heads tell.
  private mutating func judge(_ found: [Incomplete], _ bucket: FleetBucket) throws(FleetCareError) {
    let sizes = Lock<[String: Int64]>([:])
    try bucket.each(found) { generation throws(FleetCareError) in
      guard let id = FleetID(generation.generation), let object = try bucket.object(.head(id)) else { return }
      // A head that cannot be read tells no size; `check` says what is wrong with it.
      guard let head = try? GenerationHead(object.body) else { return }
      sizes.withLock { $0[generation.generation] = head.size }
    }
    let known = sizes.withLock { $0 }
    for var generation in found {
      generations += 1
      generation.size = known[generation.generation]
      if generation.bytes == generation.size { continue }
      incompleteGenerations += 1
      if incomplete.count < Self.named { incomplete.append(generation) }
    }
  }

  private mutating func readLeases(_ entries: [StoreListing.Entry], _ bucket: FleetBucket) throws(FleetCareError) {
    let held = Lock<[Held]>([])
    try bucket.each(entries) { entry throws(FleetCareError) in
      guard case .lease(let generation, let segment)? = ObjectName(key: entry.key),
        let object = try bucket.object(.lease(generation, segment: segment)),
        let lease = try? Lease(object.body),  // one that cannot be read is held by nobody
        !lease.isReleased
      else { return }
      held.withLock {
        $0.append(
          Held(
            generation: generation.description, segment: segment, node: lease.node.hex(), blocks: lease.have.count,
            at: segment * bucket.format.segment + Int(lease.at), rate: Int64(lease.rate)))
      }
    }
    let found = held.withLock { $0 }.sorted { ($0.generation, $0.segment) < ($1.generation, $1.segment) }
    leasesHeld += Int64(found.count)
    leases += found.prefix(Self.named - leases.count)
  }

  /// Finds out which conditions the store keeps. It writes an object, and removes it.
  package mutating func probe(_ bucket: FleetBucket) {
    let verdict = Lock<StoreProbe.Verdict>(.unknown(.cancelled))
    let signal = Signal()
    bucket.calls.probe(nonce: UInt64.random(in: 0...UInt64.max).hex()) { found in
      verdict.withLock { $0 = found }
      signal.raise()
    }
    signal.wait()
    keepsConditions = nil
    switch verdict.withLock({ $0 }) {
    case .known(let found): (keepsConditions, conditions) = (found.allowsLeases, found.reasons)
    case .unknown(.refused(let reason)), .unknown(.busy(_, let reason)), .unknown(.broken(let reason)),
      .unknown(.full(let reason)):
      conditions = [reason]
    case .unknown: conditions = ["\(bucket.place): the store does not answer"]
    }
  }
}
