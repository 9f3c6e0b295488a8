import Base
import Fetching
import Glibc
import Manifest
import TestSupport
import Testing

@testable import Reading
@testable import Storing

/// A disk that loses what was written to it, and files that cannot be written to.
@Suite struct StoreFaultScenarios {
  static let megabyte: Int64 = 1 << 20

  /// Puts the file at `path` in a descriptor's place.
  func replace(_ descriptor: Int32, by path: String, _ flags: Int32) throws {
    let other = try FileDescriptor.open(path, flags)
    try #require(dup2(other.rawValue, descriptor) == descriptor)
  }

  /// From here on the disk loses what is written to a file, and a sync of it fails: fdatasync(2) of a device is
  /// invalid, and what is read from this one are zeros.
  private func lose(_ content: Content) throws -> ServedFile {
    let file = try #require(content.guarded.withLock { $0.file })
    try replace(file.number, by: "/dev/zero", O_RDWR)
    return file
  }

  func stored(_ content: Content) -> ByteRangeSet { content.guarded.withLock { $0.state.stored } }

  /// A file whose first 100 kB, and what came with them, are synced.
  private func synced(_ bench: Bench) throws -> (inode: Inode, content: Content, stored: ByteRangeSet) {
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.run(Keeper.syncSeconds + 3, step: 0.05)
    let content = try #require(bench.content(inode))
    let (unsynced, stored) = content.guarded.withLock { ($0.unsynced, $0.state.stored) }
    try #require(unsynced == 0 && stored.count >= 100_000)
    return (inode, content, stored)
  }

  @Test("A sync fails while the rest is fetched: what was synced stays, the rest is a hole again and then right")
  func syncOfKeeper() throws {
    var resource = FakeResource(name: "a.mp4", size: 40 * Self.megabyte)
    resource.rate = 200_000
    let bench = try Bench(resource)
    try loseInMidFile(bench)
    try bench.restart(killed: true)
    let again = try bench.opened("a.mp4")
    for offset: Int64 in [0, 100_000, 1_000_000, 3_000_000] {
      bench.expectBytes(again, offset, 50_000, of: "a.mp4")
    }
  }

  /// By itself: what it holds keeps the store open.
  private func loseInMidFile(_ bench: Bench) throws {
    let (inode, content, before) = try synced(bench)
    bench.system.fetch([inode])
    bench.run(1)
    let file = try lose(content)
    #expect(bench.run(until: 60, step: 0.05) { file.isDistrusted })
    let after = stored(content)
    bench.move(0.01)
    // Zeros that were read between the loss and the sync.
    let forgotten = try #require(bench.port.forgotten[inode])
    #expect(forgotten.start <= after.runEnd(from: 0) + 1 && forgotten.end > 3_000_000, "\(forgotten)")
    #expect(after.count <= before.count && before.intersection(after) == after, "\(after) of \(before)")
    #expect(after.count >= before.count - 128 << 10)
    let id = try #require(content.guarded.withLock { $0.generation?.id })
    #expect(try bench.store.catalog.generation(id)?.stored == after)
    for offset: Int64 in [0, 100_000, 1_000_000, 3_000_000] {
      bench.expectBytes(inode, offset, 50_000, of: "a.mp4")
    }
    #expect(content.guarded.withLock { $0.file } !== file)
    // Storing goes on, and the next sync is believed.
    bench.run(Keeper.refusedSeconds + Keeper.syncSeconds + 10, step: 0.05)
    let synced = content.guarded.withLock { $0.synced }
    #expect(synced.count > before.count)
  }

  @Test("A sync fails while the file waits for the finisher, which is busy: it is not placed with what was lost")
  func syncBeforeFinisher() throws {
    let size = 3 * Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let (inode, content, _) = try synced(bench)
    let file = try #require(content.guarded.withLock { $0.file })
    bench.system.fetch([inode])
    for _ in 0..<2000 where content.guarded.withLock({ $0.phase }) != .completing { bench.move(0.01, finishing: false) }
    #expect(content.guarded.withLock { $0.phase } == .completing)
    // A sync that the keeper began before the last byte came ends now.
    file.distrust()
    bench.engine.distrust(content, file, .io)
    let left = stored(content)
    #expect(left.count < size)
    _ = bench.engine.finisher.turn()
    #expect(stored(content) == left)
    #expect(!bench.isComplete("a.mp4"))
    #expect(bench.run(until: 120, step: 0.02) { bench.isComplete("a.mp4") })
    bench.expectBytes(inode, 0, Int(size), of: "a.mp4")
  }

