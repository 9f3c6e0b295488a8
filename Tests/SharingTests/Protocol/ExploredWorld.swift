@testable import Sharing

/// Some nodes, one file of one or two segments, a store and an origin: all that the explorer varies. Times are left
/// out: a timer that is set may fire at any moment, so anyone may suspect anyone.
struct ExploredWorld {
  typealias Place = FleetNode.Place

  /// What the explorer breaks on purpose, to see that it finds it.
  enum Breakage { case noIfRange, plainPut, noTakeover }

  struct Settings {
    var nodes = 3
    /// The segments. A reader reads the first one, and a download in the background takes them all.
    var segments = 1
    /// The blocks of each segment.
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

  struct Node {
    var fleet: FleetNode
    /// Which version of the origin's bytes each block here has; 0: none.
    var bytes: [[UInt8]]
  }

  /// What the store has of a segment.
  struct Stored: Hashable {
    /// Which version of the origin's bytes each block has; 0: none.
    var blocks: [UInt8]
    var claims: Set<Int> = []
    var lease: Lease?
    var leaseVersion = 0
  }

  /// A request that is under way. When nobody waits for it any more it may still be served.
  struct Request: Hashable {
    var node: Int
    var place: Place
    var action: ShareAction
    var isAbandoned = false
    /// The answer that was given when it was served, which the node has not got yet.
    var answer: ShareEvent?
  }

  var nodes: [Node] = []
  var requests: [Request] = []
  var store: [Stored]
  var origin: UInt8 = 1
  var crashes, losses, changes, timers: Int
  /// What must never be.
  var violation: String?

  init(_ settings: Settings) {
    store = Array(repeating: Stored(blocks: Array(repeating: 0, count: settings.blocks)), count: settings.segments)
    (crashes, losses, changes) = (settings.crashes, settings.losses, settings.changes)
    timers = settings.timers
    for index in 0..<settings.nodes {
      let none = Array(repeating: Array(repeating: UInt8(0), count: settings.blocks), count: settings.segments)
      nodes.append(Node(fleet: Self.fleet(index, boot: 1, settings), bytes: none))
    }
    for index in nodes.indices { start(index, settings) }
  }

  private static func fleet(_ index: Int, boot: UInt64, _ settings: Settings) -> FleetNode {
    var identity = FleetIdentity(node: UInt64(index), boot: boot)
    identity.segment = settings.blocks
    identity.hasLeases = settings.hasLeases
    return FleetNode(identity, nodes: (0..<settings.nodes).map(UInt64.init))
  }

  /// A node begins, with nothing.
  private mutating func start(_ index: Int, _ settings: Settings) {
    drive(index, settings) { fleet, actions in
      fleet.open(0, id: 1, blocks: settings.segments * settings.blocks)
      fleet.read(0, 0, block: 0, ahead: settings.blocks - 1, into: &actions)
      if settings.segments > 1 { fleet.download(0, isOn: true, into: &actions) }
    }
  }

  /// A node is killed, and comes back with nothing.
  mutating func restart(_ index: Int, _ settings: Settings) {
    nodes[index].fleet = Self.fleet(index, boot: nodes[index].fleet.identity.boot + 1, settings)
    nodes[index].bytes = nodes[index].bytes.map { $0.map { _ in 0 } }
    start(index, settings)
  }

  // MARK: a node's part

  mutating func send(_ event: ShareEvent, to index: Int, _ place: Place, _ settings: Settings) {
    drive(index, settings) { $0.handle(event, at: place, into: &$1) }
  }

  /// Lets a node do something, and does what it asks for.
  mutating func drive(
    _ index: Int, _ settings: Settings, _ step: (inout FleetNode, inout [FleetNode.Action]) -> Void
  ) {
    var actions: [FleetNode.Action] = []
    step(&nodes[index].fleet, &actions)
    for action in actions {
      // When the download is to look for work is a step of its own.
      if case .share(let place, let action) = action { perform(action, index, place, settings) }
    }
    for (segment, bytes) in nodes[index].bytes.enumerated() {
      for block in bytes.indices where bytes[block] == 0 && nodes[index].fleet.holds(block, at: Self.place(segment)) {
        violation = "node \(index) believes to have block \(block) of segment \(segment)"
      }
    }
  }

  private mutating func perform(_ action: ShareAction, _ index: Int, _ place: Place, _ settings: Settings) {
    switch action {
    // What follows from these is a request that may take any time: it makes no difference when they fire.
    case .set(.jitter, _), .set(.poll, _), .set(.claim, _):
      if case .set(let timer, _) = action { send(.timer(timer), to: index, place, settings) }
    case .set, .cancel, .bypass, .end: break
    // Of further rounds each is like the second.
    case .claim(let block, let round):
      requests.append(Request(node: index, place: place, action: .claim(block, round: min(round, 2))))
      nodes[index].fleet.segments[place]?.share.claim?.round = min(round, 2)
    case .stopFetch(let block):
      requests.removeAll {
        $0.node == index && $0.place == place && $0.action == .fetch(block) && !$0.isAbandoned
      }
      send(.fetched(block, .stopped), to: index, place, settings)
    default: requests.append(Request(node: index, place: place, action: action))
    }
  }

