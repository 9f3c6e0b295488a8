import Base
import Fetching
import Glibc
import Manifest
import TestSupport
import Testing

import Reading
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
  private func loseDisk(_ bench: Bench, _ inode: Inode) throws -> StoredFile {
    let file = try #require(bench.storedFile(inode))
    try replace(file.descriptor, by: "/dev/zero", O_RDWR)
    return file
  }

  /// A file whose first 100 kB, and what came with them, are synced.
  private func synced(_ bench: Bench) throws -> (inode: Inode, stored: ByteRangeSet) {
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.run(RoomLimits.syncSeconds + 3, step: 0.05)
    let stored = try bench.stored(inode)
    try #require(bench.isSynced(inode) && stored.count >= 100_000)
    return (inode, stored)
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
    let (inode, before) = try synced(bench)
    bench.system.fetch([inode])
    bench.run(1)
    let file = try loseDisk(bench, inode)
    #expect(bench.run(until: 60, step: 0.05) { file.isInvalid })
    let after = try bench.stored(inode)
    bench.move(0.01)
    // Zeros that were read between the loss and the sync.
    let forgotten = try #require(bench.port.forgotten[inode])
    #expect(forgotten.start <= after.runEnd(from: 0) + 1 && forgotten.end > 3_000_000, "\(forgotten)")
    #expect(after.count <= before.count && before.intersection(after) == after, "\(after) of \(before)")
    #expect(after.count >= before.count - 128 << 10)
    #expect(try bench.generation("a.mp4").stored == after)
    for offset: Int64 in [0, 100_000, 1_000_000, 3_000_000] {
      bench.expectBytes(inode, offset, 50_000, of: "a.mp4")
    }
    #expect(try #require(bench.storedFile(inode)) != file)
    // Storing goes on, and the next sync is believed.
    bench.run(RoomLimits.refusedSeconds + RoomLimits.syncSeconds + 10, step: 0.05)
    #expect(try bench.synced(inode).count > before.count)
  }

  @Test("A sync fails while the file waits for the finisher, which is busy: it is not placed with what was lost")
  func syncBeforeFinisher() throws {
    let size = 3 * Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let (inode, _) = try synced(bench)
    bench.system.fetch([inode])
    for _ in 0..<2000 where !bench.isCompleting(inode) { bench.move(0.01, finishing: false) }
    #expect(bench.isCompleting(inode))
    // A sync that the keeper began before the last byte came ends now.
    try bench.failSync(inode)
    let left = try bench.stored(inode)
    #expect(left.count < size)
    _ = bench.threads?.turnFinisher()
    #expect(try bench.stored(inode) == left)
    #expect(!bench.isComplete("a.mp4"))
    #expect(bench.run(until: 120, step: 0.02) { bench.isComplete("a.mp4") })
    bench.expectBytes(inode, 0, Int(size), of: "a.mp4")
  }

  @Test("A sync fails when the file is whole: it is not placed, what was lost is fetched again, then it is complete")
  func syncOfFinisher() throws {
    let size = 3 * Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let (inode, before) = try synced(bench)
    let file = try loseDisk(bench, inode)
    bench.system.fetch([inode])
    #expect(bench.run(until: 30) { file.isInvalid })
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
    let (inode, _) = try synced(bench)
    let file = try loseDisk(bench, inode)
    bench.system.fetch([inode])
    #expect(bench.run(until: 30) { file.isInvalid })
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
    var lost: StoredFile?
    for _ in 0..<12_000 {
      if let file = bench.storedFile(inode), !file.isInvalid, lost != file {
        lost = try loseDisk(bench, inode)
      }
      bench.run(0.05, step: 0.05)
    }
    #expect(!bench.isComplete("a.mp4"))
    // Ten minutes; with pauses of 10, 20, 40, … seconds there are six or seven attempts.
    #expect(bench.service.sent <= 9 * size, "\(bench.service.sent) bytes")
  }

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
    var longestPause = 0.0
    var lost: StoredFile?
    for _ in 0..<12_000 {
      if let file = bench.storedFile(inodes[0]), !file.isInvalid, lost != file {
        lost = try loseDisk(bench, inodes[0])
      }
      bench.run(0.05, step: 0.05)
      #expect(bench.hasRoom, "one file's syncs say nothing of the others")
      longestPause = max(longestPause, bench.pause(of: inodes[0]))
    }
    #expect(!bench.isComplete("a.mp4"))
    let others = try bench.stored(inodes[1]).count
    #expect(others > 100_000_000, "\(others) bytes in ten minutes at 200 kB/s")
    #expect(bench.service.sent - others <= 9 * size, "\(bench.service.sent - others) bytes")
    #expect(longestPause > 100)
    #expect(try !bench.synced(inodes[1]).isEmpty)
  }

  @Test("A file that its reader closed during its pause is not stored sooner for being opened again")
  func pausesOutlastHandles() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let (inode, _) = try synced(bench)
    try bench.pauseStoring(of: inode)
    bench.system.release(inode)
    #expect(bench.run(until: 9) { bench.isEmpty })
    _ = try bench.opened("a.mp4")
    bench.move(0.01)
    #expect(bench.isStoring(inode) == false)
    bench.run(RoomLimits.refusedSeconds, step: 0.05)
    #expect(bench.isStoring(inode) == true)
  }

  /// A whole file that waits for the finisher, which is at another's checksum.
  private func wait(_ bench: Bench, _ inode: Inode, _ seconds: Double) {
    bench.system.fetch([inode])
    for _ in 0..<3000 where !bench.isCompleting(inode) { bench.move(0.01, finishing: false) }
    for _ in 0..<Int(seconds / 0.05) { bench.move(0.05, finishing: false) }
  }

  @Test("A whole file that waits for the finisher is synced as any other; the one in its hands is not")
  func syncsBehindALongChecksum() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 2 * Self.megabyte))
    let (inode, _) = try synced(bench)
    wait(bench, inode, 0)
    try bench.giveToFinisher(inode, true)
    wait(bench, inode, RoomLimits.syncSeconds + 5)
    #expect(bench.isCompleting(inode) && !bench.isSynced(inode))
    try bench.giveToFinisher(inode, false)
    wait(bench, inode, 5)
    #expect(bench.isCompleting(inode) && bench.isSynced(inode))
    #expect(bench.run(until: 5) { bench.isComplete("a.mp4") })
    #expect(bench.isInMemory(inode) && !bench.isInFinishersHands(inode))
  }

  @Test("What the disk loses of a file that waits for the finisher is never placed")
  func lossBehindALongChecksum() throws {
    let size = 2 * Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let (inode, _) = try synced(bench)
    let file = try loseDisk(bench, inode)
    wait(bench, inode, RoomLimits.syncSeconds + 5)
    #expect(file.isInvalid && bench.isPartial(inode))
    bench.move(0.01)
    #expect(access(bench.folder + "/library/a.mp4", F_OK) != 0)
    #expect(bench.run(until: 120, step: 0.02) { bench.isComplete("a.mp4") })
    bench.expectBytes(inode, 0, Int(size), of: "a.mp4")
    let placed = try FileDescriptor.open(bench.folder + "/library/a.mp4", O_RDONLY)
    var bytes = [UInt8](repeating: 0, count: Int(size))
    #expect(try bytes.withUnsafeMutableBytes { try placed.read(at: 0, into: $0) } == bytes.count)
    #expect(Pattern.check(bytes, name: "a.mp4", offset: 0) == nil)
  }

  /// From here on the catalog takes nothing, or again.
  private func refuseCommits(_ bench: Bench, _ isRefusing: Bool) throws {
    try bench.catalog.connections.withWriter { (connection, _) throws(StoreError) in
      try connection.run("PRAGMA query_only = \(isRefusing ? "ON" : "OFF")")
    }
  }

  @Test("While the catalog cannot be told of a loss, the file it speaks of is gone, and nothing is stored of it")
  func lossThatCannotBeTold() throws {
    let size = 4 * Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let (inode, _) = try synced(bench)
    let id = try bench.generation("a.mp4").id
    let partial = bench.folder + "/store/partial/\(id)"
    _ = try loseDisk(bench, inode)
    try refuseCommits(bench, true)
    try bench.failSync(inode)
    #expect(access(partial, F_OK) != 0, "a kill would now leave what is claimed and lost")
    bench.expectBytes(inode, 0, 50_000, of: "a.mp4")
    bench.system.fetch([inode])
    bench.run(3 * RoomLimits.refusedSeconds, step: 0.05)
    bench.expectBytes(inode, 1_000_000, 50_000, of: "a.mp4")
    #expect(try access(partial, F_OK) != 0 && bench.stored(inode).isEmpty)
    #expect(bench.isOverclaimed(inode))
    // Changes one by one, as behind one that is refused for good: what was not committed is not settled.
    let claim = CatalogChange.lost(generation: id, stored: ByteRangeSet(), synced: ByteRangeSet())
    try bench.commitAlone(inode, claim)
    #expect(bench.isOverclaimed(inode))
    try refuseCommits(bench, false)
    #expect(bench.run(until: 5) { bench.isTold(inode) })
    #expect(try bench.catalog.generations.find(id)?.stored == ByteRangeSet())
    #expect(bench.run(until: 60, step: 0.02) { bench.isComplete("a.mp4") })
    bench.expectBytes(inode, 0, Int(size), of: "a.mp4")
  }

  @Test("A sync fails of a file whose name in the store is gone: none of its bytes count as stored")
  func syncOfAFileWithoutItsName() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 4 * Self.megabyte))
    let (inode, _) = try synced(bench)
    let id = try bench.generation("a.mp4").id
    try #require(unlink("\(bench.folder)/store/partial/\(id)") == 0)
    try bench.failSync(inode)
    #expect(try bench.stored(inode).isEmpty && bench.generation("a.mp4").stored.isEmpty)
    bench.run(RoomLimits.refusedSeconds + 1, step: 0.05)
    // What is written behind them makes them no zeros.
    for offset in [3 * Self.megabyte, 0] { bench.expectBytes(inode, offset, 50_000, of: "a.mp4") }
  }

  @Test("What was written to a file whose sync failed meanwhile does not count as stored")
  func writesAcrossAFailedSync() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 1000, of: "a.mp4")
    let old = try loseDisk(bench, inode)
    try bench.failSync(inode)
    let range = ByteRange(10 * Self.megabyte, 11 * Self.megabyte)
    let bytes = [UInt8](repeating: 0, count: Int(range.count))
    #expect(try !bench.write(bytes, at: range.start, to: old, of: inode))
    #expect(try !bench.stored(inode).contains(range))
    #expect(!old.isReadable(at: 0), "read from a file that is not to be trusted")
  }

  @Test("A read that was about to be answered when its bytes were lost waits for them again")
  func readsAcrossAFailedSync() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 1000, of: "a.mp4")
    let range = ByteRange(10 * Self.megabyte, 10 * Self.megabyte + 4096)
    let ticket = Ticket(rawValue: 1 << 40)
    try bench.answerParked(ticket, range, of: inode)
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
    let (inode, before) = try synced(bench)
    let file = try loseDisk(bench, inode)
    bench.system.fetch([inode])
    for _ in 0..<3000 where !bench.isCompleting(inode) { bench.move(0.01, finishing: false) }
    #expect(bench.threads?.turnFinisher() == true)
    #expect(bench.storedFile(inode) == file, "the keeper has had no turn")
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
    #expect(RoomLimits.believed(stored, synced: synced) == expected)
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
