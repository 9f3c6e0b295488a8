import Base
import TestSupport

@testable import Sharing

/// Nodes that copy the same list at the same time, in virtual time: the protocol's own code, a store, an origin.
final class FleetSimulation {
  struct Options {
    var nodes = 8
    /// Files and blocks of each.
    var files = 8
    var blocks = 64
    /// In KiB.
    var block = 4096
    var segment = 16
    /// In MiB a second: all of the origin, and each node's line to the store.
    var origin = 40.0
    var tier = 200.0
    /// Round trips in milliseconds.
    var originTrip = 20.0
    var storeTrip = 2.0
    var writersQueue = false
    var hasLeases = true
    /// The nodes begin within so many seconds.
    var spread = 0.5
    /// A node is killed, or stopped for five seconds, each so many seconds.
    var killsEach: Double?
    var stopsEach: Double?
    /// Half of the nodes do not reach the store from then for so long.
    var split: (from: Double, seconds: Double)?
    /// The store is silent for all from then for so long.
    var isGone: (from: Double, seconds: Double)?
    /// A reader's rate in MiB a second; nil: as fast as it gets bytes.
    var player: Double?
    var limit = 3600.0
  }

  enum Request {
    case look(Int), readLease(FleetNode.Place), writeLease(FleetNode.Place, Lease, Int?)
    case claim(Int, round: Int), upload(Int), probe
  }

  enum Event {
    case atStore(node: Int, life: Int, Request, sent: Int64, isAnswered: Bool)
    case answer(node: Int, life: Int, FleetNode.Place, ShareEvent)
    case timer(node: Int, life: Int, SimulatedNode.TimerKey, number: Int)
    case origin(epoch: Int)
    case starts(SimulatedOrigin.Fetch)
    case reads(node: Int, life: Int)
    case born(node: Int), kill, stop
    case cut(Bool), gone(Bool), probed(node: Int, life: Int, isThere: Bool), breaker(node: Int, life: Int)
  }

  let options: Options
  var random: SeededRandom
  var queue = EventQueue<Event>()
  var store: SimulatedStore
  var origin: SimulatedOrigin
  var nodes: [SimulatedNode] = []
  var fetched: [Int] = []
  var isStoreGone = false
  var wrongBytes = 0
  /// Blocks that were uploaded though they were there, and blocks that were fetched whole and dropped.
  var doubled = 0
  var bypassed = 0
  /// Parts from here on are windows of a reader: a sixteenth of a block each.
  static let firstWindow = 100
  private var scratch: [FleetNode.Action] = []

  var listBlocks: Int { options.files * options.blocks }
  var blockBytes: Double { Double(options.block) * 1024 }

  init(_ options: Options, seed: UInt64) {
    self.options = options
    random = SeededRandom(seed: seed)
    store = SimulatedStore(writersQueue: options.writersQueue)
    origin = SimulatedOrigin(bytesPerSecond: options.origin * 1_048_576)
    fetched = Array(repeating: 0, count: options.files * options.blocks)
    let ids = (0..<options.nodes).map { _ in random.next() }
    for id in ids { nodes.append(SimulatedNode(id: id, fleet: newFleet(id: id, ids: ids))) }
    for node in nodes.indices {
      queue.add(.born(node: node), at: microseconds(Double.random(in: 0...options.spread, using: &random)))
    }
    if let each = options.killsEach { queue.add(.kill, at: microseconds(each)) }
    if let each = options.stopsEach { queue.add(.stop, at: microseconds(each * 1.5)) }
    if let split = options.split {
      queue.add(.cut(true), at: microseconds(split.from))
      queue.add(.cut(false), at: microseconds(split.from + split.seconds))
    }
    if let gone = options.isGone {
      queue.add(.gone(true), at: microseconds(gone.from))
      queue.add(.gone(false), at: microseconds(gone.from + gone.seconds))
    }
  }

  func microseconds(_ seconds: Double) -> Int64 { Int64(seconds * 1e6) }

  private func newFleet(id: UInt64, ids: [UInt64]) -> FleetNode {
    var identity = FleetIdentity(node: id, boot: random.next())
    identity.block = options.block
    identity.segment = options.segment
    identity.roundTrip = Int(options.storeTrip)
    identity.hasLeases = options.hasLeases
    var fleet = FleetNode(identity, nodes: ids)
    for file in 0..<options.files {
      fleet.open(file, id: UInt64(file) &* 0x9e37_79b9_7f4a_7c15, blocks: options.blocks)
    }
    return fleet
  }

  func run() -> FleetReport {
    while let event = queue.next() {
      if queue.now > microseconds(options.limit) { break }
      take(event)
      if nodes.allSatisfy(\.isDone) { break }
    }
    return FleetReport(self)
  }

