import Base

@testable import Sharing

/// Visits every state that some nodes can come to, and looks for one that must not be. It goes depth first: so fewer
/// states wait to be visited.
struct Explorer {
  let settings: ExploredWorld.Settings
  /// Where to stop.
  var mostStates = Int.max
  var until = Instant.never
  private(set) var states = 0
  private(set) var edges = 0
  private(set) var isExhausted = false
  private(set) var violation: String?

  private var seen: Set<UInt64> = []
  /// Nodes that were seen to get through alone, with that of the store which they meet.
  private var proved: Set<Int> = []

  init(_ settings: ExploredWorld.Settings) { self.settings = settings }

  mutating func run() {
    let first = ExploredWorld(settings)
    var frontier = [first]
    seen.insert(first.digest(settings))
    while let world = frontier.popLast() {
      states += 1
      if states >= mostStates || (states % 1024 == 0 && Instant.now > until) { return }
      for node in world.nodes.indices where !progresses(node, world) {
        violation = "node \(node) cannot get through alone"
        return
      }
      var steps: [ExploredWorld] = []
      follow(world, into: &steps)
      for step in steps {
        edges += 1
        if let found = step.violation {
          violation = found
          return
        }
        if seen.insert(step.digest(settings)).inserted { frontier.append(step) }
      }
    }
    isExhausted = true
  }

  /// All that can happen next.
  private func follow(_ world: ExploredWorld, into steps: inout [ExploredWorld]) {
    var busy: UInt8 = 0
    for (index, request) in world.requests.enumerated() {
      if settings.isInOrder, !request.isAbandoned, request.answer == nil {
        if busy & (1 << UInt8(request.node)) != 0 { continue }
        busy |= 1 << UInt8(request.node)
      }
      follow(world, request, index, into: &steps)
    }
    for node in world.nodes.indices {
      let fleet = world.nodes[node].fleet
      for (place, segment) in fleet.segments where world.timers > 0 {
        for timer in ShareTimer.all(settings.blocks) where mayFire(timer, segment.share) {
          var step = world
          step.timers -= 1
          step.fire(timer, node, place, settings)
          steps.append(step)
        }
      }
      if fleet.isWaitingForWork {
        var step = world
        step.drive(node, settings) { $0.workIsDue(into: &$1) }
        steps.append(step)
      }
      if world.crashes > 0, !world.isThrough(node) { steps.append(crash(node, world)) }
    }
    if world.changes > 0 {
      var step = world
      step.changes -= 1
      step.origin += 1
      steps.append(step)
    }
  }

  private func follow(
    _ world: ExploredWorld, _ request: ExploredWorld.Request, _ index: Int, into steps: inout [ExploredWorld]
  ) {
    var rest = world
    rest.requests.remove(at: index)
    if let answer = request.answer {
      var step = rest
      step.deliver(answer, to: request.node, request.place, settings)
      steps.append(step)
      return
    }
    var served = rest
    let answer = served.serve(request, settings)
    if request.isAbandoned {
      // It is served late, or never.
      steps.append(served)
      steps.append(rest)
      return
    }
    var step = served
    step.deliver(answer, to: request.node, request.place, settings)
    steps.append(step)
    guard world.losses > 0 else { return }
    // The answer is lost; the answer is late; the request is late.
    let silence = ExploredWorld.silence(after: request.action)
    var lost = served
    lost.losses -= 1
    lost.deliver(silence, to: request.node, request.place, settings)
    steps.append(lost)
    if !Self.isFetch(request.action) {
      var late = served
      late.losses -= 1
      late.requests.append(request)
      late.requests[late.requests.count - 1].answer = answer
      steps.append(late)
      var delayed = rest
      delayed.losses -= 1
      delayed.requests.append(request)
      delayed.requests[delayed.requests.count - 1].isAbandoned = true
      delayed.deliver(silence, to: request.node, request.place, settings)
      steps.append(delayed)
    }
  }

  private static func isFetch(_ action: ShareAction) -> Bool {
    if case .fetch = action { true } else { false }
  }

  /// The node is killed: what it has sent may still be served, and it comes back with nothing.
  private func crash(_ node: Int, _ world: ExploredWorld) -> ExploredWorld {
    var step = world
    step.crashes -= 1
    step.requests.removeAll { request in
      guard request.node == node else { return false }
      switch request.action {
      case .writeLease, .claim, .upload: return request.answer != nil
      default: return true
      }
    }
    for index in step.requests.indices where step.requests[index].node == node {
      step.requests[index].isAbandoned = true
    }
    step.restart(node, settings)
    return step
  }

  private func mayFire(_ timer: ShareTimer, _ share: SegmentShare) -> Bool {
    var isSet = share.armed & timer.bit != 0
    if case .patience(let block) = timer { isSet = share.waits.contains { $0.block == block } }
    guard isSet, share.ending == nil else { return false }
    if settings.breakage == .noTakeover {
      switch timer {
      case .expiry, .standing, .patience: return false
      default: break
      }
    }
    return true
  }

  // MARK: each node alone

  /// Whether a node gets through when no other node does anything any more and what is under way is lost.
  private mutating func progresses(_ node: Int, _ world: ExploredWorld) -> Bool {
    if world.isThrough(node) { return true }
    var key = Hasher()
    key.combine(node)
    world.combine(node, Array(world.nodes.indices), into: &key) { version, segment in
      version.map { $0.etag == "\(world.store[segment].leaseVersion)" ? 1 : 2 } ?? 0
    }
    for segment in world.store {
      key.combine(segment.blocks)
      key.combine(segment.claims)
      key.combine(segment.lease)
    }
    key.combine(world.origin)
    guard proved.insert(key.finalize()).inserted else { return true }
    var alone = world
    let lost = alone.requests.filter { $0.node == node && !$0.isAbandoned }
    alone.requests = []
    for request in lost {
      alone.deliver(ExploredWorld.silence(after: request.action), to: node, request.place, settings)
    }
    for round in 0..<200 {
      let requests = alone.requests
      alone.requests = []
      for request in requests {
        let answer = alone.serve(request, settings)
        alone.deliver(answer, to: node, request.place, settings)
      }
      if alone.isThrough(node) { return true }
      // In a real node, too, many answers come before a timer fires that suspects somebody.
      guard round % 4 == 3 || alone.requests.isEmpty else { continue }
      for segment in world.store.indices {
        let place = ExploredWorld.place(segment)
        for timer in ShareTimer.all(settings.blocks) {
          guard let share = alone.nodes[node].fleet.segments[place]?.share, mayFire(timer, share) else { continue }
          alone.fire(timer, node, place, settings)
        }
      }
      if alone.nodes[node].fleet.isWaitingForWork { alone.drive(node, settings) { $0.workIsDue(into: &$1) } }
      if settings.segments > 1, alone.requests.isEmpty {
        // The origin failed. The download rests, and goes on later.
        for isOn in [false, true] { alone.drive(node, settings) { $0.download(0, isOn: isOn, into: &$1) } }
      }
    }
    return false
  }
}

extension ShareTimer {
  /// All that a segment of so many blocks may have, in the order in which a node alone has them fire.
  fileprivate static func all(_ blocks: Int) -> [ShareTimer] {
    [.renew, .standing] + (0..<blocks).map { .patience($0) } + [.expiry, .jitter, .poll, .claim]
  }
}
