/// What each segment is told to want, and where the background download goes.
extension FleetNode {
  /// Tells the segments of a generation what its readers and its download want now.
  mutating func update(_ generation: Int, into actions: inout [Action]) {
    guard let facts = generations[generation] else { return }
    var wanted: Set<Int> = []
    for reader in readers.values where reader.generation == generation {
      for block in stride(from: reader.block, through: reader.block + reader.ahead, by: 1) where block < facts.blocks {
        wanted.insert(block / identity.segment)
      }
    }
    if let background, background.generation == generation { wanted.insert(background.segment) }
    for segment in wanted { prepare(Place(generation: generation, segment: segment), facts, into: &actions) }
    for place in segments.keys.sorted(by: <) where place.generation == generation {
      want(place, isDownloaded: facts.isDownloaded, into: &actions)
    }
  }

  private mutating func prepare(_ place: Place, _ facts: Generation, into actions: inout [Action]) {
    guard segments[place] == nil, facts.ending == nil else { return }
    let first = place.segment * identity.segment
    let all = BlockSet(0..<min(identity.segment, facts.blocks - first))
    var segment = Segment(setup: setup(of: place), all: all)
    segment.share.here = facts.held[place.segment] ?? BlockSet()
    segment.share.stored = facts.listed[place.segment] ?? BlockSet()
    segments[place] = segment
    if !isUp { send(.tier(isUp: false), to: place, into: &actions) }
  }

  private mutating func want(_ place: Place, isDownloaded: Bool, into actions: inout [Action]) {
    guard let segment = segments[place] else { return }
    let first = place.segment * identity.segment
    var (foreground, others) = (BlockSet(), BlockSet())
    var front: Int?
    for reader in readers.values where reader.generation == place.generation {
      let start = reader.block - first
      let end = start + reader.ahead + 1
      if end <= 0 || start >= identity.segment { continue }
      foreground |= BlockSet(max(0, start)..<min(end, identity.segment)) & segment.all
      front = min(front ?? .max, max(0, start))
      if start >= 0 { others.insert(start) }
    }
    let isPicked = background == place || front != nil
    let background = isDownloaded && isPicked ? segment.all : BlockSet()
    let share = segment.share
    if let front { others.remove(front) }
    if share.reader == front, share.others == others, share.foreground == foreground, share.background == background {
      return
    }
    let want = ShareEvent.want(reader: front, others: others, foreground: foreground, background: background)
    send(want, to: place, into: &actions)
  }

  /// The timer of ``Action/lookForWork(after:)``.
  package mutating func workIsDue(into actions: inout [Action]) {
    isWaitingForWork = false
    if isHeldBack { hasTurn = readersHolderRate > 0 }
    lookForWork(into: &actions)
  }

  /// Moves the background download on, when where it is another node fetches or nothing is missing.
  mutating func lookForWork(into actions: inout [Action]) {
    if isHeldBack {
      // What is under way ends, and the lease is given up with it.
      if let before = background {
        background = nil
        update(before.generation, into: &actions)
      }
      if !isWaitingForWork, !downloads.isEmpty { wait(pause, into: &actions) }
      return
    }
    hasTurn = false
    if isWaitingForWork { return }
    for _ in 0..<64 {
      if let background, let share = segments[background]?.share {
        if !share.missing.isEmpty, !share.isElsewhere, share.need == nil, share.ending == nil { return }
        if share.isElsewhere { passed.insert(background) }
      }
      let before = background
      background = next()
      if let before, before != background { update(before.generation, into: &actions) }
      guard let place = background else {
        // It has gone everywhere: from now on it looks at one segment a second.
        guard !passed.isEmpty else { return }
        passed = []
        return wait(max(1000, 2 * nodes.count), into: &actions)
      }
      update(place.generation, into: &actions)
      if segments[place]?.share.isElsewhere == true { send(.timer(.poll), to: place, into: &actions) }
      // Many nodes do not go everywhere at once.
      if nodes.count > 32 { return wait(nodes.count / 4, into: &actions) }
    }
  }

  private mutating func wait(_ milliseconds: Int, into actions: inout [Action]) {
    isWaitingForWork = true
    actions.append(.lookForWork(after: milliseconds))
  }

  /// Whether a fetch in the background would make a reader here wait for longer: its holder's origin brings less than a
  /// block a second, or this node is alone. To begin, there has to be a block a second for each node, or two when it is
  /// this node's turn.
  private var isHeldBack: Bool {
    readers.values.contains { reader in
      guard let share = segments[place(of: reader)]?.share, share.isWaitedFor else { return false }
      if !isUp { return true }
      if background != nil { return 1..<identity.block ~= share.holderRate }
      return share.holderRate < identity.block * (hasTurn ? 2 : max(2, nodes.count))
    }
  }

  /// Nodes that stand back begin again one after the other: what one more costs is seen first.
  private var pause: Int {
    guard readersHolderRate > 0, let reader = readers.values.first else { return 500 }
    return 1000 + 1000 * min(segments[place(of: reader)]?.setup.times.rank ?? 0, 32)
  }

  private var readersHolderRate: Int {
    readers.values.map { segments[place(of: $0)]?.share.holderRate ?? 0 }.max() ?? 0
  }

  private func place(of reader: Reader) -> Place {
    Place(generation: reader.generation, segment: reader.block / identity.segment)
  }

  /// The next segment of which something is missing, in this node's order.
  private func next() -> Place? {
    for generation in downloads {
      guard let facts = generations[generation], facts.ending == nil else { continue }
      for segment in facts.order {
        let place = Place(generation: generation, segment: segment)
        if passed.contains(place) { continue }
        if let known = segments[place] {
          if !(known.all - known.share.here).isEmpty, known.share.need == nil { return place }
        } else {
          let all = BlockSet(0..<min(identity.segment, facts.blocks - segment * identity.segment))
          if !(all - (facts.held[segment] ?? BlockSet())).isEmpty { return place }
        }
      }
    }
    return nil
  }
}
