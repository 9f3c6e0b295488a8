@testable import Sharing

/// Some nodes, one segment, a store and an origin: all that the explorer varies. Times are left out: a timer that is
/// set may fire at any moment, so anyone may suspect anyone.
struct ExploredWorld {
  /// What the explorer breaks on purpose, to see that it finds it.
  enum Breakage { case noIfRange, plainPut, noTakeover }

  struct Settings {
    var nodes = 3
    var blocks = 2
    /// How often in a run a node crashes and comes back empty, a request or an answer is lost, and the origin changes.
    var crashes = 0
    var losses = 0
    var changes = 0
    /// How often somebody suspects somebody: a timer of a holder's progress, of a lease's time or of a reader's
    /// patience fires, or a lease is renewed.
    var timers = 2
    /// Whether a node's requests are served in the order in which it sent them, but for those that are late.
    var isInOrder = false
    var hasLeases = true
    var breakage: Breakage?
  }

  struct Node: Hashable {
    var share = SegmentShare()
    var boot: UInt64 = 1
    /// Which version of the origin's bytes each block here has; 0: none.
    var bytes: [UInt8]
  }

  /// A request that is under way. When nobody waits for it any more it may still be served.
  struct Request: Hashable {
    var node: Int
    var action: ShareAction
    var isAbandoned = false
    /// The answer that was given when it was served, which the node has not got yet.
    var answer: ShareEvent?
  }

  var nodes: [Node]
  var requests: [Request] = []
  var stored: [UInt8]
  var claims: Set<Int> = []
  var lease: Lease?
  var leaseVersion = 0
  var origin: UInt8 = 1
  var crashes, losses, changes, timers: Int
  /// What must never be.
  var violation: String?

  init(_ settings: Settings) {
    nodes = (0..<settings.nodes).map { _ in Node(bytes: Array(repeating: 0, count: settings.blocks)) }
    stored = Array(repeating: 0, count: settings.blocks)
    (crashes, losses, changes) = (settings.crashes, settings.losses, settings.changes)
    timers = settings.timers
    for node in nodes.indices { send(Self.start(settings), to: node, settings) }
  }

  static func start(_ settings: Settings) -> ShareEvent {
    .want(reader: 0, foreground: BlockSet(0..<settings.blocks), background: BlockSet())
  }

  // MARK: a node's part

  mutating func send(_ event: ShareEvent, to index: Int, _ settings: Settings) {
    // All nodes have the same rank, so that it does not matter which is which.
    let times = ShareTimes(roundTrip: 0, nodes: settings.nodes, rank: 1)
    let setup = ShareSetup(
      node: UInt64(index), boot: nodes[index].boot, times: times, hasLeases: settings.hasLeases)
    var actions: [ShareAction] = []
    nodes[index].share.handle(event, setup, into: &actions)
    for action in actions {
      switch action {
      // What follows from these is a request that may take any time: it makes no difference when they fire.
      case .set(.jitter, _), .set(.poll, _), .set(.claim, _):
        if case .set(let timer, _) = action { send(.timer(timer), to: index, settings) }
      case .set, .cancel, .bypass, .end: break
      // Of further rounds each is like the second.
      case .claim(let block, let round):
        requests.append(Request(node: index, action: .claim(block, round: min(round, 2))))
        nodes[index].share.claim?.round = min(round, 2)
      case .stopFetch(let block):
        requests.removeAll { $0.node == index && $0.action == .fetch(block) && !$0.isAbandoned }
        send(.fetched(block, .stopped), to: index, settings)
      default: requests.append(Request(node: index, action: action))
      }
    }
    for block in 0..<settings.blocks where nodes[index].share.here.contains(block) && nodes[index].bytes[block] == 0 {
      violation = "node \(index) believes to have block \(block)"
    }
  }

