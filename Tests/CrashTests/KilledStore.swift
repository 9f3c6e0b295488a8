import Base
import Glibc
import TestSupport

/// One store whose server is killed again and again.
struct KilledStore {
  private let store: ServedStore
  private var shelf: Shelf
  private var random: SeededRandom
  private var audit = StoreAudit()
  private var counts = KillCounts()
  /// What is listed at present.
  private var listed: [Int] = []
  private var round = 0

  static func run(kills: Int, random: SeededRandom) throws -> KillCounts {
    var settings = OriginSettings()
    settings.lineRate = 8_388_608
    settings.latency = 0.002
    return try withOrigin(settings) { origin in
      try withServedStore { store in
        var killed = KilledStore(store: store, shelf: Shelf(origin: origin), random: random)
        while killed.counts.kills < kills { try killed.serve() }
        try killed.finish()
        return killed.counts
      }
    }
  }

  private init(store: ServedStore, shelf: Shelf, random: SeededRandom) {
    self.store = store
    self.shelf = shelf
    self.random = random
  }

  /// Fails the test. By an error: what is recorded on a thread of our own belongs to no test.
  private func check(_ condition: Bool, _ message: String) throws {
    if !condition { throw CrashFailure(description: "\(message) (round \(round), seed \(random.seed))") }
  }

  /// Another manifest: some files go, new ones come, old ones are brought back.
  private mutating func changeManifest() throws {
    listed = listed.filter { _ in random.oneIn(2) }
    for _ in 0..<6 {
      listed.append(shelf.add(size: random.oneIn(8) ? 0 : Int64.random(in: 1...900_000, using: &random)))
    }
    for _ in 0..<2 {
      let old = Int.random(in: 0..<shelf.sizes.count, using: &random)
      if !listed.contains(old) { listed.append(old) }
    }
    try store.list(listed.map { shelf.line($0) })
    counts.done[.manifest, default: 0] += 1
  }

  /// Starts a server, lets readers read, kills it somewhere (or, once in a while, ends it in order), and looks at what
  /// it left.
  private mutating func serve() throws {
    if round % 2 == 0 { try changeManifest() }
    round += 1
    let shim = store.shim
    shim.clear()
    let aim = random.oneIn(3) ? nil : aim()
    let isTidy = aim == nil && random.oneIn(4)
    // Afterwards nothing is stored for ten seconds: not in every round.
    let fills = random.oneIn(8)
    let lifetime = Double.random(in: 0.02...1.6, using: &random)
    let isReady = try store.start(["--continue", "always"])
    if !isReady, !shim.hasKilled { throw CrashFailure(description: "the server did not start: \(store.errors)") }
    if isReady {
      if aim != nil { store.holdHelper() }  // what this server leaves is looked at
      let readers = Readers(store: store, shelf: shelf, listed: listed, random: &random)
      let end = Instant.now.adding(seconds: aim.map(patience) ?? lifetime)
      while Instant.now < end, !shim.hasKilled {
        disturb(fills: fills)
        sleep(seconds: 0.01)
      }
      shim.succeed()
      if isTidy { try store.unmountUnderReaders() } else { store.kill() }
      readers.stop()
      counts.read += readers.bytes
      counts.done.merge(readers.done, uniquingKeysWith: +)
      try check(readers.problems.isEmpty, "\(readers.problems)")
    }
    try store.waitForEnd()
    if isReady, isTidy { counts.done[.restart, default: 0] += 1 } else { count(isReady) }
    try audit.look(at: store.store)
    try check(audit.problems.isEmpty, "\(audit.problems)\n\(store.errors)")
  }