  @Test("A sync fails when the file is whole: it is not placed, what was lost is fetched again, then it is complete")
  func syncOfFinisher() throws {
    let size = 3 * Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let (inode, content, before) = try synced(bench)
    let file = try lose(content)
    bench.system.fetch([inode])
    #expect(bench.run(until: 30) { file.isDistrusted })
    #expect(!bench.isComplete("a.mp4"))
    #expect(access(bench.folder + "/library/a.mp4", F_OK) != 0)
    bench.expectBytes(inode, size - 70_000, 50_000, of: "a.mp4")
    #expect(bench.run(until: 120, step: 0.02) { bench.isComplete("a.mp4") })
    bench.expectBytes(inode, 0, Int(size), of: "a.mp4")
    #expect(bench.service.sent <= 2 * size - before.count + 256 << 10)
  }

  @Test("With a checksum, what the disk lost is no fault of the origin's")
  func syncBeforeDigest() throws {
    let size = 2 * Self.megabyte
    let digest = try Digester.digest(of: Pattern.bytes(name: "a.mp4", offset: 0, count: Int(size)))
    let bench = try Bench(
      FakeResource(name: "a.mp4", size: size), checksum: Checksum(algorithm: .sha256, digest: digest))
    let (inode, content, _) = try synced(bench)
    let file = try lose(content)
    bench.system.fetch([inode])
    #expect(bench.run(until: 30) { file.isDistrusted })
    #expect(bench.run(until: 120, step: 0.02) { bench.isComplete("a.mp4") })
    #expect(try bench.inode("a.mp4") == inode, "a sync that failed made another version of the file")
  }

