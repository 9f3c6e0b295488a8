import Base
import Fetching
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// Thousands of random operations against a reference that knows every byte of every version.
///
/// Of each answer it is demanded: the bytes are those of the one version that the inode stands for; an error is one
/// that the promises name; it comes once, and within the deadline. A failing run prints its seed and the step at which
/// it failed: MEDIAFS_SEED repeats it to the last step. What was done is counted,
/// and a kind of operation that was never done fails the run.
@Suite struct ModelTests {
  /// What is done, and how often among two hundred steps: dealt like cards, so that none is left out by chance.
  private enum Operation: String, CaseIterable {
    case open, read, seek, close, stat, interrupt, fault, change, clear, fetch, restart, kill, reconnect
    case fillDisk = "fill the disk"
    case wait
    case waitLong = "wait long"

    var weight: Int {
      switch self {
      case .open: 28
      case .read: 30
      case .seek: 50
      case .close: 8
      case .stat: 6
      case .fault: 12
      case .change: 4
      case .interrupt, .clear, .fetch, .reconnect, .fillDisk, .waitLong: 2
      case .restart, .kill: 1
      case .wait: 48
      }
    }
  }

  /// An open handle: the next byte that is read if no seek comes before.
  private struct Handle {
    var inode: Inode
    var position: Int64 = 0
  }

  /// One file of the reference.
  private struct File {
    var name: String
    var url: String
    var hasValidators: Bool
    /// The largest size it had: reads are made up to a little behind it.
    var largest: Int64
    /// Which version each inode was seen to stand for.
    var versions: [Inode: UInt64] = [:]
    var sizes: [UInt64: Int64] = [:]
    var handles: [Handle] = []
  }

  private struct Pending {
    var ticket: Ticket
    var file: Int
    var inode: Inode
    var offset: Int64
    var count: Int
    var isOpen: Bool
  }

  private final class Model {
    let bench: Bench
    var random: SeededRandom
    var files: [File]
    var pending: [Pending] = []
    var comparedBytes: Int64 = 0
    var answers = 0
    var errors: [Errno: Int] = [:]
    var problems = 0
    /// How often each was done, with effect.
    var done: [Operation: Int] = [:]
    private var deck: [Operation] = []
    private var steps = 0

    init(_ random: SeededRandom) throws {
      self.random = random
      var files: [File] = []
      var entries: [ManifestEntry] = []
      var resources: [String: FakeResource] = [:]
      for number in 1...5 {
        let name = "\(number).mp4"
        let entry = Bench.entry(name, UInt64(number))
        var resource = FakeResource(name: name, size: Int64.random(in: 1...3_000_000, using: &self.random))
        if number == 4 { resource.ignoresRanges = true }
        resource.rate = Double.random(in: 200_000...5_000_000, using: &self.random)
        resource.latency = Double.random(in: 0...0.1, using: &self.random)
        entries.append(entry)
        resources[entry.urls[0]] = resource
        files.append(
          File(
            name: name, url: entry.urls[0], hasValidators: true, largest: resource.size, sizes: [1: resource.size]))
      }
      self.files = files
      var options = ReadingOptions.testing
      options.maximumSize = 6_000_000
      bench = try Bench(entries, resources, options: options)
    }

    func fail(_ what: String) {
      problems += 1
      if problems < 10 { Issue.record("MEDIAFS_SEED=\(random.seed), step \(steps): \(what)") }
    }

    // MARK: What is demanded

    func collect() {
      pending.removeAll { pending in
        guard let reply = bench.port.take(pending.ticket) else {
          // A stall may begin anew with each byte; but nothing is waited for in vain for so long.
          let waited = bench.now.seconds(since: bench.issued[pending.ticket] ?? bench.now)
          if waited > 40 * bench.options.timeout {
            fail("\(files[pending.file].name) at \(pending.offset): no answer after \(waited) s")
            return true
          }
          return false
        }
        answers += 1
        check(pending, reply)
        return true
      }
    }

    private func check(_ pending: Pending, _ reply: Reply) {
      switch reply {
      case .opened: files[pending.file].handles.append(Handle(inode: pending.inode))
      case .data(let bytes): check(pending, bytes)
      case .attributes(let shown):
        if shown.isFinal, !files[pending.file].sizes.values.contains(shown.size) {
          fail("\(files[pending.file].name) shows \(shown.size) bytes")
        }
      case .error(let error):
        errors[error, default: 0] += 1
        if ![.io, .stale, .timedOut, .accessDenied].contains(error) {
          fail("\(files[pending.file].name) at \(pending.offset): \(error)")
        }
      }
    }

