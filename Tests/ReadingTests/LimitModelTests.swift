import Base
import Fetching
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// Random reads, rules, limits, restarts and kills against a reference that knows two numbers: the limit, and what was
/// on the disk when it was last lowered.
@Suite struct LimitModelTests {
  private enum Operation: CaseIterable {
    case open, read, close, keep, auto, fetch, clear, limit, policy, refuse, restart, kill, wait

    var weight: Int {
      switch self {
      case .read: 90
      case .open: 24
      case .close: 20
      case .wait: 16
      case .limit, .kill: 3
      case .keep, .auto, .policy, .fetch: 2
      case .clear, .refuse, .restart: 1
      }
    }
  }

  private struct File {
    let name: String
    let size: Int64
    var handles: [Inode] = []
    var isKept = false
    /// What was stored of it when it was last looked at, and nothing was to go.
    var floor = ByteRangeSet()
  }

  private final class Model {
    let bench: Bench
    var random: SeededRandom
    var files: [File] = []
    /// The most that may be on the disk: the limit, or what was there when it was lowered.
    var ceiling: Int64
    var limit: Int64 = 8 << 20
    var (reads, kills, limits, evictions) = (0, 0, 0, 0)
    var most: Int64 = 0
    private var deck: [Operation] = []
    private var steps = 0
    private var problems = 0

    init(_ random: SeededRandom) throws {
      self.random = random
      var entries: [ManifestEntry] = []
      var resources: [String: FakeResource] = [:]
      for number in 1...6 {
        let name = "\(number).bin"
        var resource = FakeResource(name: name, size: Int64.random(in: 1...5_000_000, using: &self.random))
        resource.rate = 20e6
        entries.append(Bench.entry(name, UInt64(number)))
        resources["http://origin/" + name] = resource
        files.append(File(name: name, size: resource.size))
      }
      var options = ReadingOptions.testing
      options.maximumSize = limit
      ceiling = limit
      bench = try Bench(entries, resources, options: options)
    }

    func fail(_ what: String) {
      problems += 1
      if problems < 5 { Issue.record("MEDIAFS_SEED=\(random.seed), step \(steps): \(what)") }
    }

    // MARK: What is demanded

    /// After everything that happens: the limit holds, and nothing that is open or kept is gone.
    func look() {
      let onDisk = bench.onDisk
      most = max(most, onDisk - ceiling)
      if onDisk > ceiling + LimitScenarios.slack { fail("\(onDisk) on the disk, the limit is \(limit) (\(ceiling))") }
      ceiling = max(limit, min(ceiling, onDisk))
      for index in files.indices where !files[index].handles.isEmpty || files[index].isKept {
        guard let stored = try? bench.stored(bench.inode(files[index].name)) else { continue }
        let gone = files[index].floor.without(stored)
        if !gone.isEmpty { fail("\(files[index].name) is open or kept, and \(gone) went") }
        files[index].floor = stored
      }
    }

    /// Lets time go by, and looks at the store all the while.
    private func run(_ seconds: Double) {
      var left = seconds
      while left > 0 {
        bench.run(0.02, step: 0.02)
        look()
        left -= 0.02
      }
    }

    // MARK: What is done

    func step() throws {
      steps += 1
      if deck.isEmpty {
        deck = Operation.allCases.flatMap { Array(repeating: $0, count: $0.weight) }.shuffled(using: &random)
      }
      try perform(deck.removeLast(), on: Int.random(in: 0..<files.count, using: &random))
      look()
    }