  @Test("Syncs that fail again and again cost less and less: what is lost is not fetched again at the line's speed")
  func syncsThatAlwaysFail() throws {
    let size = 2 * Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 1000, of: "a.mp4")
    bench.system.fetch([inode])
    let content = try #require(bench.content(inode))
    for _ in 0..<12_000 {
      if let file = content.guarded.withLock({ $0.file }), !file.isDistrusted, lost.withLock({ $0 !== file }) {
        lost.withLock { $0 = file }
        _ = try lose(content)
      }
      bench.run(0.05, step: 0.05)
    }
    #expect(!bench.isComplete("a.mp4"))
    // Ten minutes; with pauses of 10, 20, 40, … seconds there are six or seven attempts.
    #expect(bench.service.sent <= 9 * size, "\(bench.service.sent) bytes")
  }
  private let lost = Lock<ServedFile?>(nil)

  @Test("A file whose syncs always fail beside one whose syncs succeed: its pauses grow, the other has none")
  func syncsThatAlwaysFailBesideGoodOnes() throws {
    let size = 2 * Self.megabyte
    let (bad, good) = (Bench.entry("a.mp4", 1), Bench.entry("b.mp4", 2))
    var slow = FakeResource(name: "b.mp4", size: 200 * Self.megabyte)
    slow.rate = 200_000
    let bench = try Bench(
      [bad, good], [bad.urls[0]: FakeResource(name: "a.mp4", size: size), good.urls[0]: slow])
    let inodes = [try bench.opened("a.mp4"), try bench.opened("b.mp4")]
    bench.expectBytes(inodes[0], 0, 1000, of: "a.mp4")
    bench.system.fetch(inodes)
    let content = try #require(bench.content(inodes[0]))
    var longestPause = 0.0
    for _ in 0..<12_000 {
      if let file = content.guarded.withLock({ $0.file }), !file.isDistrusted, lost.withLock({ $0 !== file }) {
        lost.withLock { $0 = file }
        _ = try lose(content)
      }
      bench.run(0.05, step: 0.05)
      #expect(bench.engine.keeper.room == (false, false), "one file's syncs say nothing of the others")
      longestPause = max(longestPause, bench.engine.keeper.pause(of: content.key)?.seconds(since: bench.now) ?? 0)
    }
    #expect(!bench.isComplete("a.mp4"))
    let others = stored(try #require(bench.content(inodes[1]))).count
    #expect(others > 100_000_000, "\(others) bytes in ten minutes at 200 kB/s")
    #expect(bench.service.sent - others <= 9 * size, "\(bench.service.sent - others) bytes")
    #expect(longestPause > 100)
    #expect(try #require(bench.content(inodes[1])).guarded.withLock { !$0.synced.isEmpty })
  }

  @Test("A file that its reader closed during its pause is not stored sooner for being opened again")
  func pausesOutlastHandles() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let (inode, content, _) = try synced(bench)
    _ = bench.engine.keeper.syncFailed(content.key)
    bench.system.release(inode)
    #expect(bench.run(until: 9) { bench.engine.sources.isEmpty })
    _ = try bench.opened("a.mp4")
    bench.move(0.01)
    let source = try #require(bench.engine.sources[content.key])
    #expect(bench.engine.isUnstored(source))
    bench.run(Keeper.refusedSeconds, step: 0.05)
    #expect(!bench.engine.isUnstored(source))
  }

  /// A whole file that waits for the finisher, which is at another's checksum.
  private func wait(_ bench: Bench, _ inode: Inode, _ content: Content, _ seconds: Double) {
    bench.system.fetch([inode])
    for _ in 0..<3000 where content.guarded.withLock({ $0.phase }) != .completing { bench.move(0.01, finishing: false) }
    for _ in 0..<Int(seconds / 0.05) { bench.move(0.05, finishing: false) }
  }

  @Test("A whole file that waits for the finisher is synced as any other; the one in its hands is not")
  func syncsBehindALongChecksum() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 2 * Self.megabyte))
    let (inode, content, _) = try synced(bench)
    content.guarded.withLock { $0.isFinishing = true }
    wait(bench, inode, content, Keeper.syncSeconds + 5)
    #expect(content.guarded.withLock { $0.phase == .completing && $0.unsynced > 0 })
    content.guarded.withLock { $0.isFinishing = false }
    wait(bench, inode, content, 5)
    #expect(content.guarded.withLock { $0.phase == .completing && $0.unsynced == 0 && $0.synced == $0.state.stored })
    #expect(bench.run(until: 5) { bench.isComplete("a.mp4") })
    #expect(content.guarded.withLock { !$0.isFinishing })
  }

  @Test("What the disk loses of a file that waits for the finisher is never placed")
  func lossBehindALongChecksum() throws {
    let size = 2 * Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let (inode, content, _) = try synced(bench)
    let file = try lose(content)
    wait(bench, inode, content, Keeper.syncSeconds + 5)
    #expect(file.isDistrusted && content.guarded.withLock { $0.phase == .partial })
    bench.move(0.01)
    #expect(access(bench.folder + "/library/a.mp4", F_OK) != 0)
    #expect(bench.run(until: 120, step: 0.02) { bench.isComplete("a.mp4") })
    bench.expectBytes(inode, 0, Int(size), of: "a.mp4")
    let placed = try ServedFile(copy: FileDescriptor.open(bench.folder + "/library/a.mp4", O_RDONLY))
    var bytes = [UInt8](repeating: 0, count: Int(size))
    #expect(bytes.withUnsafeMutableBytes { placed.fill($0, at: 0) })
    #expect(Pattern.check(bytes, name: "a.mp4", offset: 0) == nil)
  }

  /// From here on the catalog takes nothing, or again.
  private func refuseCommits(_ bench: Bench, _ isRefusing: Bool) throws {
    try bench.store.catalog.withWriter { (connection, _) throws(StoreError) in
      try connection.run("PRAGMA query_only = \(isRefusing ? "ON" : "OFF")")
    }
  }

  @Test("While the catalog cannot be told of a loss, the file it speaks of is gone, and nothing is stored of it")
  func lossThatCannotBeTold() throws {
    let size = 4 * Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let (inode, content, _) = try synced(bench)
    let id = try #require(content.guarded.withLock { $0.generation?.id })
    let partial = bench.folder + "/store/partial/\(id)"
    let file = try lose(content)
    try refuseCommits(bench, true)
    bench.engine.distrust(content, file, .io)
    #expect(access(partial, F_OK) != 0, "a kill would now leave what is claimed and lost")
    bench.expectBytes(inode, 0, 50_000, of: "a.mp4")
    bench.system.fetch([inode])
    bench.run(3 * Keeper.refusedSeconds, step: 0.05)
    bench.expectBytes(inode, 1_000_000, 50_000, of: "a.mp4")
    #expect(access(partial, F_OK) != 0 && stored(content).isEmpty)
    #expect(content.guarded.withLock { $0.isOverclaimed && $0.isCommitting })
    // Changes one by one, as behind one that is refused for good: what was not committed is not settled.
    let claim = CatalogChange.extents(generation: id, stored: ByteRangeSet(), synced: ByteRangeSet())
    bench.engine.keeper.commitSingly([], [.init(content: content, change: claim)], durably: false)
    #expect(content.guarded.withLock { $0.isOverclaimed && $0.isCommitting })
    try refuseCommits(bench, false)
    #expect(bench.run(until: 5) { content.guarded.withLock { !$0.isOverclaimed && !$0.isCommitting } })
    #expect(try bench.store.catalog.generation(id)?.stored == ByteRangeSet())
    #expect(bench.run(until: 60, step: 0.02) { bench.isComplete("a.mp4") })
    bench.expectBytes(inode, 0, Int(size), of: "a.mp4")
  }

  @Test("What was written to a file whose sync failed meanwhile does not count as stored")
  func writesAcrossAFailedSync() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 1000, of: "a.mp4")
    let content = try #require(bench.content(inode))
    let source = try #require(bench.engine.sources[content.key])
    let old = try lose(content)
    bench.engine.distrust(content, old, .io)
    let range = ByteRange(10 * Self.megabyte, 11 * Self.megabyte)
    let bytes = [UInt8](repeating: 0, count: Int(range.count))
    #expect(bytes.withUnsafeBytes { !bench.engine.stored($0, at: range.start, in: old, source) })
    #expect(!stored(content).contains(range))
    var byte: UInt8 = 0
    #expect(withUnsafeMutableBytes(of: &byte) { !old.fill($0, at: 0) }, "read from a file that is not to be trusted")
  }

  @Test("A read that was about to be answered when its bytes were lost waits for them again")
  func readsAcrossAFailedSync() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 1000, of: "a.mp4")
    let content = try #require(bench.content(inode))
    let range = ByteRange(10 * Self.megabyte, 10 * Self.megabyte + 4096)
    let ticket = Ticket(rawValue: 1 << 40)
    bench.engine.answer(ParkedRead(ticket: ticket, range: range, since: bench.now, process: 0), content)
    guard case .data(let bytes)? = bench.answer(ticket) else {
      Issue.record("it was answered with \(String(describing: bench.port.reply(to: ticket)))")
      return
    }
    #expect(Pattern.check(bytes, name: "a.mp4", offset: range.start) == nil)
  }

  @Test("Between a failed sync and the look at what is left nothing is read from the file", arguments: [true, false])
  func readsRightBehindAFailedSync(_ isSynced: Bool) throws {
    let size = 2 * Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let (inode, content, before) = try synced(bench)
    let file = try lose(content)
    bench.system.fetch([inode])
    for _ in 0..<3000 where content.guarded.withLock({ $0.phase }) != .completing { bench.move(0.01, finishing: false) }
    #expect(bench.engine.finisher.turn())
    #expect(content.guarded.withLock { $0.file } === file, "the keeper has had no turn")
    let offset = isSynced ? 0 : before.runEnd(from: 0) + 100_000
    let ticket = bench.read(inode, offset, 10_000)
    #expect(bench.port.reply(to: ticket) == nil)
    guard case .data(let bytes)? = bench.answer(ticket) else {
      Issue.record("it was answered with \(String(describing: bench.port.reply(to: ticket)))")
      return
    }
    #expect(bytes.count == 10_000 && Pattern.check(bytes, name: "a.mp4", offset: offset) == nil)
  }

  @Test("A block that has bytes of both, synced and not, is not believed")
  func tornBlocks() {
    let block: Int64 = 64 << 10
    var stored = ByteRangeSet(ByteRange(0, 10 * block))
    stored.insert(ByteRange(20 * block, 21 * block))
    var synced = ByteRangeSet(ByteRange(0, 3 * block + 100))
    synced.insert(ByteRange(5 * block, 7 * block))
    synced.insert(ByteRange(20 * block, 21 * block))
    var expected = ByteRangeSet(ByteRange(0, 3 * block))
    expected.insert(ByteRange(5 * block, 7 * block))
    expected.insert(ByteRange(20 * block, 21 * block))
    #expect(Engine.onDisk(stored, synced: synced) == expected)
  }
}

extension Digester {
  /// The SHA-256 of bytes in memory.
  fileprivate static func digest(of bytes: [UInt8]) throws -> [UInt8] {
    var digester = try Digester(.sha256)
    bytes.withUnsafeBytes { digester.update($0) }
    return digester.finish()
  }
}
