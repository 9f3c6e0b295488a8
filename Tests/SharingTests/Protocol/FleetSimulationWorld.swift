import Base
import TestSupport

@testable import Sharing

/// The store, the origin, the reader and what befalls the nodes.
extension FleetSimulation {
  // MARK: the store

  private var halfTrip: Int64 { Int64(Double.random(in: 0.25...0.75, using: &random) * options.storeTrip * 1000) }
  private var blockOnTier: Int64 { microseconds(blockBytes / options.tier / 1_048_576) }

  func send(_ request: Request, from node: Int) {
    nodes[node].requests += 1
    queue.add(
      .atStore(node: node, life: nodes[node].life, request, sent: queue.now, isAnswered: false),
      at: queue.now + halfTrip)
  }

  func upload(_ block: Int, _ first: Int, _ place: FleetNode.Place, _ node: Int) {
    let now = Instant(nanoseconds: queue.now * 1000)
    guard nodes[node].breaker.takesUploads(now: now),
      let start = nodes[node].budget.admit(Int64(blockBytes), now: now)
    else { return answer(node, .uploaded(block, .dropped), place, at: queue.now) }
    nodes[node].upFree = max(nodes[node].upFree, start.nanoseconds / 1000) + blockOnTier
    nodes[node].requests += 1
    queue.add(
      .atStore(node: node, life: nodes[node].life, .upload(first + block), sent: queue.now, isAnswered: false),
      at: nodes[node].upFree + halfTrip)
  }

  private static func failure(of request: Request, _ block: Int) -> ShareEvent {
    switch request {
    case .look: .looked(block, .failed)
    case .readLease: .leaseRead(.failed)
    case .writeLease, .probe: .leaseWritten(.unknown)
    case .claim: .claimed(block, .unknown)
    case .upload: .uploaded(block, .dropped)
    }
  }

  /// A request reaches the store, whether or not its sender still lives.
  func serve(_ request: Request, node: Int, life: Int, sent: Int64, isAnswered: Bool) {
    let isLive = nodes[node].life == life && !nodes[node].isDead
    let (key, place, block) = target(of: request)
    if isStoreGone || nodes[node].isCut {
      guard isLive else { return }
      let time = max(sent + 300_000, queue.now)
      if case .probe = request { return queue.add(.probed(node: node, life: life, isThere: false), at: time) }
      return answer(node, Self.failure(of: request, block), place, at: time)
    }
    store.count(key, now: queue.now)
    var event: ShareEvent
    var time = queue.now + 1000 + halfTrip
    switch request {
    case .probe: return queue.add(.probed(node: node, life: life, isThere: true), at: time)
    case .look:
      if let object = store.read(key) {
        if object.value != .bytes(version: 0) { wrongBytes += 1 }
        event = .looked(block, .found)
        nodes[node].downFree = max(nodes[node].downFree, queue.now) + blockOnTier
        time = max(time, nodes[node].downFree + halfTrip)
      } else {
        event = .looked(block, .absent)
      }
    case .readLease:
      if let object = store.read(key), case .lease(let lease) = object.value {
        event = .leaseRead(.found(lease, ObjectVersion(etag: String(object.version))))
      } else {
        event = .leaseRead(.absent)
      }
    case .writeLease, .claim, .upload:
      time += 4000
      var value = SimulatedStore.Value.bytes(version: 0)
      var version: Int?
      var timeout = Int64(options.storeTrip * 4000) + 300_000
      switch request {
      case .writeLease(_, let lease, let replaced):
        (value, version) = (.lease(lease), replaced)
        timeout += 200_000
      case .claim: value = .claim(node: node)
      default: timeout = .max / 2
      }
      let outcome = store.write(key, value, replacing: version, now: queue.now)
      if case .busy = outcome {
        let isLate = queue.now + 1_000_000 > sent + timeout
        if isLate, !isAnswered, isLive { answer(node, Self.failure(of: request, block), place, at: sent + timeout) }
        return queue.add(
          .atStore(node: node, life: life, request, sent: sent, isAnswered: isAnswered || isLate),
          at: queue.now + 1_000_000)
      }
      if isAnswered { return }
      event = written(request, outcome, block)
      if case .upload = request, isLive { nodes[node].budget.ended(Int64(blockBytes)) }
    }
    if isLive { answer(node, event, place, at: time) }
  }

