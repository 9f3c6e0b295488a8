import Base
import Glibc

/// What is known of the bucket so far.
struct FleetStart {
  /// How often the bucket could not be asked in a row.
  var failures = 0
  /// The shortest round trip to the store, in milliseconds.
  var roundTrip: Int?
  /// Which conditions the store keeps, as far as that is known.
  var probe: StoreProbe?
  var conditions: StoreConditions?
  /// How often the store was probed, and when it is probed again: never while that is under way, or once it is known.
  var probes = 0
  var probesAt = Instant.never
  /// Why a probe showed nothing; nil: none failed, or it is known by now.
  var doubt: String?
  /// When the nodes are listed next.
  var listsNodesAt = Instant.never
  var listings = 0
  /// The day for which this node said that it is there.
  var nodeDay = 0
  /// The day of which the store's marks are, and the generations that this node marked as used.
  var markedDay = 0
  var marked: Set<FleetID> = []
  /// Those of which the store did not take the mark, and how many of them are marked again at once.
  var unmarked: Set<FleetID> = []
  static let mostMarks = 8
}

/// The bucket: its format, its conditions, the nodes. All of it behind the mount, which does not wait for it.
extension FleetMember {
  /// Returns when something is due.
  func goOnStarting(_ now: Instant) -> Instant {
    switch phase {
    case .asking(let time):
      guard time <= now else { return time }
      phase = .asking(.never)
      ask(.format(sent: now)) { .get($0, ObjectName.format.text, timeout: 5) }
      return .never
    case .refused: return .never
    case .ready:
      if start.listsNodesAt <= now {
        start.listsNodesAt = .never
        listNodes(now)
      }
      if start.probesAt <= now { probe() }
      return min(start.listsNodesAt, start.probesAt)
    }
  }

  func formatRead(_ outcome: StoreOutcome, _ sent: Instant) {
    let now = Instant.now
    switch outcome {
    case .found(let object):
      do throws(ObjectRefusal) { begin(try FleetFormat(object.body, key: setup.key), now) } catch {
        refuse("the object \(ObjectName.format.text) is not for this mount: \(error)")
      }
    case .absent where setup.isReadOnly: askAgain("it has no fleet yet, and this mount only reads", now)
    case .absent:
      ask(.formatWrite) {
        .putIfAbsent($0, ObjectName.format.text, StoreBody(FleetFormat().bytes(key: setup.key)), timeout: 10)
      }
    case .cancelled: break
    default: askAgain(Self.said(outcome), now)
    }
  }

  func formatWritten(_ outcome: StoreOutcome) {
    switch outcome {
    // What is there counts, whoever wrote it. A store may show it late.
    case .written, .conflict, .timedOut: phase = .asking(Instant.now.adding(seconds: 0.1))
    case .cancelled: break
    default: askAgain(Self.said(outcome), .now)
    }
  }

  /// What the store said, for a message.
  private static func said(_ outcome: StoreOutcome) -> String {
    switch outcome {
    case .busy(_, let reason), .refused(let reason), .full(let reason), .broken(let reason), .rotten(_, let reason):
      reason
    default: "it did not answer in time"
    }
  }

  private func refuse(_ why: String) {
    phase = .refused(why)
    Log.error("this mount shares with nobody: \(store.location.description): \(why)")
  }

  private func askAgain(_ why: String, _ now: Instant) {
    if start.failures == 0 {
      let place = store.location.description
      Log.warning("\(place) cannot be shared through yet, so every file comes from its origin: \(why)")
    }
    start.failures += 1
    (reason, nextReport) = (short(why), Instant(nanoseconds: 0))
    phase = .asking(now.adding(seconds: Double(min(1 << min(start.failures, 5), 30))))
  }

  /// The bucket is for this node.
  private func begin(_ format: FleetFormat, _ now: Instant) {
    layout = format
    var identity = fleet.identity
    (identity.block, identity.segment) = (format.block >> 10, format.segment)
    identity.hasLeases = !setup.isReadOnly
    fleet = FleetNode(identity, nodes: [])
    (phase, reason) = (.ready, "")
    Log.info("sharing through \(store.location.description)\(setup.isReadOnly ? ", reading alone" : "")")
    hasChanged = true
    takeEarly(now)
    guard !setup.isReadOnly else { return }
    probe()
    markNode()
  }

  /// Notes in the bucket that this node is there today; the nodes are listed then.
  private func markNode() {
    start.nodeDay = day
    ask(.mark) {
      .putIfAbsent(
        $0, ObjectName.node(day: day, fleet.identity.node).text, StoreBody(DayMark.node.bytes), timeout: 10)
    }
  }