  /// A timer fires, as often as it takes to come to what it is for.
  mutating func fire(_ timer: ShareTimer, _ index: Int, _ place: Place, _ settings: Settings) {
    func share() -> SegmentShare? { nodes[index].fleet.segments[place]?.share }
    send(.timer(timer), to: index, place, settings)
    switch timer {
    case .patience(let block):
      while let share = share(), share.waits.contains(where: { $0.block == block }), !share.overdue.contains(block) {
        send(.timer(timer), to: index, place, settings)
      }
    case .renew:
      if let share = share(), share.armed & timer.bit != 0 { send(.timer(timer), to: index, place, settings) }
    default: break
    }
  }

  /// Whether the node has all, or knows that the origin has another version.
  func isThrough(_ index: Int) -> Bool {
    let node = nodes[index]
    if node.fleet.generations[0]?.ending != nil { return true }
    return node.bytes.indices.allSatisfy { segment in
      node.bytes[segment].indices.allSatisfy { node.fleet.holds($0, at: Self.place(segment)) }
    }
  }

  static func place(_ segment: Int) -> Place { Place(generation: 0, segment: segment) }

  // MARK: the store's and the origin's part

  /// Serves a request, and gives the answer.
  mutating func serve(_ request: Request, _ settings: Settings) -> ShareEvent {
    let segment = request.place.segment
    switch request.action {
    case .look(let block): return .looked(block, store[segment].blocks[block] == 0 ? .absent : .found)
    case .readLease:
      guard let lease = store[segment].lease else { return .leaseRead(.absent) }
      return .leaseRead(.found(lease, ObjectVersion(etag: "\(store[segment].leaseVersion)")))
    case .writeLease(let lease, let condition):
      switch condition {
      case .absent: if store[segment].lease != nil { return .leaseWritten(.refused) }
      case .version(let version):
        if store[segment].lease == nil || version.etag != "\(store[segment].leaseVersion)" {
          return .leaseWritten(.refused)
        }
      }
      store[segment].lease = lease
      store[segment].leaseVersion = freshVersion(at: request.place)
      return .leaseWritten(.done(ObjectVersion(etag: "\(store[segment].leaseVersion)")))
    case .claim(let block, let round):
      let isFirst = store[segment].claims.insert(block + settings.blocks * min(round, 1)).inserted
      return .claimed(block, isFirst || round > 1 ? .done(ObjectVersion(etag: "")) : .refused)
    case .fetch(let block):
      if origin != 1, settings.breakage != .noIfRange { return .fetched(block, .changed) }
      return .fetched(block, .whole)
    case .upload(let block):
      let bytes = nodes[request.node].bytes[segment][block]
      if store[segment].blocks[block] != 0 {
        if settings.breakage != .plainPut { return .uploaded(block, .existed) }
        violation = "block \(block) is overwritten"
      }
      store[segment].blocks[block] = max(bytes, 1)
      return .uploaded(block, .stored)
    default: preconditionFailure("\(request.action) is no request")
    }
  }

  /// The node gets the answer; its bytes with it.
  mutating func deliver(_ answer: ShareEvent, to index: Int, _ place: Place, _ settings: Settings) {
    let segment = place.segment
    switch answer {
    case .looked(let block, .found): nodes[index].bytes[segment][block] = store[segment].blocks[block]
    case .fetched(let block, .whole): nodes[index].bytes[segment][block] = origin
    default: break
    }
    for block in 0..<settings.blocks where nodes[index].bytes[segment][block] > 1 {
      violation = "node \(index) has bytes of another version in block \(block)"
    }
    send(answer, to: index, place, settings)
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

  /// A number that no version of a segment's lease has that anybody knows.
  private func freshVersion(at place: Place) -> Int {
    var known: Set<String> = ["\(store[place.segment].leaseVersion)"]
    for node in nodes {
      guard let share = node.fleet.segments[place]?.share else { continue }
      known.formUnion([share.seenVersion, share.ownVersion].compactMap { $0?.etag })
    }
    for request in requests where request.place == place {
      if case .writeLease(_, .version(let version)) = request.action { known.insert(version.etag) }
      if case .leaseRead(.found(_, let version)) = request.answer { known.insert(version.etag) }
      if case .leaseWritten(.done(let version)) = request.answer { known.insert(version.etag) }
    }
    var version = 0
    while known.contains("\(version)") { version += 1 }
    return version
  }
}