  private func written(_ request: Request, _ outcome: SimulatedStore.Outcome, _ block: Int) -> ShareEvent {
    var result = WriteResult.refused
    if case .done(let version) = outcome { result = .done(ObjectVersion(etag: String(version))) }
    switch request {
    case .claim: return .claimed(block, result)
    case .upload:
      if result == .refused { doubled += 1 }
      return .uploaded(block, result == .refused ? .existed : .stored)
    default: return .leaseWritten(result)
    }
  }

  private func target(of request: Request) -> (SimulatedStore.Key, FleetNode.Place, Int) {
    switch request {
    case .look(let block), .upload(let block):
      let (place, index) = place(of: block)
      return (.block(block), place, index)
    case .claim(let block, let round):
      let (place, index) = place(of: block)
      return (.claim(block, round), place, index)
    case .readLease(let place), .writeLease(let place, _, _):
      let perFile = (options.blocks + options.segment - 1) / options.segment
      return (.lease(place.generation * perFile + place.segment), place, 0)
    case .probe: return (.format, FleetNode.Place(generation: 0, segment: 0), 0)
    }
  }

  /// The breaker hears how requests end.
  func heard(from event: ShareEvent, _ node: Int) {
    switch event {
    case .looked(_, .failed), .leaseRead(.failed): nodes[node].breaker.failed(.silent, now: instant)
    case .looked, .leaseRead, .leaseWritten(.done), .leaseWritten(.refused), .claimed(_, .done), .claimed(_, .refused):
      nodes[node].breaker.answered(now: instant)
    default: return
    }
    breakerMayHaveChanged(node)
  }

  func breakerMayHaveChanged(_ node: Int) {
    if let time = nodes[node].breaker.asksAt {
      queue.add(.breaker(node: node, life: nodes[node].life), at: (time.nanoseconds + 999) / 1000)
    }
    let isUp = nodes[node].breaker.isUp
    guard isUp != nodes[node].fleet.isUp else { return }
    if isUp { leaveOrigin(node) }
    act(node) { $0.fleet.tier(isUp: isUp, into: &$1) }
  }

  // MARK: the origin

  func begin(_ fetch: SimulatedOrigin.Fetch) {
    if fetch.part >= Self.firstWindow {
      let (place, block) = place(of: fetch.block)
      if nodes[fetch.node].fleet.holds(block, at: place) || nodes[fetch.node].parts[fetch.block] != nil { return }
      // A window that is under way is not asked for again.
      if origin.isUnderWay(fetch) { return }
      origin.start(fetch, bytes: blockBytes / 16, now: queue.now)
      return plan()
    }
    let bytes = blockBytes * Double(SimulatedOrigin.parts[fetch.part]) / 16
    if fetch.part == 0 { nodes[fetch.node].parts[fetch.block] = queue.now }
    guard nodes[fetch.node].parts[fetch.block] != nil else { return }
    origin.start(fetch, bytes: bytes, now: queue.now)
    plan()
  }

  /// What a node fetched alone it asks for no more when the store is back: a mount has only windows under way then.
  private func leaveOrigin(_ node: Int) {
    origin.stop(now: queue.now) { $0.node == node }
    plan()
    for fetched in nodes[node].parts.keys.sorted() {
      let (place, block) = place(of: fetched)
      answer(node, .fetched(block, .stopped), place, at: queue.now)
    }
    nodes[node].parts = [:]
  }

  func plan() { if let next = origin.next { queue.add(.origin(epoch: origin.epoch), at: next) } }