  /// Finds out which conditions the store keeps: each time with an object of its own.
  private func probe() {
    start.probes += 1
    start.probesAt = .never
    let (node, boot) = (fleet.identity.node.hex(), fleet.identity.boot.hex())
    let probe = StoreProbe(first: nextRequest, nonce: "\(node)\(boot)\(start.probes)")
    nextRequest += StoreProbe.requests
    start.probe = probe
    for request in probe.begin() { store.start(request) }
  }
  /// How long the store is left alone after a probe that showed nothing, in seconds: longer than a probe's requests,
  /// and twice as long after each, as one that shows nothing may leave an object.
  private var nextProbe: Double { min(1.5 * StoreProbe.timeout * Double(1 << min(start.probes - 1, 7)), 3600) }

  func probed(_ outcome: StoreOutcome) {
    guard !store.isEnding, let requests = start.probe?.ended(outcome) else { return }
    for request in requests { store.start(request) }
    guard start.conditions == nil, start.probesAt == .never, let verdict = start.probe?.verdict else { return }
    let place = store.location.description
    switch verdict {
    case .known(let conditions):
      start.conditions = conditions
      if !conditions.allowsLeases {
        Log.warning(
          "\(place) does not keep the conditions of writes (\(conditions.reasons.joined(separator: "; "))): "
            + "nodes share as well as they can without leases")
      } else if start.doubt != nil {
        Log.info("\(place) keeps the conditions of writes: nodes share with leases from now on")
      }
      start.doubt = nil
    case .unknown(let outcome):
      let why = Self.said(outcome)
      if start.doubt == nil {
        let words = "did not show whether it keeps the conditions of writes, so there are no leases yet"
        Log.warning("\(place) \(words): \(why)")
      }
      start.doubt = why
      start.probesAt = Instant.now.adding(seconds: nextProbe)
    }
    nextReport = Instant(nanoseconds: 0)
    learn()
  }

  private func learn() {
    // A store counts as one that keeps them for the moment of its first probe.
    let hasLeases = !setup.isReadOnly && start.conditions?.allowsLeases ?? (start.doubt == nil)
    let roundTrip = start.roundTrip ?? 0
    guard hasLeases != fleet.identity.hasLeases || roundTrip != fleet.identity.roundTrip else { return }
    fleet.learned(roundTrip: roundTrip, hasLeases: hasLeases)
  }

  // MARK: Nodes

  private func listNodes(_ now: Instant) {
    // One that reads alone waits for nobody.
    if setup.isReadOnly { return }
    // On another day nobody is there before it has said so.
    if start.nodeDay != day {
      start.listsNodesAt = now.adding(seconds: 60)  // if the mark is not answered
      return markNode()
    }
    ask(.nodes(sent: now, [])) { .list($0, ObjectName.nodes(of: day), timeout: 5) }
  }

  func nodesListed(_ outcome: StoreOutcome, _ sent: Instant, _ before: Set<UInt64>) {
    heard(outcome, isTimed: false)
    let now = Instant.now
    let day = day
    var nodes = before
    if case .listed(let listing) = outcome {
      for entry in listing.entries { if let node = ObjectName.node(in: entry.key, of: day) { nodes.insert(node) } }
      if let next = listing.continuation {
        return ask(.nodes(sent: now, nodes)) {
          .list($0, ObjectName.nodes(of: day), .init(continuation: next), timeout: 5)
        }
      }
      if before.isEmpty {
        let trip = Int(max(0, now.seconds(since: sent)) * 1000)
        start.roundTrip = min(start.roundTrip ?? trip, trip, 1000)
        learn()
      }
      if Set(fleet.nodes) != nodes.union([fleet.identity.node]) { fleet.saw(nodes: nodes.sorted()) }
      markAgain()
    }
    // Of nodes that begin together, each sees the others soon.
    start.listings += 1
    start.listsNodesAt = now.adding(seconds: start.listings < 6 ? 0.1 * Double(1 << start.listings) : 60)
  }

  /// Notes in the bucket that the file is used today, once a day: what nobody used for long may be removed.
  func markUse(of file: SharedFile) {
    if setup.isReadOnly { return }
    if start.markedDay != day { (start.markedDay, start.marked) = (day, []) }
    if start.marked.insert(file.id).inserted { mark(file.id) }
  }

  private func mark(_ id: FleetID) {
    ask(.seen(id)) {
      .putIfAbsent($0, ObjectName.seen(day: day, id).text, StoreBody(DayMark.seen.bytes), timeout: 10)
    }
  }

  func useMarked(_ outcome: StoreOutcome, _ id: FleetID) {
    switch outcome {
    case .busy, .full, .broken, .timedOut: start.unmarked.insert(id)
    // It is there, or the store would refuse it again.
    default: break
    }
  }

  /// Writes marks again that the store did not take: without one, `share collect` may remove a file that was used. It
  /// does so when the store has listed the nodes, which is once a minute.
  private func markAgain() {
    let again = Array(start.unmarked.prefix(FleetStart.mostMarks))
    start.unmarked.subtract(again)
    for id in again { mark(id) }
  }

  /// Today by the store's clock: YYYYMMDD.
  private var day: Int {
    var seconds = time_t(store.time)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    return (Int(parts.tm_year) + 1900) * 10_000 + (Int(parts.tm_mon) + 1) * 100 + Int(parts.tm_mday)
  }
}
