/// How many requests run beside each other, of each lane: so that leases need not wait for blocks, and what goes up
/// takes no line from readers.
package struct StoreLimits: Sendable, Equatable {
  package var small = 16
  package var behind = 12
  package var reads = 8
  package var uploads = 4

  package init(small: Int = 16, behind: Int = 12, reads: Int = 8, uploads: Int = 4) {
    (self.small, self.behind, self.reads, self.uploads) = (small, behind, reads, uploads)
  }

  subscript(lane: StoreRequest.Lane) -> Int {
    switch lane {
    case .small: small
    case .behind: behind
    case .reads: reads
    case .uploads: uploads
    }
  }
}

/// Which requests wait for their turn, in order, and how many run. Pure.
struct StoreLanes {
  private var waiting: [StoreRequest.Lane: [StoreRequestID]] = [:]
  private var running: [StoreRequest.Lane: Int] = [:]
  private let limits: StoreLimits

  init(_ limits: StoreLimits) { self.limits = limits }

  mutating func add(_ id: StoreRequestID, _ lane: StoreRequest.Lane) { waiting[lane, default: []].append(id) }

  /// The next request that may run; it counts as running from now on.
  mutating func next() -> StoreRequestID? {
    for lane in StoreRequest.Lane.allCases where running[lane, default: 0] < limits[lane] {
      guard let id = waiting[lane]?.first else { continue }
      waiting[lane]?.removeFirst()
      running[lane, default: 0] += 1
      return id
    }
    return nil
  }

  /// A request is over: one that ran, or one that waited.
  mutating func ended(_ id: StoreRequestID, _ lane: StoreRequest.Lane, didRun: Bool) {
    if didRun { running[lane, default: 0] -= 1 } else { waiting[lane]?.removeAll { $0 == id } }
  }
}