    private func check(_ pending: Pending, _ bytes: [UInt8]) {
      let file = files[pending.file]
      let candidates: [UInt64]
      if let known = file.versions[pending.inode] {
        candidates = [known]
      } else {
        candidates = Array(file.sizes.keys)
      }
      let fitting = candidates.filter { version in
        guard let size = file.sizes[version] else { return false }
        let expected = max(0, min(Int64(pending.count), size - pending.offset))
        return Int64(bytes.count) == expected
          && Pattern.check(bytes, name: file.name, generation: version, offset: pending.offset) == nil
      }
      comparedBytes += Int64(bytes.count)
      if fitting.isEmpty {
        fail(
          "\(file.name), inode \(pending.inode), \(bytes.count) bytes at \(pending.offset) are not of "
            + "version \(candidates.sorted()), whose sizes are \(file.sizes)")
      } else if bytes.count >= 8, fitting.count == 1 {
        files[pending.file].versions[pending.inode] = fitting[0]
      }
    }

    // MARK: What is done

    func step() throws {
      steps += 1
      if deck.isEmpty {
        deck = Operation.allCases.flatMap { Array(repeating: $0, count: $0.weight) }.shuffled(using: &random)
      }
      let operation = deck.removeLast()
      if try perform(operation, on: Int.random(in: 0..<files.count, using: &random)) {
        done[operation, default: 0] += 1
      }
      collect()
    }

    /// False when there was nothing to do it to.
    private func perform(_ operation: Operation, on index: Int) throws -> Bool {
      switch operation {
      case .open: return open(index)
      case .read: return read(index, seeking: false)
      case .seek: return read(index, seeking: true)
      case .close: return close(index)
      case .stat: return stat(index)
      case .interrupt: return interrupt(index)
      case .fault: fault(index)
      case .change: change(index)
      case .clear: return clear(index)
      case .fetch: bench.system.fetch([try bench.inode(files[index].name)])
      case .restart: try restart(killed: false)
      case .kill: try restart(killed: true)
      case .reconnect: bench.system.reconnect()
      case .fillDisk: bench.refuseWrite()
      case .wait: bench.run(Double.random(in: 0...0.3, using: &random), step: 0.02)
      case .waitLong: bench.run(Double.random(in: 0...60, using: &random), step: 0.1)
      }
      return true
    }

    private func inode(_ index: Int) -> Inode? {
      let inode = try? bench.inode(files[index].name)
      if inode == nil { fail("\(files[index].name) has vanished") }
      return inode
    }

    private func stat(_ index: Int) -> Bool {
      guard let inode = inode(index) else { return false }
      add(bench.stat(inode), index, inode)
      return true
    }

    private func open(_ index: Int) -> Bool {
      guard files[index].handles.count < 4, let inode = inode(index) else { return false }
      add(bench.open(inode), index, inode, isOpen: true)
      return true
    }

    private func add(
      _ ticket: Ticket, _ index: Int, _ inode: Inode, _ offset: Int64 = 0, _ count: Int = 0, isOpen: Bool = false
    ) {
      pending.append(
        Pending(ticket: ticket, file: index, inode: inode, offset: offset, count: count, isOpen: isOpen))
    }

    /// Reads where the handle is, or somewhere else: a little, or four pieces at once as the kernel's read-ahead does.
    private func read(_ index: Int, seeking: Bool) -> Bool {
      guard let place = files[index].handles.indices.randomElement(using: &random), pending.count < 60 else {
        return false
      }
      if seeking {
        files[index].handles[place].position = Int64.random(in: 0...(files[index].largest + 5000), using: &random)
      }
      let handle = files[index].handles[place]
      let isRun = Bool.random(using: &random)
      for part in 0..<(isRun ? Int64(4) : 1) {
        let count = Int.random(in: 1...131072, using: &random)
        let start = handle.position + part * 131072
        add(bench.read(handle.inode, start, count), index, handle.inode, start, count)
        files[index].handles[place].position = start + Int64(count)
      }
      return true
    }

    private func close(_ index: Int) -> Bool {
      guard let place = files[index].handles.indices.randomElement(using: &random) else { return false }
      let inode = files[index].handles[place].inode
      // As the kernel does: no release while a read of the last handle waits.
      let isLast = files[index].handles.count(where: { $0.inode == inode }) == 1
      if isLast, pending.contains(where: { $0.inode == inode }) { return false }
      files[index].handles.remove(at: place)
      bench.system.release(inode)
      return true
    }

