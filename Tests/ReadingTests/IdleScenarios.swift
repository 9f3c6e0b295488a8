import Base
import Glibc
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// What becomes of files that nobody uses any more, and of copies that a user touched meanwhile.
@Suite struct IdleScenarios {
  private static let size: Int64 = 1 << 20

  private func completed(_ bench: Bench) throws -> Inode {
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, Int(Self.size), of: "a.mp4")
    #expect(bench.run(until: 30) { bench.isComplete("a.mp4") })
    return inode
  }

  @Test("A complete file is put away when it is closed, with its descriptor, however often it is opened")
  func completeFilesArePutAway() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: Self.size))
    bench.system.release(try completed(bench))
    for _ in 0..<3 {
      #expect(bench.run(until: 90) { bench.isEmpty })
      let again = try bench.opened("a.mp4")
      bench.expectBytes(again, 1000, 1000, of: "a.mp4")
      bench.system.release(again)
    }
  }

  @Test("A copy that a user changed while it was open: the next open gets another inode, and the origin's bytes")
  func touchedCopies() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: Self.size))
    let old = try completed(bench)
    let path = bench.folder + "/library/a.mp4"
    let file = try FileDescriptor.open(path, O_WRONLY)
    let bytes = [UInt8](repeating: 0x55, count: 4096)
    #expect(pwrite(file.rawValue, bytes, bytes.count, 0) == bytes.count)
    #expect(bench.answer(bench.open(old)) == .error(.stale), "its page cache may have what the user wrote")
    let new = try bench.opened("a.mp4")
    #expect(new != old)
    bench.expectBytes(new, 0, Int(Self.size), of: "a.mp4")
    var status = stat()
    #expect(stat(path, &status) == 0, "what the user made of it stays")
  }

  @Test("A copy that a user removed is remote again under the same inode: nothing wrong can be remembered of it")
  func removedCopies() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: Self.size))
    let inode = try completed(bench)
    #expect(unlink(bench.folder + "/library/a.mp4") == 0)
    #expect(try bench.opened("a.mp4") == inode)
    bench.expectBytes(inode, 0, Int(Self.size), of: "a.mp4")
  }

  @Test("After a user removed the copy of a played file, a look at the file does not fetch all of it again")
  func removedCopiesAreNotWanted() throws {
    let size: Int64 = 16 << 20
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let inode = try bench.opened("a.mp4")
    for offset in stride(from: Int64(0), to: size, by: 1 << 20) {
      bench.expectBytes(inode, offset, 1 << 20, of: "a.mp4")
    }
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    #expect(unlink(bench.folder + "/library/a.mp4") == 0)
    let sent = bench.service.sent
    let again = try bench.opened("a.mp4")
    bench.expectBytes(again, 0, 4096, of: "a.mp4")
    bench.run(60)
    #expect(bench.service.sent - sent < size / 2, "\(bench.service.sent - sent)")
  }

  /// Two entries of one resource, complete, and open under their inodes.
  private func shared() throws -> (bench: Bench, a: Inode, b: Inode) {
    var second = Bench.entry("b.mp4", 1)
    second.urls = Bench.entry("a.mp4", 1).urls
    let bench = try Bench(
      [Bench.entry("a.mp4", 1), second], [second.urls[0]: FakeResource(name: "a.mp4", size: Self.size)])
    let a = try completed(bench)
    return (bench, a, try bench.opened("b.mp4"))
  }

  @Test(
    "A file whose copy a user changed or deleted is completed again by a fetch, once", arguments: ["edit", "delete"])
  func fetchesAgain(what: String) throws {
    let size: Int64 = 3 << 20
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    bench.system.fetch([try bench.inode("a.mp4")])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    #expect(bench.run(until: 90) { bench.isEmpty })
    let copy = try #require(try bench.catalog.generations.current(of: bench.node("a.mp4").key)?.copy)
    let path = "\(bench.library.path)/\(copy.path)"
    try #require((what == "edit" ? truncate(path, 5) : unlink(path)) == 0)
    let before = bench.service.sent
    bench.system.fetch([try bench.inode("a.mp4")])
    #expect(bench.run(until: 60) { bench.service.sent - before >= size && bench.isComplete("a.mp4") })
    bench.expectBytes(try bench.opened("a.mp4"), 0, 4096, of: "a.mp4")
    #expect(bench.service.sent - before == size, "the next open fetched it once more")
  }

  @Test("What is told of a file after it was put away leaves nothing in memory")
  func lateWord() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 1 << 20))
    let inode = try bench.opened("a.mp4")
    let held = try bench.hold(inode)
    bench.system.release(inode)
    #expect(bench.run(until: 90) { bench.isEmpty })
    bench.touch(held)
    #expect(bench.run(until: 30) { bench.isEmpty })
    bench.touch(held)
    bench.run(1)
    #expect(bench.run(until: 30) { bench.isEmpty }, "a download of a file that was put away stays")
  }

  /// An open of `inode` that the mount cannot answer, as open handles read from a copy: answered by a renewal.
  private func conflictingOpen(_ bench: Bench, _ inode: Inode) throws {
    let ticket = bench.open(inode)
    #expect(bench.port.take(ticket) == .opened(directIO: false))
    #expect(bench.system.renew(inode, ticket: ticket))
    #expect(bench.answer(ticket) == .error(.stale))
  }

  @Test("A new inode for one of two names costs the reader of the other nothing: not what it waits for, not its handle")
  func renewedBesideAReader() throws {
    let (bench, a, b) = try shared()
    var isCleared = false
    try bench.clear(a)
    isCleared = bench.run(until: 10) { !bench.isComplete("a.mp4") }
    #expect(isCleared)
    bench.service.resources[Bench.entry("a.mp4", 1).urls[0]]?.rate = 50_000
    let parked = bench.read(b, 500_000, 4096)
    #expect(bench.port.reply(to: parked) == nil)
    try conflictingOpen(bench, a)
    try conflictingOpen(bench, a)  // one that was under way at the same time
    #expect(bench.port.invalidated == ["a.mp4"])
    guard case .data(let bytes)? = bench.answer(parked) else {
      Issue.record("the reader of the other name: \(String(describing: bench.port.reply(to: parked)))")
      return
    }
    #expect(Pattern.check(bytes, name: "a.mp4", generation: 1, offset: 500_000) == nil)
    let new = try bench.opened("a.mp4")
    #expect(new != a)
    #expect(try bench.inode("b.mp4") == b)
    for inode in [new, b] { bench.expectBytes(inode, 0, Int(Self.size), of: "a.mp4") }
    #expect(bench.isOneFile(new, b))
    // The handle on the old inode is closed; all is put away in the end.
    for inode in [a, b, new] { bench.system.release(inode) }
    #expect(bench.run(until: 120) { bench.isEmpty })
    guard case .attributes(let attributes) = bench.answer(bench.stat(a)) else {
      Issue.record("a handle's fstat on the old inode")
      return
    }
    #expect(attributes.size == Self.size)
  }

  @Test(
    "A copy that a user changed: every name gets a new inode; who reads under an old one has stored bytes or ESTALE")
  func touchedBesideAReader() throws {
    let (bench, a, b) = try shared()
    let file = try FileDescriptor.open(bench.folder + "/library/a.mp4", O_WRONLY)
    let bytes = [UInt8](repeating: 0x55, count: 4096)
    #expect(pwrite(file.rawValue, bytes, bytes.count, 0) == bytes.count)
    let open = bench.open(a)  // seen now
    let parked = bench.read(b, 500_000, 4096)
    #expect(bench.answer(open) == .error(.stale))
    #expect(bench.answer(parked) == .error(.stale))
    for (name, old) in [("a.mp4", a), ("b.mp4", b)] {
      #expect(bench.answer(bench.open(old)) == .error(.stale))
      let new = try bench.opened(name)
      #expect(new != old)
      bench.expectBytes(new, 0, Int(Self.size), of: "a.mp4")
    }
  }

  @Test("A wrong checksum costs one more fetch in a mount, not one after each time that the file was put away")
  func wrongChecksumsAreRemembered() throws {
    let bench = try Bench(
      FakeResource(name: "a.mp4", size: Self.size),
      checksum: .init(algorithm: .md5, digest: [UInt8](repeating: 0, count: 16)))
    func scan() {
      guard case .opened? = bench.answer(bench.open((try? bench.inode("a.mp4")) ?? 0)) else { return }
      let inode = (try? bench.inode("a.mp4")) ?? 0
      _ = bench.answer(bench.read(inode, 0, Int(Self.size)))
      bench.run(30)
      bench.system.release(inode)
      bench.run(60)
    }
    scan()
    let sent = bench.service.sent
    #expect(sent <= 2 * Self.size)
    for _ in 0..<3 { scan() }
    #expect(bench.service.sent == sent)
  }

  @Test("Partial bytes without validators last one mount, and in it they last: also when they were put away between")
  func withoutValidators() throws {
    let resource = FakeResource(name: "a.mp4", size: 20 * Self.size, etag: nil, lastModified: nil)
    let bench = try Bench(resource)
    let first = try bench.opened("a.mp4")
    bench.expectBytes(first, 0, 4096, of: "a.mp4")
    bench.system.release(first)
    bench.run(60)
    try bench.restart()
    for _ in 0..<3 {
      let inode = try bench.opened("a.mp4")
      bench.expectBytes(inode, 0, 4096, of: "a.mp4")
      bench.system.release(inode)
      bench.run(90)
      #expect(bench.isEmpty)
    }
    // Once in the first mount, once in the second.
    #expect(bench.service.sent <= 2 * RoomLimits.firstTouch)
  }

  @Test("Partial bytes without validators are not mixed with those of a later mount")
  func withoutValidatorsAndChanged() throws {
    let resource = FakeResource(name: "a.mp4", size: 20 * Self.size, etag: nil, lastModified: nil)
    let bench = try Bench(resource)
    bench.expectBytes(try bench.opened("a.mp4"), 0, 4096, of: "a.mp4")
    bench.run(3)
    try bench.restart()
    bench.service.resources[bench.entries[0].urls[0]]?.change()
    let inode = try bench.opened("a.mp4")
    for offset: Int64 in [0, 2000, 10 * Self.size] {
      bench.expectBytes(inode, offset, 4096, of: "a.mp4", version: 2)
    }
  }

  /// What the catalog claims of the one file.
  private func claimed(_ bench: Bench) throws -> ByteRangeSet {
    try bench.catalog.generations.current(of: bench.entries[0].key)?.stored ?? ByteRangeSet()
  }

  @Test("While commits fail, what is stored stays in memory, and is committed once they succeed")
  func failingCommits() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.size))
    let inode = try bench.opened("a.mp4")
    bench.run(2)
    let other = try SQLiteConnection(path: bench.catalog.connections.path, mode: .readWrite)
    try other.run("ALTER TABLE generation RENAME TO hidden")
    bench.expectBytes(inode, 5 * Self.size, 100_000, of: "a.mp4")
    bench.system.release(inode)
    bench.run(90, step: 0.1)
    #expect(bench.isInMemory(inode), "put away, though the catalog does not know what is stored")
    try other.run("ALTER TABLE hidden RENAME TO generation")
    bench.run(3)
    #expect(try claimed(bench).contains(ByteRange(at: 5 * Self.size, count: 100_000)))
    try bench.restart(killed: true)
    let sent = bench.service.sent
    bench.expectBytes(try bench.opened("a.mp4"), 5 * Self.size, 100_000, of: "a.mp4")
    #expect(bench.service.sent == sent)
  }

  @Test("A file that is opened again before it was synced: the catalog never claims less than before")
  func reopenedBeforeASync() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.size))
    for turn in 0..<4 as Range<Int64> {
      let inode = try bench.opened("a.mp4")
      bench.expectBytes(inode, (2 + 4 * turn) * Self.size, 100_000, of: "a.mp4")
      bench.system.release(inode)
      bench.run(3)
      let before = try claimed(bench)
      #expect(before.contains(ByteRange(at: (2 + 4 * turn) * Self.size, count: 100_000)))
      for _ in 0..<12 {
        bench.run(1, step: 0.05)
        let now = try claimed(bench)
        #expect(now.intersection(before) == before, "turn \(turn): \(now) of \(before)")
      }
    }
  }

  @Test("Bytes that are gone from a partial file are gone from the catalog before anything is written behind them")
  func cutPartialFiles() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.size))
    bench.expectBytes(try bench.opened("a.mp4"), 0, 100_000, of: "a.mp4")
    bench.run(3)
    let id = try #require(try bench.catalog.generations.current(of: bench.entries[0].key)).id
    bench.stop(killed: true)
    try #require(truncate(bench.folder + "/store/partial/\(id)", 50_000) == 0)
    try bench.start()
    try #require(try claimed(bench).contains(ByteRange(0, 100_000)))
    let inode = try bench.opened("a.mp4")
    #expect(try claimed(bench) == ByteRangeSet(ByteRange(0, 50_000)))
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
  }

  @Test("Files that nobody uses any more are not looked at until something happens to them")
  func dormant() throws {
    var options = ReadingOptions.testing
    options.continuation = .never
    let names = ["played.mp4", "left.mp4"]
    let resources = names.map { ("http://origin/\($0)", FakeResource(name: $0, size: 50 << 20)) }
    let entries = names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }
    let bench = try Bench(entries, Dictionary(uniqueKeysWithValues: resources), options: options)
    let isDormant = { bench.threads?.isDormant(entries[1].key) }
    _ = try bench.opened(names[0])
    let left = try bench.opened(names[1])
    bench.expectBytes(left, 0, 4096, of: names[1])
    bench.run(3)
    #expect(isDormant() == false, "it is open")
    bench.system.release(left)
    #expect(bench.run(until: 5, step: 0.05) { isDormant() == true })
    bench.read(try bench.opened(names[1]), 20 << 20, 4096)
    bench.run(0.05)
    #expect(isDormant() == false)
    bench.run(1)
    bench.system.release(left)
    #expect(bench.run(until: 5, step: 0.05) { isDormant() == true })
    bench.system.fetch([left])
    bench.run(0.1)
    #expect(isDormant() == false)
  }
}