  /// Changes files at the origin, lets it do wrong, fills the disk and empties it again.
  private mutating func disturb(fills: Bool) {
    guard let index = listed.randomElement(using: &random) else { return }
    let path = Shelf.path(index)
    if random.oneIn(40) {
      shelf.origin.nextGeneration(path)
      counts.done[.change, default: 0] += 1
    }
    if random.oneIn(30) {
      let place = Int64.random(in: 0...100_000, using: &random)
      let faults: [OriginFault] = [
        .resetBeforeHeaders, .stallBeforeHeaders, .resetAfter(place), .closeAfter(place), .stallAfter(place),
        .status(503), .status(404), .ignoreRange(), .contentRange(.missing), .delay(0.1),
      ]
      let fault = faults[Int.random(in: 0..<faults.count, using: &random)]
      shelf.origin.fault(fault, path: path, next: Int.random(in: 1...2, using: &random))
      counts.done[.fault, default: 0] += 1
    }
    if fills, random.oneIn(20) {
      store.shim.fail([.partial], with: ENOSPC)
      counts.done[.fillDisk, default: 0] += 1
    } else if random.oneIn(10) {
      store.shim.succeed()
    }
  }

  /// How long a server may live that is to die in an operation of that kind: the first of each kind is waited for, as
  /// a busy machine takes its time.
  private func patience(_ kind: DiskShim.Kind) -> Double {
    let hits = Self.counted.first { $0.kind == kind }.map { counts[keyPath: $0.hits] }
    return hits == 0 ? 20 : 2.5
  }

  /// Where it is counted that a server was killed within an operation of a kind.
  private static var counted: [(kind: DiskShim.Kind, hits: WritableKeyPath<KillCounts, Int>)] {
    [
      (.log, \.commits), (.rename, \.renames), (.partial, \.writes), (.sync, \.syncs), (.unlink, \.removals),
    ]
  }

  /// Chooses where the server dies, unless its time is up before.
  private mutating func aim() -> DiskShim.Kind {
    let choices: [(DiskShim.Kind, Int)] = [
      (.log, 120), (.log, 20), (.rename, 4), (.partial, 60), (.partial, 10), (.sync, 40), (.unlink, 3), (.database, 6),
    ]
    let (kind, most) = choices[Int.random(in: 0..<choices.count, using: &random)]
    let phase: DiskShim.Phase
    switch kind {
    case .partial: phase = DiskShim.Phase.allCases[Int.random(in: 0..<3, using: &random)]
    // A commit is over with its last write: only what comes before is within.
    case .log, .database: phase = random.oneIn(2) ? .before : .half
    default: phase = random.oneIn(2) ? .before : .after
    }
    store.shim.kill(in: kind, after: Int.random(in: 0..<most, using: &random), phase)
    return kind
  }

  private mutating func count(_ isReady: Bool) {
    let shim = store.shim
    counts.kills += 1
    counts.done[.kill, default: 0] += 1
    if !isReady { counts.starts += 1 }
    var isWithin = false
    for (kind, hits) in Self.counted where shim.wasWithin(kind) {
      counts[keyPath: hits] += 1
      isWithin = true
    }
    if !isWithin { counts.anywhere += 1 }
  }

  /// Reads a whole file; opened anew when the origin's new version takes the place of the one that is being read.
  private func readFollowing(_ index: Int) throws -> [UInt8] {
    for _ in 0..<5 {
      do throws(Errno) { return try store.read(Shelf.name(index)) } catch {
        guard error == .stale else { throw error }
      }
    }
    return try store.read(Shelf.name(index))
  }

  /// Serves once more, unharmed: everything is read through the mount, and the store is found clean.
  private mutating func finish() throws {
    store.shim.clear()
    shelf.origin.clearFaults()
    listed = Array(shelf.sizes.indices)
    try store.list(listed.map { shelf.line($0) })
    try check(store.start(["--continue", "always"]), store.errors)
    for index in listed {
      let bytes = try readFollowing(index)
      counts.read += Int64(bytes.count)
      let isRight = Int64(bytes.count) == shelf.sizes[index] && shelf.isRight(bytes, index, at: 0)
      try check(isRight, "\(Shelf.name(index)) has \(bytes.count) bytes, some of them wrong")
    }
    try store.unmount()
    try audit.look(at: store.store, everything: true)
    try check(audit.problems.isEmpty, "\(audit.problems)")
    let verified = try store.verify()
    try check(verified.succeeded, verified.output + verified.errors)
    counts.compared = audit.compared
    counts.completed = audit.complete.count
    for index in listed {
      counts.sent += shelf.origin.log.bytesSent(of: Shelf.path(index))
      counts.needed += shelf.sizes[index] * Int64(shelf.origin.resource(Shelf.path(index))?.generation ?? 1)
    }
  }
}

