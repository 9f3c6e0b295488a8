@testable import Sharing

/// Two worlds are one state if they differ in nothing that can matter: in which node is which, in the order of requests
/// to be served, in how versions are numbered, in how often a lease was renewed.
extension ExploredWorld {
  func digest(_ settings: Settings) -> UInt64 {
    // The nodes in an order that depends on what they are. Where two are alike, a state may be visited twice.
    let order = nodes.indices.map { (likeness(of: $0), $0) }.sorted(by: <).map(\.1)
    var place = Array(repeating: 0, count: nodes.count)
    for (new, old) in order.enumerated() { place[old] = new }
    var names: [String: Int] = ["\(leaseVersion)": 0]
    func name(_ version: ObjectVersion?) -> Int {
      guard let version else { return -1 }
      if let known = names[version.etag] { return known }
      names[version.etag] = names.count
      return names.count - 1
    }
    var hasher = Hasher()
    hasher.combine(stored)
    hasher.combine(claims)
    hasher.combine(lease.map { Self.plain($0, place) })
    hasher.combine([Int(origin), crashes, losses, changes, timers])
    for index in order {
      var node = nodes[index]
      hasher.combine(name(node.share.seenVersion))
      hasher.combine(name(node.share.ownVersion))
      (node.share.seenVersion, node.share.ownVersion) = (nil, nil)
      node.share.seen = node.share.seen.map { Self.plain($0, place) }
      node.share.own = node.share.own.map { Self.plain($0, place) }
      hasher.combine(node)
    }
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
      one.combine(version.map { names[$0.etag] ?? -2 })
      sum &+= one.finalize()
    }
    hasher.combine(sum)
    return UInt64(bitPattern: Int64(hasher.finalize()))
  }

  /// What a node is, without who it is.
  private func likeness(of index: Int) -> Int {
    var place = Array(repeating: 1, count: nodes.count)
    place[index] = 0
    var hasher = Hasher()
    hasher.combine(lease?.node == UInt64(index))
    var node = nodes[index]
    (node.share.seenVersion, node.share.ownVersion) = (nil, nil)
    node.share.seen = node.share.seen.map { Self.plain($0, place) }
    node.share.own = node.share.own.map { Self.plain($0, place) }
    hasher.combine(node)
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