  /// A timer fires, as often as it takes to come to what it is for.
  mutating func fire(_ timer: ShareTimer, _ index: Int, _ settings: Settings) {
    send(.timer(timer), to: index, settings)
    switch timer {
    case .patience:
      while !nodes[index].share.isImpatient, nodes[index].share.armed & timer.bit != 0 {
        send(.timer(timer), to: index, settings)
      }
    case .renew: if nodes[index].share.armed & timer.bit != 0 { send(.timer(timer), to: index, settings) }
    default: break
    }
  }

  /// Whether the node has all, or knows that the origin has another version.
  func isThrough(_ index: Int) -> Bool { nodes[index].share.missing.isEmpty || nodes[index].share.ending != nil }

  // MARK: the store's and the origin's part

  /// Serves a request, and gives the answer.
  mutating func serve(_ request: Request, _ settings: Settings) -> ShareEvent {
    switch request.action {
    case .look(let block): return .looked(block, stored[block] == 0 ? .absent : .found)
    case .readLease:
      guard let lease else { return .leaseRead(.absent) }
      return .leaseRead(.found(lease, ObjectVersion(etag: "\(leaseVersion)")))
    case .writeLease(let lease, let condition):
      switch condition {
      case .absent: if self.lease != nil { return .leaseWritten(.refused) }
      case .version(let version):
        if self.lease == nil || version.etag != "\(leaseVersion)" { return .leaseWritten(.refused) }
      }
      self.lease = lease
      leaseVersion = freshVersion()
      return .leaseWritten(.done(ObjectVersion(etag: "\(leaseVersion)")))
    case .claim(let block, let round):
      let isFirst = claims.insert(block + settings.blocks * min(round, 1)).inserted
      return .claimed(block, isFirst || round > 1 ? .done(ObjectVersion(etag: "")) : .refused)
    case .fetch(let block):
      if origin != 1, settings.breakage != .noIfRange { return .fetched(block, .changed) }
      return .fetched(block, .whole)
    case .upload(let block):
      let bytes = nodes[request.node].bytes[block]
      if stored[block] != 0 {
        if settings.breakage != .plainPut { return .uploaded(block, .existed) }
        violation = "block \(block) is overwritten"
      }
      stored[block] = max(bytes, 1)
      return .uploaded(block, .stored)
    default: preconditionFailure("\(request.action) is no request")
    }
  }

  /// The node gets the answer; its bytes with it.
  mutating func deliver(_ answer: ShareEvent, to index: Int, _ settings: Settings) {
    switch answer {
    case .looked(let block, .found): nodes[index].bytes[block] = stored[block]
    case .fetched(let block, .whole): nodes[index].bytes[block] = origin
    default: break
    }
    for block in 0..<settings.blocks where nodes[index].bytes[block] > 1 {
      violation = "node \(index) has bytes of another version in block \(block)"
    }
    send(answer, to: index, settings)
  }

  /// What a node is told when no answer comes.
  static func silence(after action: ShareAction) -> ShareEvent {
    switch action {
    case .look(let block): .looked(block, .failed)
    case .readLease: .leaseRead(.failed)
    case .writeLease: .leaseWritten(.unknown)
    case .claim(let block, _): .claimed(block, .unknown)
    case .fetch(let block): .fetched(block, .failed)
    case .upload(let block): .uploaded(block, .dropped)
    default: preconditionFailure("\(action) is no request")
    }
  }

  /// A number that no version has that anybody knows.
  private func freshVersion() -> Int {
    var known: Set<String> = ["\(leaseVersion)"]
    for node in nodes { known.formUnion([node.share.seenVersion, node.share.ownVersion].compactMap { $0?.etag }) }
    for request in requests {
      if case .writeLease(_, .version(let version)) = request.action { known.insert(version.etag) }
      if case .leaseRead(.found(_, let version)) = request.answer { known.insert(version.etag) }
      if case .leaseWritten(.done(let version)) = request.answer { known.insert(version.etag) }
    }
    var version = 0
    while known.contains("\(version)") { version += 1 }
    return version
  }
}
