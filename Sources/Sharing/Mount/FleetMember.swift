import Base
import Fetching
import Manifest
import Reading

/// A mount as a member of a fleet: it runs the fleet's code (``FleetNode``) over the store's client, and says which
/// bytes come from where. It belongs to the transfer thread, as all that it has.
///
/// Until the store has answered, while it does not, and where it refuses: every file comes from its origin, as without.
package final class FleetMember: SecondSource {
  /// Who it is, and where the fleet's objects are.
  package struct Setup: Sendable {
    package var store: StoreSetup
    package var key: FleetKey
    /// A random number that the mount's store keeps.
    package var node: UInt64
    /// Whether it only takes what others stored.
    package var isReadOnly = false
    /// The most bytes a second that it uploads; nil: any.
    package var uploadRate: Int64?
    /// For how many seconds what the origin told holds.
    package var fresh = 0.0
    /// What is told of it, for any thread.
    package let report = Lock(MemberReport())

    package init(store: StoreSetup, key: FleetKey, node: UInt64) {
      (self.store, self.key, self.node) = (store, key, node)
    }
  }

  /// How far it is with the bucket.
  enum Phase {
    /// The object `format` is asked for, next at that time.
    case asking(Instant)
    case ready
    /// The bucket is not for this node: why.
    case refused(String)
  }

  struct TimerKey: Hashable {
    /// nil: the background download's.
    var place: FleetNode.Place?
    var timer = ShareTimer.poll
  }

  let setup: Setup
  let store: StoreClient
  let commands: TransferCommands
  var phase = Phase.asking(Instant(nanoseconds: 0))
  var layout = FleetFormat()
  var fleet: FleetNode
  var breaker = TierBreaker()
  var files: [Int64: SharedFile] = [:]
  var timers: [TimerKey: Instant] = [:]
  var asked: [StoreRequestID: Question] = [:]
  var nextRequest: UInt64 = 1
  var start = FleetStart()
  let uploads: FleetUploads
  var pointers = FleetPointers()
  /// Files whose digests are to be written, and when.
  var digestsDue: [(at: Instant, file: SharedFile)] = []
  /// Complete files that wait for their digests, and until when.
  var digestWaits: [Int64: Instant] = [:]
  var offers = FleetOffers()
  /// What was read before the bucket was known.
  var early: [Int64: (file: SecondFile, view: SecondView)] = [:]
  private(set) var begun = Instant.now
  /// Told in the next turn.
  var probeReads: [ProbeRead] = []
  /// The files whose probe sets are asked for or in memory, and those that wait to be asked for, each in order.
  var probesHeld: [SharedFile] = []
  var probesWaiting: [(file: SharedFile, since: Instant)] = []
  // The reads of blocks: by the transfer that Reading knows, and by the request.
  var reads: [TransferID: TierRead] = [:]
  var readRequests: [StoreRequestID: TierRead] = [:]
  var nextSweep = Instant(nanoseconds: 0)
  var nextReport = Instant(nanoseconds: 0)
  var downSince: Instant?
  /// Why the store is not used, as far as it said; empty: it says nothing.
  var reason = ""
  /// What kind of reason that is.
  var reasonKind: TierBreaker.Failure?
  /// Until when it waits for the answers to the leases that it gives up; nil: the mount goes on.
  var leavesAt: Instant?
  /// Told in the next turn.
  var endings: [(TransferID, TransferEnd)] = []
  /// Reading's client, which gets the bytes.
  weak var client: (any TransferClient)?

  package var onChange: (ResourceKey) -> Void = { _ in }
  /// Whether a file's routes changed since this was last set to false.
  var hasChanged = false

  // What the fleet's code wants done, and what it is to be told of that, in order.
  private var actions: [FleetNode.Action] = []
  private var events: [(ShareEvent, FleetNode.Place)] = []
  private var isActing = false

  init(_ setup: Setup, _ commands: TransferCommands, wake: @escaping @Sendable () -> Void) {
    self.setup = setup
    self.commands = commands
    store = StoreClient(setup.store, commands)
    fleet = FleetNode(FleetIdentity(node: setup.node, boot: .random(in: 1...UInt64.max)), nodes: [])
    uploads = FleetUploads(
      rate: setup.uploadRate, location: setup.store.location, key: setup.key, wake: wake)
    store.report(to: self)
  }

  // MARK: The fleet's code

  /// Has the fleet's code do something, and does what it wants done.
  func change(_ body: (inout FleetNode, inout [FleetNode.Action]) -> Void) {
    body(&fleet, &actions)
    act()
  }

  /// Tells a block's segment something; `block` counts from the file's start.
  func tell(_ file: SharedFile, _ block: Int, _ event: (Int) -> ShareEvent) {
    events.append((event(block % layout.segment), place(file, block)))
    act()
  }

  func tell(_ event: ShareEvent, at place: FleetNode.Place) {
    events.append((event, place))
    act()
  }

  func place(_ file: SharedFile, _ block: Int) -> FleetNode.Place {
    FleetNode.Place(generation: file.generation, segment: block / layout.segment)
  }

  private func act() {
    if isActing { return }
    isActing = true
    while !actions.isEmpty || !events.isEmpty {
      let now = actions
      actions.removeAll(keepingCapacity: true)
      for action in now { perform(action) }
      guard actions.isEmpty, !events.isEmpty else { continue }
      let (event, place) = events.removeFirst()
      fleet.handle(event, at: place, into: &actions)
    }
    isActing = false
  }

  func changed(_ file: SharedFile) {
    if file.isRecalled { return }  // nobody reads it: a plan of it would open it here, and mark it as used
    hasChanged = true
    onChange(file.key)
  }

  // MARK: What Reading asks

  package func look(at known: SecondFile, _ view: SecondView, now: Instant) -> [ByteRange]? {
    guard case .ready = phase else {
      keepEarly(known, view)
      return nil
    }
    guard hasNames(for: known) else { return nil }
    let file = files[known.generation] ?? make(known)
    (file.stored, file.served) = (view.stored, view.served ?? file.served)
    // What came without the store, or by the first request, is shared too.
    if file.stored.contains(ByteRange(0, file.size)) { owe(file, now) }
    if view.isComplete {
      (file.isComplete, file.sha256) = (true, view.sha256)
      offerDigests(of: file)
    }
    guard breaker.isUp, file.ending == nil else { return nil }
    if file.isClosed { open(file) }
    settle(file, now)
    if view.continues != file.continues {
      file.continues = view.continues
      change { $0.download(file.generation, isOn: view.continues, into: &$1) }
    }
    return file.ending == nil ? bounds(of: file) : nil
  }

  /// Whether the names of leases can number all segments of a file. A longer one is each machine's own: an origin may
  /// claim any size, and each segment takes memory here.
  func hasNames(for known: SecondFile) -> Bool {
    known.size <= 1_000_000 * Int64(layout.block) * Int64(layout.segment)
  }

  func make(_ known: SecondFile) -> SharedFile {
    let bytes = [known.key.high, known.key.low].flatMap(\.bigEndianBytes)
    let id = setup.key.generation(of: setup.key.entry(bytes), validator: known.etag, size: known.size)
    let file = SharedFile(known, id: id, block: Int64(layout.block))
    files[known.generation] = file
    return file
  }

  private func open(_ file: SharedFile) {
    (file.isClosed, file.isRecalled) = (false, false)
    fleet.open(
      file.generation, id: file.id.high, blocks: file.blocks, held: file.held(segment: layout.segment))
    markUse(of: file)
    if file.isListed { change { $0.listed(file.generation, self.listed(file), into: &$1) } }
  }

  /// The blocks that are known to be in the store, by segment.
  func listed(_ file: SharedFile) -> [Int: BlockSet] {
    file.inTier.reduce(into: [:]) { sets, block in
      sets[block / layout.segment, default: BlockSet()].insert(block % layout.segment)
    }
  }

  /// Tells what has come of the blocks that are under way.
  private func settle(_ file: SharedFile, _ now: Instant) {
    settleProbe(of: file)
    for (block, grant) in file.granted {
      let range = file.range(of: block)
      let have = file.stored.count(in: range)
      if have == range.count {
        file.granted[block] = nil
        tell(file, block) { .fetched($0, .whole) }
      } else if have - grant.told >= file.block / 16 {
        file.granted[block]?.told = have
        let seconds = max(now.seconds(since: grant.since), 0.001)
        let rate = Int(min(Double(have - grant.base) / 1024 / seconds, 1e9))
        tell(file, block) { .arriving($0, kibibytes: Int(have >> 10), rate: max(1, rate)) }
      }
    }
    for block in file.looking where file.isWhole(block) {
      file.looking.remove(block)
      let isThere = file.inTier.contains(block)
      if !isThere { tell(file, block) { .held(BlockSet($0..<$0 + 1)) } }
      tell(file, block) { .looked($0, isThere ? .found : .failed) }
    }
    for block in file.foreground where file.isWhole(block) {
      file.foreground.remove(block)
      if !fleet.holds(block % layout.segment, at: place(file, block)) {
        tell(file, block) { .held(BlockSet($0..<$0 + 1)) }
      }
    }
  }

  /// Where the background download may ask: the blocks that are under way. When none is, what is missing of blocks that
  /// count as here.
  private func bounds(of file: SharedFile) -> [ByteRange] {
    var blocks = Array(file.granted.keys) + file.looking
    if blocks.isEmpty, file.continues {
      var position: Int64 = 0
      while blocks.count < 4, let gap = file.stored.firstGap(in: ByteRange(position, file.size)) {
        let block = Int(gap.start / file.block)
        if fleet.holds(block % layout.segment, at: place(file, block)) { blocks.append(block) }
        position = file.range(of: block).end
      }
    }
    return blocks.sorted().map { file.range(of: $0) }
  }

  /// Whether the fleet has a say in the file now.
  func isShared(_ file: SharedFile) -> Bool {
    guard case .ready = phase else { return false }
    return breaker.isUp && file.ending == nil && !file.isClosed
  }

  package func route(_ range: ByteRange, of known: SecondFile, isProven: Bool, now: Instant) -> SecondRoute {
    guard let file = files[known.generation], isShared(file) else { return .origin(range) }
    if let route = probeRoute(range, file) { return route }
    let block = Int(range.start / file.block)
    let whole = file.range(of: block)
    let part = ByteRange(range.start, min(range.end, whole.end))
    if file.granted[block] != nil { return .origin(part) }
    // It is for who waits, not for what is read ahead of another reader.
    if file.waits.contains(where: { part.contains($0) }) {
      if file.bypasses.remove(block) != nil {
        file.windows[block] = ByteRange(part.start, min(whole.end, part.start + Self.window))
      }
      if let window = file.windows[block], window.contains(part.start) {
        return .origin(ByteRange(part.start, min(part.end, window.end)))
      }
    }
    let isHere = fleet.holds(block % layout.segment, at: place(file, block))
    guard file.looking.contains(block) || (isHere && file.inTier.contains(block)) else {
      return isHere ? .origin(part) : .wait(until: part.end)
    }
    // Whole pieces alone can be checked. Who takes what follows gets the rest of the block.
    let piece = Int64(file.piece)
    let first = whole.start + (part.start - whole.start) / piece * piece
    var end = part.end
    if isProven {
      while let gap = file.stored.firstGap(in: ByteRange(end, whole.end)) { end = gap.end }
    }
    return .second(ByteRange(first, min(whole.end, whole.start + (end - whole.start + piece - 1) / piece * piece)))
  }
  /// What a reader that waited for too long gets from the origin at once.
  private static let window: Int64 = 256 << 10

  package func rest(_ generation: Int64, isFailing: Bool) {
    guard let file = files[generation], !file.isClosed else { return }
    (file.bypasses, file.windows, file.waits) = ([], [:], [])
    if !file.foreground.isEmpty || file.readers > 0 {
      (file.foreground, file.fronts) = ([], [])
      tellReaders(of: file)
    }
    if file.continues {
      file.continues = false
      change { $0.download(file.generation, isOn: false, into: &$1) }
    }
    giveBack(file, result: isFailing ? .failed : .stopped) { _ in false }
  }

  package func close(_ generation: Int64, isReplaced: Bool) {
    if isReplaced { early[generation] = nil }
    guard let file = files[generation] else { return }
    // What it still owes, also by an upload that waits, nobody needs now.
    defer { if isReplaced { (file.epoch, file.owed, file.served) = (file.epoch + 1, 0, nil) } }
    guard !file.isClosed else { return }
    if isReplaced { giveBack(file, result: .changed) { _ in false } }
    rest(generation, isFailing: false)
    change { $0.close(file.generation, into: &$1) }
    (file.isClosed, file.closedAt, file.isRecalled) = (true, .now, false)
    dropProbe(of: file, file.probe.isFound ? .stored : .unknown)
    if !isReplaced {
      offerProbe(of: file)
      owe(file, .now)
    }
  }

  package func removes(_ generation: Int64) {
    early[generation] = nil
    guard let file = files[generation] else { return }
    file.epoch += 1
    file.stored = ByteRangeSet()
    close(generation, isReplaced: false)
    (file.owed, file.served) = (0, nil)
  }
}