  private func take(_ event: Event) {
    switch event {
    case .atStore(let node, let life, let request, let sent, let isAnswered):
      serve(request, node: node, life: life, sent: sent, isAnswered: isAnswered)
    case .answer(let node, let life, let place, let answer):
      guard isLive(node, life, event) else { return }
      heard(from: answer, node)
      act(node) { $0.fleet.handle(answer, at: place, into: &$1) }
      blockMayBeHere(node, answer, place)
    case .timer(let node, let life, let key, let number):
      guard nodes[node].timers[key] == number, isLive(node, life, event) else { return }
      nodes[node].timers[key] = nil
      act(node) { node, actions in
        if let place = key.place {
          node.fleet.handle(.timer(key.timer), at: place, into: &actions)
        } else {
          node.fleet.workIsDue(into: &actions)
        }
      }
    case .origin(let epoch): if epoch == origin.epoch { partsAreHere() }
    case .starts(let fetch):
      guard nodes[fetch.node].life == fetch.life, !nodes[fetch.node].isDead else { return }
      begin(fetch)
    case .reads(let node, let life): if isLive(node, life, event) { read(node) }
    case .born(let node):
      let old = nodes[node]
      nodes[node] = SimulatedNode(id: old.id, fleet: newFleet(id: old.id, ids: nodes.map(\.id)))
      nodes[node].life = old.life + 1
      (nodes[node].longestWait, nodes[node].longestAt) = (old.longestWait, old.longestAt)
      (nodes[node].requests, nodes[node].isCut) = (old.requests, old.isCut)
      nodes[node].waitsSince = queue.now
      read(node)
    case .kill, .stop: harm(event)
    case .cut(let isCut): for node in nodes.indices where node % 2 == 0 { nodes[node].isCut = isCut }
    case .gone(let isGone): isStoreGone = isGone
    case .breaker(let node, let life):
      guard isLive(node, life, event), nodes[node].breaker.asks(now: instant) else { return }
      send(.probe, from: node)
    case .probed(let node, let life, let isThere):
      guard isLive(node, life, event) else { return }
      isThere ? nodes[node].breaker.answered(now: instant) : nodes[node].breaker.failed(.silent, now: instant)
      breakerMayHaveChanged(node)
    }
  }

  var instant: Instant { Instant(nanoseconds: queue.now * 1000) }

  /// Whether the node is there; what happens to one that is stopped waits.
  private func isLive(_ node: Int, _ life: Int, _ event: Event) -> Bool {
    guard nodes[node].life == life, !nodes[node].isDead else { return false }
    guard nodes[node].stoppedUntil <= queue.now else {
      queue.add(event, at: nodes[node].stoppedUntil)
      return false
    }
    return true
  }

  /// Has a node do something, and does what it wants done.
  func act(_ index: Int, _ body: (inout SimulatedNode, inout [FleetNode.Action]) -> Void) {
    var actions = scratch
    scratch = []
    actions.removeAll(keepingCapacity: true)
    body(&nodes[index], &actions)
    for action in actions {
      switch action {
      case .share(let place, let action): perform(action, at: place, node: index)
      case .lookForWork(let milliseconds): setTimer(.init(place: nil, timer: .poll), milliseconds, index)
      }
    }
    scratch = actions
  }

  private func setTimer(_ key: SimulatedNode.TimerKey, _ milliseconds: Int, _ index: Int) {
    nodes[index].timerCount += 1
    let number = nodes[index].timerCount
    nodes[index].timers[key] = number
    queue.add(
      .timer(node: index, life: nodes[index].life, key, number: number), at: queue.now + Int64(milliseconds) * 1000)
  }

  private func perform(_ action: ShareAction, at place: FleetNode.Place, node index: Int) {
    let first = place.generation * options.blocks + place.segment * options.segment
    switch action {
    case .look(let block): send(.look(first + block), from: index)
    case .readLease: send(.readLease(place), from: index)
    case .writeLease(let lease, .absent): send(.writeLease(place, lease, nil), from: index)
    case .writeLease(let lease, .version(let version)):
      send(.writeLease(place, lease, Int(version.etag)), from: index)
    case .claim(let block, let round): send(.claim(first + block, round: round), from: index)
    case .fetch(let block):
      fetched[first + block] += 1
      let fetch = SimulatedOrigin.Fetch(node: index, life: nodes[index].life, block: first + block, part: 0)
      queue.add(.starts(fetch), at: queue.now + microseconds(options.originTrip / 1000))
    case .bypass(let block):
      bypassed += 1
      let fetch = SimulatedOrigin.Fetch(
        node: index, life: nodes[index].life, block: first + block, part: Self.firstWindow)
      queue.add(.starts(fetch), at: queue.now + microseconds(options.originTrip / 1000))
    case .stopFetch(let block):
      origin.stop(now: queue.now) { $0.node == index && $0.block == first + block }
      plan()
      nodes[index].parts[first + block] = nil
      answer(index, .fetched(block, .stopped), place, at: queue.now)
    case .upload(let block): upload(block, first, place, index)
    case .set(let timer, let milliseconds): setTimer(.init(place: place, timer: timer), milliseconds, index)
    case .cancel(let timer): nodes[index].timers[.init(place: place, timer: timer)] = nil
    case .end: break
    }
  }

  func answer(_ node: Int, _ event: ShareEvent, _ place: FleetNode.Place, at time: Int64) {
    queue.add(.answer(node: node, life: nodes[node].life, place, event), at: time)
  }

  func place(of block: Int) -> (FleetNode.Place, Int) {
    let inFile = block % options.blocks
    return (
      FleetNode.Place(generation: block / options.blocks, segment: inFile / options.segment), inFile % options.segment
    )
  }
}
