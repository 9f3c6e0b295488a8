/// All that one node shares: its segments, what its readers want of them, and where its background download goes. Pure,
/// as ``SegmentShare`` is.
package struct FleetNode: Sendable {
  /// A segment: the caller's number of the generation, and its place.
  package struct Place: Hashable, Sendable {
    /// What the caller calls the generation.
    package var generation: Int
    /// Which segment of it.
    package var segment: Int

    /// That place.
    package init(generation: Int, segment: Int) {
      self.generation = generation
      self.segment = segment
    }
  }

  /// What the caller is to do.
  package enum Action: Hashable, Sendable {
    /// For a segment.
    case share(Place, ShareAction)
    /// Call ``workIsDue(into:)`` in so many milliseconds; it replaces what was said before.
    case lookForWork(after: Int)
  }

  struct Segment {
    var share = SegmentShare()
    var setup: ShareSetup
    var all: BlockSet
  }

  /// What is known of a generation that is open here.
  struct Generation {
    var id: UInt64
    var blocks: Int
    /// Blocks that are here, of segments that are not in memory.
    var held: [Int: BlockSet] = [:]
    /// Blocks that a list of the store named, when it was opened.
    var listed: [Int: BlockSet] = [:]
    /// The segments in the order in which this node's background download takes them.
    var order: [Int]
    var isDownloaded = false
    var ending: EndOfSharing?
  }

  /// A reader's block and how many behind it it will want.
  struct Reader { var generation: Int, block: Int, ahead: Int }

  /// Who this node is, and how the bucket is laid out.
  package private(set) var identity: FleetIdentity
  /// The nodes that were seen today, with this one.
  package private(set) var nodes: [UInt64]
  var isUp = true
  var ownRate = 0
  var generations: [Int: Generation] = [:]
  var segments: [Place: Segment] = [:]
  var readers: [Int: Reader] = [:]
  /// The generations that are downloaded, the first one first.
  var downloads: [Int] = []
  /// Where the background download is.
  var background: Place?
  /// Where it was held up by other nodes, since it last had gone everywhere.
  var passed: Set<Place> = []
  var isWaitingForWork = false
  /// Whether its turn to begin has come among nodes that stand back.
  var hasTurn = false
  private var scratch: [ShareAction] = []

  /// A node of a fleet of which `nodes` were seen today.
  package init(_ identity: FleetIdentity, nodes: [UInt64]) {
    self.identity = identity
    self.nodes = nodes.contains(identity.node) ? nodes : nodes + [identity.node]
  }

  /// The lease in hand at a segment, for a status.
  package func lease(at place: Place) -> Lease? { segments[place]?.share.lease }

  /// The fleet grew or shrank: a listing of the nodes seen today.
  package mutating func saw(nodes: [UInt64]) {
    self.nodes = nodes.contains(identity.node) ? nodes : nodes + [identity.node]
    setUp()
  }

  /// What was found out of the store: its round trip in milliseconds, and whether its conditions are atomic.
  package mutating func learned(roundTrip: Int, hasLeases: Bool) {
    identity.roundTrip = roundTrip
    identity.hasLeases = hasLeases
    setUp()
  }

  private mutating func setUp() {
    for place in Array(segments.keys) {
      let setup = setup(of: place)
      segments[place]?.setup = setup
    }
  }

  /// Opens a generation of `blocks` blocks, of which `held` are here. `id`: the first eight bytes of its id.
  package mutating func open(_ generation: Int, id: UInt64, blocks: Int, held: [Int: BlockSet] = [:]) {
    let count = (blocks + identity.segment - 1) / identity.segment
    let order = (0..<count).map { (Rendezvous.weight(node: identity.node, generation: id, segment: $0), $0) }.sorted(
      by: >)
    generations[generation] = Generation(id: id, blocks: blocks, held: held, order: order.map(\.1))
  }

  /// A list of the store names these blocks of a generation, and no others.
  package mutating func listed(_ generation: Int, _ blocks: [Int: BlockSet], into actions: inout [Action]) {
    guard generations[generation] != nil else { return }
    generations[generation]?.listed = blocks
    for place in segments.keys.sorted(by: <) where place.generation == generation {
      send(.listed(blocks[place.segment] ?? BlockSet()), to: place, into: &actions)
    }
    lookForWork(into: &actions)
  }

  /// Whether something is under way or to come for a generation.
  package func isBusy(_ generation: Int) -> Bool {
    segments.contains { $0.key.generation == generation && !$0.value.share.isIdle }
  }

  /// Drops what is left of a closed generation that is not busy.
  package mutating func forget(_ generation: Int) {
    guard generations[generation] == nil else { return }
    for place in segments.keys where place.generation == generation { segments[place] = nil }
  }

  /// The leases in hand, for a status.
  package var leases: [(place: Place, lease: Lease)] {
    segments.keys.sorted(by: <).compactMap { place in lease(at: place).map { (place, $0) } }
  }

  /// Closes a generation. What is under way for it ends by itself.
  package mutating func close(_ generation: Int, into actions: inout [Action]) {
    for (reader, place) in readers where place.generation == generation { readers[reader] = nil }
    downloads.removeAll { $0 == generation }
    update(generation, into: &actions)
    generations[generation] = nil
  }

  /// A reader wants a block and `ahead` behind it; nil: it is gone.
  package mutating func read(
    _ reader: Int, _ generation: Int, block: Int?, ahead: Int = 0, into actions: inout [Action]
  ) {
    let before = readers[reader]?.generation
    readers[reader] = block.map { Reader(generation: generation, block: $0, ahead: ahead) }
    if let before, before != generation { update(before, into: &actions) }
    update(generation, into: &actions)
    lookForWork(into: &actions)
  }

  /// Whether the rest of a generation is downloaded in the background.
  package mutating func download(_ generation: Int, isOn: Bool, into actions: inout [Action]) {
    guard generations[generation] != nil, generations[generation]?.isDownloaded != isOn else { return }
    generations[generation]?.isDownloaded = isOn
    downloads.removeAll { $0 == generation }
    if isOn { downloads.append(generation) }
    update(generation, into: &actions)
    lookForWork(into: &actions)
  }

  /// The breaker says whether the store is to be used.
  package mutating func tier(isUp: Bool, into actions: inout [Action]) {
    self.isUp = isUp
    passed = []
    for place in segments.keys.sorted(by: <) { send(.tier(isUp: isUp), to: place, into: &actions) }
    lookForWork(into: &actions)
  }

  /// Something happened to a segment.
  package mutating func handle(_ event: ShareEvent, at place: Place, into actions: inout [Action]) {
    if case .arriving(_, _, let rate) = event, rate > 0 { ownRate = rate }
    send(event, to: place, into: &actions)
    if let segment = segments[place] {
      if let ending = segment.share.ending { end(place, ending, into: &actions) }
      drop(place)
    } else if case .uploaded(_, .differs) = event {
      // What was stored here before goes up without a segment in memory.
      actions.append(.share(place, .end(.unstable)))
      end(place, .unstable, into: &actions)
    } else {
      return
    }
    lookForWork(into: &actions)
  }

  /// A segment is over, and with it its generation: so are the others.
  private mutating func end(_ place: Place, _ ending: EndOfSharing, into actions: inout [Action]) {
    guard generations[place.generation]?.ending == nil else { return }
    generations[place.generation]?.ending = ending
    for other in segments.keys.sorted(by: <) where other.generation == place.generation && other != place {
      send(.over(ending), to: other, into: &actions)
    }
  }

  /// Sends an event to a segment that is in memory.
  mutating func send(_ event: ShareEvent, to place: Place, into actions: inout [Action]) {
    guard let index = segments.index(forKey: place) else { return }
    segments.values[index].setup.times.ownRate = ownRate
    let setup = segments.values[index].setup
    segments.values[index].share.handle(event, setup, into: &scratch)
    for action in scratch { actions.append(.share(place, action)) }
    scratch.removeAll(keepingCapacity: true)
  }

  func setup(of place: Place) -> ShareSetup {
    let id = generations[place.generation]?.id ?? 0
    let rank = Rendezvous.rank(of: identity.node, among: nodes, generation: id, segment: place.segment)
    let times = ShareTimes(block: identity.block, roundTrip: identity.roundTrip, nodes: nodes.count, rank: rank)
    return ShareSetup(node: identity.node, boot: identity.boot, times: times, hasLeases: identity.hasLeases)
  }

  /// Forgets a segment for which nothing is to be done; what is here of it is kept. Not while a lease is watched: a
  /// reader that goes on in it must not wait for the same dead holder from the beginning.
  private mutating func drop(_ place: Place) {
    guard let share = segments[place]?.share, share.isIdle, !share.isWatched, background != place else { return }
    generations[place.generation]?.held[place.segment] = share.here
    segments[place] = nil
  }
}

extension FleetNode.Place: Comparable {
  /// By generation, then by segment.
  package static func < (left: Self, right: Self) -> Bool {
    (left.generation, left.segment) < (right.generation, right.segment)
  }
}

extension FleetNode {
  /// Whether the store should have a block of a segment.
  package func isKnown(_ block: Int, at place: Place) -> Bool { segments[place]?.share.known.contains(block) ?? false }

  /// Whether a block of a segment is on this node.
  package func holds(_ block: Int, at place: Place) -> Bool {
    segments[place]?.share.here.contains(block) ?? generations[place.generation]?.held[place.segment]?.contains(block)
      ?? false
  }
}