  func partsAreHere() {
    let done = origin.take(now: queue.now)
    plan()
    for fetch in done {
      let node = fetch.node
      if fetch.part >= Self.firstWindow {
        windowIsHere(fetch)
        continue
      }
      guard nodes[node].life == fetch.life, !nodes[node].isDead, let since = nodes[node].parts[fetch.block] else {
        continue
      }
      let (place, block) = place(of: fetch.block)
      // A stopped node takes no more from its socket.
      let time = max(queue.now, nodes[node].stoppedUntil)
      if fetch.part == SimulatedOrigin.parts.count - 1 {
        nodes[node].parts[fetch.block] = nil
        answer(node, .fetched(block, .whole), place, at: time)
        continue
      }
      nodes[node].parts[fetch.block] = time
      let sixteenths = SimulatedOrigin.parts[...fetch.part].reduce(0, +)
      let rate =
        Double(options.block * SimulatedOrigin.parts[fetch.part]) / 16 / (Double(max(queue.now - since, 1)) / 1e6)
      let event = ShareEvent.arriving(block, kibibytes: options.block * sixteenths / 16, rate: Int(rate))
      answer(node, event, place, at: time)
      var next = fetch
      next.part += 1
      queue.add(.starts(next), at: time)
    }
  }

  private func windowIsHere(_ fetch: SimulatedOrigin.Fetch) {
    guard nodes[fetch.node].life == fetch.life, !nodes[fetch.node].isDead else { return }
    let (place, block) = place(of: fetch.block)
    answer(fetch.node, .window(block), place, at: max(queue.now, nodes[fetch.node].stoppedUntil))
    guard nodes[fetch.node].position == fetch.block else { return }
    if nodes[fetch.node].isAsking { nodes[fetch.node].waited(until: queue.now) }
  }

  // MARK: the reader

  func read(_ node: Int) {
    guard nodes[node].position < listBlocks else {
      nodes[node].isDone = true
      return
    }
    let file = nodes[node].position / options.blocks
    let block = nodes[node].position % options.blocks
    act(node) { node, actions in
      for other in file..<options.files { node.fleet.download(other, isOn: true, into: &actions) }
      node.fleet.read(0, file, block: block, ahead: 3, into: &actions)
    }
    nodes[node].isAsking = true
    goOn(node)
  }

  /// After each event the reader may have its block.
  func blockMayBeHere(_ node: Int, _ event: ShareEvent, _ at: FleetNode.Place) {
    guard nodes[node].isAsking else { return }
    let (place, block) = place(of: nodes[node].position)
    guard place == at else { return }
    switch event {
    case .arriving(block, _, _): nodes[node].waited(until: queue.now)
    case .looked(block, .found), .fetched(block, .whole): goOn(node)
    default: break
    }
  }

  private func goOn(_ node: Int) {
    let (place, block) = place(of: nodes[node].position)
    guard nodes[node].fleet.holds(block, at: place) else { return }
    nodes[node].waited(until: queue.now)
    nodes[node].isAsking = false
    nodes[node].position += 1
    let pause = options.player.map { microseconds(blockBytes / $0 / 1_048_576) } ?? 0
    nodes[node].waitsSince = queue.now + pause
    queue.add(.reads(node: node, life: nodes[node].life), at: queue.now + pause)
  }

  // MARK: what befalls the nodes

  func harm(_ event: Event) {
    // Once the store has all, nothing more can be lost.
    guard store.blocks < listBlocks else { return }
    let live = nodes.indices.filter { !nodes[$0].isDead && !nodes[$0].isDone && nodes[$0].stoppedUntil <= queue.now }
    guard let node = live.randomElement(using: &random) else { return }
    if case .kill = event {
      nodes[node].isDead = true
      origin.stop(now: queue.now) { $0.node == node }
      plan()
      queue.add(.born(node: node), at: queue.now + 1_000_000)
      queue.add(.kill, at: queue.now + microseconds(options.killsEach ?? 5))
    } else {
      nodes[node].stoppedUntil = queue.now + 5_000_000
      queue.add(.stop, at: queue.now + microseconds(options.stopsEach ?? 5))
    }
  }
}
