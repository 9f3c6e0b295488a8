@testable import Sharing

/// Two worlds are one state if they differ in nothing that can matter: in which node is which, in the order of requests
/// to be served, in how versions are numbered, in how often a lease was renewed.
extension ExploredWorld {
  func digest(_ settings: Settings) -> UInt64 {
    // The nodes in an order that depends on what they are. Where two are alike, a state may be visited twice.
    let order = nodes.indices.map { (likeness(of: $0), $0) }.sorted(by: <).map(\.1)
    var place = Array(repeating: 0, count: nodes.count)
    for (new, old) in order.enumerated() { place[old] = new }
    var names = store.map { ["\($0.leaseVersion)": 0] }
    func name(_ version: ObjectVersion?, _ segment: Int) -> Int {
      guard let version else { return -1 }
      if let known = names[segment][version.etag] { return known }
      let new = names[segment].count
      names[segment][version.etag] = new
      return new
    }
    var hasher = Hasher()
    for segment in store {
      hasher.combine(segment.blocks)
      hasher.combine(segment.claims)
      hasher.combine(segment.lease.map { Self.plain($0, place) })
    }
    hasher.combine([Int(origin), crashes, losses, changes, timers])
    for index in order { combine(index, place, into: &hasher, name) }
    var sum = 0
    var numbers = Array(repeating: 0, count: nodes.count)
    for request in requests {
      let (plain, version) = Self.plain(request, place)
      // Requests that may be served in any order are hashed in any order.
      let isOrdered = settings.isInOrder && !request.isAbandoned && request.answer == nil
      if isOrdered { numbers[request.node] += 1 }
      var one = Hasher()
      one.combine(isOrdered ? numbers[request.node] : 0)
      one.combine(plain)
      one.combine(version.map { names[request.place.segment][$0.etag] ?? -2 })
      sum &+= one.finalize()
    }
    hasher.combine(sum)
    return UInt64(bitPattern: Int64(hasher.finalize()))
  }

  /// What a node is; `place` says what other nodes are called, `name` how versions of a segment's lease are.
  func combine(
    _ index: Int, _ place: [Int], into hasher: inout Hasher, _ name: (ObjectVersion?, Int) -> Int
  ) {
    let fleet = nodes[index].fleet
    hasher.combine(nodes[index].bytes)
    hasher.combine([fleet.isUp, fleet.isWaitingForWork, fleet.hasTurn])
    hasher.combine(fleet.background)
    hasher.combine(fleet.passed)
    if let generation = fleet.generations[0] {
      hasher.combine(generation.held)
      hasher.combine(generation.order)
      hasher.combine(generation.ending)
    }
    for segment in store.indices {
      guard var share = fleet.segments[Self.place(segment)]?.share else {
        hasher.combine(false)
        continue
      }
      hasher.combine(name(share.seenVersion, segment))
      hasher.combine(name(share.ownVersion, segment))
      (share.seenVersion, share.ownVersion) = (nil, nil)
      share.seen = share.seen.map { Self.plain($0, place) }
      share.own = share.own.map { Self.plain($0, place) }
      hasher.combine(share)
    }
  }

  /// What a node is, without who it is.
  private func likeness(of index: Int) -> Int {
    var place = Array(repeating: 1, count: nodes.count)
    place[index] = 0
    var hasher = Hasher()
    for segment in store { hasher.combine(segment.lease?.node == UInt64(index)) }
    combine(index, place, into: &hasher) { _, _ in 0 }
    hasher.combine(requests.count { $0.node == index })
    return hasher.finalize()
  }

  private static func plain(_ lease: Lease, _ place: [Int]) -> Lease {
    var lease = lease
    lease.counter = 0
    lease.node = UInt64(place[Int(lease.node)])
    return lease
  }

  private static func plain(_ request: Request, _ place: [Int]) -> (Request, ObjectVersion?) {
    var request = request
    var version: ObjectVersion?
    request.node = place[request.node]
    if case .writeLease(let lease, let condition) = request.action {
      request.action = .writeLease(plain(lease, place), .absent)
      if case .version(let condition) = condition { version = condition }
    }
    switch request.answer {
    case .leaseRead(.found(let lease, let read)):
      request.answer = .leaseRead(.found(plain(lease, place), ObjectVersion(etag: "")))
      version = read
    case .leaseWritten(.done(let written)):
      request.answer = .leaseWritten(.done(ObjectVersion(etag: "")))
      version = written
    default: break
    }
    return (request, version)
  }
}