    private func perform(_ operation: Operation, on index: Int) throws {
      let name = files[index].name
      switch operation {
      case .open:
        if files[index].handles.count < 2 { files[index].handles.append(try bench.opened(name)) }
        noteFloor(index)
      case .read: read(files.indices.filter { !files[$0].handles.isEmpty }.randomElement(using: &random) ?? index)
      case .close:
        if let inode = files[index].handles.popLast() { bench.system.release(inode) }
      case .keep:
        try bench.rule(.keep, name)
        files[index].isKept = true
        noteFloor(index)
      case .auto:
        for index in files.indices {
          try bench.rule(.auto, files[index].name)
          files[index].isKept = false
        }
      case .fetch: bench.system.fetch([try bench.inode(name)])
      case .clear:
        files[index].floor = ByteRangeSet()
        files[index].isKept = false
        try bench.rule(.auto, name)
        _ = bench.system.beginClearing(try bench.inode(name))
        bench.run(0.5)
        files[index].floor = ByteRangeSet()
      case .limit:
        limits += 1
        ceiling = max(ceiling, bench.onDisk)
        limit = Int64.random(in: 1...16, using: &random) << 20
        ceiling = max(limit, min(ceiling, bench.onDisk))
        bench.limit { $0.maximumSize = limit }
      case .policy:
        let evicts: EvictionPolicy = Bool.random(using: &random) ? .complete : .partial
        bench.limit { $0.evicts = evicts }
      case .refuse: bench.refuseWrite()
      case .restart: try restart(killed: false)
      case .kill:
        kills += 1
        try restart(killed: true)
      case .wait: run(Double.random(in: 0...1.5, using: &random))
      }
    }

    private func noteFloor(_ index: Int) {
      files[index].floor = (try? bench.stored(bench.inode(files[index].name))) ?? ByteRangeSet()
    }

    private func read(_ index: Int) {
      guard let inode = files[index].handles.first else { return }
      reads += 1
      let count = Int.random(in: 1...262_144, using: &random)
      let offset = Int64.random(in: 0..<files[index].size, using: &random)
      let ticket = bench.read(inode, offset, count)
      var waits = 0
      while bench.port.reply(to: ticket) == nil, waits < 3000 {
        bench.run(0.02, step: 0.02)
        look()
        waits += 1
      }
      guard case .data(let bytes)? = bench.port.take(ticket) else {
        return fail("\(files[index].name) at \(offset): no bytes")
      }
      let expected = min(Int64(count), files[index].size - offset)
      if Int64(bytes.count) != expected
        || Pattern.check(bytes, name: files[index].name, generation: 1, offset: offset) != nil
      {
        fail("\(files[index].name) at \(offset): other bytes")
      }
    }

    private func restart(killed: Bool) throws {
      bench.stop(killed: killed)
      for finding in try bench.findings() { fail("\(finding)") }
      try bench.start()
      bench.system.resume()
      for index in files.indices {
        files[index].handles = []
        files[index].floor = ByteRangeSet()
        if files[index].isKept { noteFloor(index) }
      }
    }

    /// With nothing open and nothing kept, what may go by itself goes, and the limit holds.
    func settle() throws {
      bench.run(0.5)  // the keeper takes up the last fetch: otherwise that would come after its cancel
      for index in files.indices {
        for inode in files[index].handles { bench.system.release(inode) }
        files[index].handles = []
        try bench.rule(.auto, files[index].name)
        files[index].isKept = false
        try bench.cancel(files[index].name)
      }
      bench.limit { limits in
        limits.maximumSize = 2 << 20
        limits.evicts = .complete
      }
      bench.run(30, step: 0.05)
      if bench.onDisk > 2 << 20 { fail("\(bench.onDisk) stay on the disk with nothing in use") }
      if bench.held > 2 << 20 { fail("\(bench.held) are counted, of \(bench.onDisk)") }
      bench.stop()
      for finding in try bench.findings() { fail("\(finding)") }
    }
  }

  @Test("Random reads, rules, limits and kills: the limit holds at each moment", arguments: 0..<2)
  func random(_ run: Int) throws {
    var random = SeededRandom.fromEnvironment(for: "LimitModelTests.random \(run)")
    for _ in 0..<run { _ = random.next() }
    let model = try Model(random)
    for _ in 0..<1000 { try model.step() }
    try model.settle()
    print(
      "limits \(run): \(model.reads) reads, \(model.kills) kills, \(model.limits) limits, at most \(model.most) above, "
        + "\(model.bench.service.sent) bytes fetched")
    #expect(model.reads > 200 && model.kills > 3 && model.limits > 3)
  }
}