    private func fault(_ index: Int) {
      let url = files[index].url
      guard var resource = bench.service.resources[url] else { return }
      resource.failure = nil
      resource.breaksAfter = nil
      resource.stallsAfter = nil
      resource.isSilent = false
      resource.distrustsIfRange = false
      if index != 3 { resource.ignoresRanges = false }
      switch Int.random(in: 0..<16, using: &random) {
      case 0: resource.failure = FakeResource.reset
      case 1: resource.failure = FakeResource.gone
      case 2: resource.failure = TransferFailure(kind: .transient, status: 503, retryAfter: 3, message: "busy")
      case 3: resource.breaksAfter = Int64.random(in: 1...300_000, using: &random)
      case 4: resource.stallsAfter = Int64.random(in: 0...300_000, using: &random)
      case 5: resource.isSilent = true
      case 6: resource.ignoresRanges = true
      case 7: resource.distrustsIfRange = true
      case 8: resource.failure = FakeResource.odd
      case 9: resource.failure = TransferFailure(kind: .denied, status: 403, message: "refused")
      default: break
      }
      bench.service.resources[url] = resource
    }

    private func change(_ index: Int) {
      let url = files[index].url
      bench.service.resources[url]?.change(
        size: Bool.random(using: &random) ? Int64.random(in: 1...3_000_000, using: &random) : nil)
      guard let resource = bench.service.resources[url] else { return }
      files[index].sizes[resource.version] = resource.size
      files[index].largest = max(files[index].largest, resource.size)
    }

    private func clear(_ index: Int) -> Bool {
      guard let inode = inode(index) else { return false }
      return bench.system.beginClearing(inode)
    }

    private func interrupt(_ index: Int) -> Bool {
      if pending.isEmpty { _ = read(index, seeking: true) }  // so that in most cases somebody waits
      guard let taken = pending.randomElement(using: &random) else { return false }
      bench.interrupt(taken.ticket, isKilled: true)
      guard bench.port.reply(to: taken.ticket) == .error(.interrupted) else { return true }
      _ = bench.port.take(taken.ticket)
      pending.removeAll { $0.ticket == taken.ticket }
      answers += 1
      return true
    }

    private func restart(killed: Bool) throws {
      collect()
      pending = []
      for index in files.indices { files[index].handles = [] }
      try bench.restart(killed: killed)
    }

    /// With an origin that is well again every file can be read, whole and right, and completes.
    func settle() throws {
      bench.run(10, step: 0.05)
      for index in files.indices {
        guard var resource = bench.service.resources[files[index].url] else { continue }
        resource.failure = nil
        resource.breaksAfter = nil
        resource.stallsAfter = nil
        resource.isSilent = false
        resource.distrustsIfRange = false
        bench.service.resources[files[index].url] = resource
      }
      bench.run(200, step: 0.1)
      collect()
      for waiting in pending { fail("\(files[waiting.file].name) at \(waiting.offset) is still not answered") }
      pending = []
      for index in files.indices { try readWhole(index) }
    }

    private func readWhole(_ index: Int) throws {
      let name = files[index].name
      guard let resource = bench.service.resources[files[index].url] else { return }
      // The first attempts may still see that the file has changed.
      var seen: [String] = []
      for _ in 0..<5 {
        let inode = try bench.inode(name)
        let opened = bench.answer(bench.open(inode), within: 120, step: 0.05)
        guard case .opened? = opened else {
          seen.append("open: \(String(describing: opened))")
          continue
        }
        defer { bench.system.release(inode) }
        var offset: Int64 = 0
        let count = 131072
        while true {
          let ticket = bench.read(inode, offset, count)
          let reply = bench.answer(ticket, within: 120, step: 0.02)
          guard case .data(let bytes)? = reply else {
            seen.append("inode \(inode), at \(offset): \(String(describing: reply))")
            break
          }
          check(Pending(ticket: ticket, file: index, inode: inode, offset: offset, count: count, isOpen: false), bytes)
          // The end of its version, as was just checked: a complete copy is not asked about again.
          if bytes.count < count { return }
          offset += Int64(count)
        }
      }
      fail("\(name) cannot be read to its end although its origin is well: \(seen), \(resource)")
    }
  }

  @Test("Random operations: right bytes or a named error, once, in time", arguments: 0..<12)
  func random(_ run: Int) throws {
    var random = SeededRandom.fromEnvironment(for: "ModelTests.random \(run)")
    for _ in 0..<run { _ = random.next() }
    let model = try Model(random)
    for _ in 0..<1500 { try model.step() }
    try model.settle()
    let done = Operation.allCases.map { ($0, model.done[$0] ?? 0) }
    Figures.add("operations of the random model", done.reduce(0) { $0 + $1.1 })
    print(
      "model \(run): \(done.map { "\($0.1) \($0.0.rawValue)" }.joined(separator: ", ")); "
        + "\(model.answers) answers, \(model.comparedBytes) bytes compared, "
        + "errors \(model.errors.map { "\($0.key.rawValue): \($0.value)" }.sorted())")
    let never = done.filter { $0.1 == 0 }.map(\.0.rawValue)
    #expect(never.isEmpty, "never done: \(never)")
    #expect(model.comparedBytes > 0)
    #expect(model.answers > 100)
  }
}
