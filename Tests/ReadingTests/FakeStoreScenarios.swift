import Base
import TestSupport
import Testing

import Reading
import Storing

/// The reading room over a store without a catalog and a library: all that it asks of one, it asks through protocols.
@Suite struct FakeStoreScenarios {
  static let size: Int64 = 3 << 20

  private func bench() throws -> (Bench, FakeStore) {
    let store = FakeStore()
    return (try Bench(FakeResource(name: "a.mp4", size: Self.size), fake: store), store)
  }

  private func complete(_ bench: Bench) throws {
    bench.system.fetch([try bench.inode("a.mp4")])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
  }

  @Test("A file is read, completed, placed, and read from its copy, also after a restart")
  func readsCompletesAndPlaces() throws {
    let (bench, store) = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 1_000_000, 100_000, of: "a.mp4")
    #expect(try store.copies().isEmpty && store.partialIDs == [bench.generation("a.mp4").id])
    try complete(bench)
    bench.run(1)
    let copies = try store.copies()
    #expect(copies.keys.elementsEqual(["a.mp4"]) && store.intents == ["a.mp4"] && store.partialIDs.isEmpty)
    #expect(Pattern.check(try #require(copies["a.mp4"]), name: "a.mp4", offset: 0) == nil)
    let sent = bench.service.sent
    bench.expectBytes(inode, 0, Int(Self.size), of: "a.mp4")
    try bench.restart()
    bench.expectBytes(try bench.opened("a.mp4"), 0, Int(Self.size), of: "a.mp4")
    #expect(bench.service.sent == sent && copies["a.mp4"]?.count == Int(Self.size))
  }

  @Test("A copy that cannot be opened when it is placed: its file is complete, and read on")
  func copyThatCannotBeOpened() throws {
    let (bench, store) = try bench()
    let inode = try bench.opened("a.mp4")
    store.refuseCopies(true)
    try complete(bench)
    bench.run(1)
    #expect(try bench.state("a.mp4") == .complete && store.partialIDs.isEmpty)
    bench.expectBytes(inode, 0, Int(Self.size), of: "a.mp4")
    store.refuseCopies(false)
    bench.system.release(inode)
    #expect(bench.run(until: 9) { bench.isEmpty })
    let sent = bench.service.sent
    bench.expectBytes(try bench.opened("a.mp4"), 0, Int(Self.size), of: "a.mp4")
    #expect(bench.service.sent == sent)
  }

  @Test("A part that is stored outlasts a kill")
  func keepsParts() throws {
    let (bench, _) = try bench()
    bench.expectBytes(try bench.opened("a.mp4"), 0, 100_000, of: "a.mp4")
    bench.run(2)
    try bench.restart(killed: true)
    let sent = bench.service.sent
    let ticket = bench.read(try bench.opened("a.mp4"), 0, 100_000)
    #expect(bench.port.reply(to: ticket) != nil && bench.service.sent == sent)
  }

  @Test("While commits fail files are read and nothing is claimed; then all that is stored is")
  func commitsThatFail() throws {
    let (bench, store) = try bench()
    let inode = try bench.opened("a.mp4")
    bench.run(2)
    let before = try bench.generation("a.mp4").stored
    store.refuseChanges(true)
    bench.expectBytes(inode, 1_000_000, 100_000, of: "a.mp4")
    bench.run(3)
    let read = ByteRange(at: 1_000_000, count: 100_000)
    #expect(try bench.generation("a.mp4").stored == before && !before.contains(read))
    #expect(try bench.stored(inode).contains(read))
    store.refuseChanges(false)
    bench.run(3)
    #expect(try bench.generation("a.mp4").stored == bench.stored(inode))
    try complete(bench)
  }

  @Test("A partial file that cannot be opened: its file is played without being stored, until it can")
  func partialFileThatCannotBeOpened() throws {
    let (bench, store) = try bench()
    store.refusePartials(true)
    let inode = try bench.opened("a.mp4")
    for offset in stride(from: Int64(0), to: Self.size - 65536, by: 262_144) {
      bench.expectBytes(inode, offset, 65536, of: "a.mp4")
    }
    bench.run(2)
    #expect(try store.partialIDs.isEmpty && bench.stored(inode).isEmpty && bench.hasRoom)
    store.refusePartials(false)
    _ = try bench.opened("a.mp4")
    try complete(bench)
    bench.expectBytes(inode, 0, Int(Self.size), of: "a.mp4")
  }

  @Test("A copy that a user modified is neither served nor replaced: the file is fetched again, beside it")
  func modifiedCopy() throws {
    let (bench, store) = try bench()
    try complete(bench)
    let sent = bench.service.sent
    try store.modifyCopy("a.mp4", [UInt8](repeating: 0, count: 100))
    #expect(try bench.state("a.mp4") == .modified)
    // Its bytes may be in the kernel's cache, under the inode that it has.
    #expect(try bench.answer(bench.open(bench.inode("a.mp4"))) == .error(.stale))
    bench.expectBytes(try bench.opened("a.mp4"), 0, 100_000, of: "a.mp4")
    #expect(bench.service.sent > sent)
    try complete(bench)
    let copies = try store.copies()
    #expect(copies.keys.sorted() == ["a.mp4", "a.mp4 (2)"])
    #expect(copies["a.mp4"]?.prefix(100).allSatisfy { $0 == 0 } == true)
    #expect(Pattern.check(try #require(copies["a.mp4 (2)"]), name: "a.mp4", offset: 0) == nil)
  }

  @Test("A changed file has another inode and its new bytes; the old generation goes with its last handle")
  func changedFile() throws {
    let (bench, store) = try bench()
    let old = try bench.opened("a.mp4")
    bench.expectBytes(old, 0, 100_000, of: "a.mp4")
    let id = try bench.generation("a.mp4").id
    bench.service.resources["http://origin/a.mp4"]?.change(size: Self.size - 1)
    #expect(bench.answer(bench.read(old, 2_000_000, 4096)) == .error(.stale))
    let new = try bench.opened("a.mp4")
    #expect(new != old)
    bench.expectBytes(old, 0, 100_000, of: "a.mp4", version: 1)
    bench.expectBytes(new, 0, 100_000, of: "a.mp4", version: 2)
    #expect(store.superseded(inode: old)?.1.id == id)
    bench.system.release(old)
    bench.run(1)
    #expect(try store.superseded(inode: old) == nil && store.partialIDs == [bench.generation("a.mp4").id])
  }
}