/// Threads that read at random through a mount, until it goes away.
private final class Readers: Sendable {
  private struct State {
    var isStopping = false
    var running = 0
    var bytes: Int64 = 0
    var problems: [String] = []
    var done: [StoreOperation: Int] = [:]
  }

  private let store: ServedStore
  private let shelf: Shelf
  private let listed: [Int]
  private let state = Lock(State())

  var bytes: Int64 { state.withLock { $0.bytes } }
  var problems: [String] { state.withLock { $0.problems } }
  var done: [StoreOperation: Int] { state.withLock { $0.done } }

  init(store: ServedStore, shelf: Shelf, listed: [Int], random: inout SeededRandom) {
    self.store = store
    self.shelf = shelf
    self.listed = listed
    let seeds = (0..<3).map { _ in random.fork() }
    state.withLock { $0.running = seeds.count }
    for seed in seeds {
      // Waited for in stop().
      _ = OwnedThread(name: "reader") { [self] in
        pthread_detach(pthread_self())
        var random = seed
        while !state.withLock({ $0.isStopping }) {
          do throws(Errno) { try readOne(&random) } catch {
            // The server is gone, or the file changed under the handle: what matters is that no byte was wrong.
            sleep(seconds: 0.005)
          }
        }
        state.withLock { $0.running -= 1 }
      }
    }
  }

  /// Ends the threads; the mount must be going, or they could wait for the origin.
  func stop() {
    state.withLock { $0.isStopping = true }
    if !eventually(timeout: 120, { state.withLock { $0.running == 0 } }) {
      let served = store.helper.map { ProcessReport.describe($0, withGroup: true) } ?? ""
      state.withLock { $0.problems.append("readers hang: \(ProcessReport.kernelState(getpid()))\n\(served)") }
    }
  }

  private func readOne(_ random: inout SeededRandom) throws(Errno) {
    guard let index = listed.randomElement(using: &random) else { return }
    let file = try FileDescriptor.open("\(store.mountpoint)/\(Shelf.name(index))", O_RDONLY)
    note(.open)
    defer { note(.close) }
    let size = shelf.sizes[index]
    if random.oneIn(2) {
      var position: Int64 = 0
      while position < size, !state.withLock({ $0.isStopping }) {
        position += try readPart(of: file, index, at: position, 1 << 16)
        note(.read)
      }
    } else {
      for _ in 0..<4 where size > 0 {
        let offset = Int64.random(in: 0..<size, using: &random)
        _ = try readPart(of: file, index, at: offset, Int.random(in: 1...50_000, using: &random))
        note(.seek)
      }
    }
  }

  private func note(_ operation: StoreOperation) { state.withLock { $0.done[operation, default: 0] += 1 } }

  private func readPart(
    of file: borrowing FileDescriptor, _ index: Int, at offset: Int64, _ count: Int
  ) throws(Errno) -> Int64 {
    let bytes = try CrashTests.readPart(file, at: offset, count: count)
    let isRight = shelf.isRight(bytes, index, at: offset)
    let isWhole = bytes.count == Int(min(Int64(count), shelf.sizes[index] - offset))
    state.withLock { state in
      state.bytes += Int64(bytes.count)
      if !isRight {
        let what = shelf.describe(bytes, index, at: offset)
        state.problems.append("\(Shelf.name(index)) at \(offset): \(what)")
      }
      if !isWhole { state.problems.append("\(Shelf.name(index)) at \(offset): \(bytes.count) of \(count) bytes") }
    }
    return Int64(max(1, bytes.count))
  }
}
