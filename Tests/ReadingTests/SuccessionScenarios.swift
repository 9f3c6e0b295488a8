import Base
import Fetching
import TestSupport
import Testing

import Reading
@testable import Storing

/// What a server that follows a killed one makes of what readers have open, and of what earlier mounts left.
@Suite struct SuccessionScenarios {
  private static let megabyte: Int64 = 1 << 20
  private static let url = "http://origin/a.mp4"

  /// A killed server whose readers had `count` handles of `a.mp4`, and the next one, which cannot load the file: it has
  /// too many open files at that moment. `changes`: there is a new version, of which nobody has a handle.
  private func succeed(_ count: Int, changes: Bool = false) throws -> (Bench, Inode, FakeStore) {
    let store = FakeStore()
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 * Self.megabyte), fake: store)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.run(3)
    if changes { change(bench, inode) }
    bench.stop(killed: true)
    store.refusePartials(true, .tooManyFiles)
    try bench.start()
    bench.system.goOn(with: [inode: count])
    #expect(!bench.isInMemory(inode))
    store.refusePartials(false)
    return (bench, inode, store)
  }

  /// There is a new version, and the room learns of it.
  private func change(_ bench: Bench, _ inode: Inode) {
    bench.service.resources[Self.url]?.change()
    #expect(bench.answer(bench.read(inode, 30 * Self.megabyte, 4096)) == .error(.stale))
    bench.run(3)
  }

  @Test("Handles of a file that could not be loaded at the takeover count once it is: its old version stays for them")
  func openButNotLoaded() throws {
    let (bench, inode, store) = try succeed(2)
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    #expect(bench.opens(inode) == 2)
    bench.system.release(inode)
    change(bench, inode)
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.system.release(inode)
    bench.run(1)
    #expect(!bench.isInMemory(inode) && store.partialIDs.count == 1)
  }

  @Test("The same for a version that another one has replaced")
  func supersededButNotLoaded() throws {
    let (bench, inode, store) = try succeed(1, changes: true)
    #expect(store.partialIDs.count == 2)
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    #expect(bench.answer(bench.read(inode, 30 * Self.megabyte, 4096)) == .error(.stale))
    #expect(bench.port.reply(to: bench.open(inode)) == .error(.stale))
    #expect(bench.opens(inode) == 1)
    bench.system.release(inode)
    bench.run(1)
    #expect(!bench.isInMemory(inode) && store.partialIDs.count == 1)
  }

  @Test("A handle that is closed before its file could be loaded does not count any more")
  func closedButNotLoaded() throws {
    let (bench, inode, _) = try succeed(2)
    bench.system.release(inode)
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    #expect(bench.opens(inode) == 1)
    bench.system.release(inode)
    #expect(bench.opens(inode) == 0)
  }

  /// Nobody can tell whether the origin still has the bytes that an earlier mount stored.
  @Test("Two threads that load a file without validators agree on its generation")
  func loadedByTwo() throws {
    for _ in 0..<100 {
      let store = FakeStore()
      let entry = Bench.entry("a.mp4", 1)
      try store.list([entry])
      let earlier = GenerationRecord(id: 5, key: entry.key, validators: Validators(), size: 1000, mediaType: nil)
      let bytes = ByteRangeSet(ByteRange(0, 100))
      try store.apply([.learned(earlier), .extents(generation: 5, stored: bytes, synced: bytes)], durably: true)
      let system = try MediaFileSystem(store: store.access, options: .testing, wake: {})
      let (waiting, failures) = (Lock(2), Lock<[Errno]>([]))
      let threads = (0..<2).map { number in
        OwnedThread(name: "opener \(number)") {
          waiting.withLock { $0 -= 1 }
          while waiting.withLock({ $0 > 0 }) {}
          let answer = system.open(2, ticket: Ticket(rawValue: UInt(number)), caller: Caller(process: 0))
          if case .failed(let error) = answer { failures.withLock { $0.append(error) } }
        }
      }
      for thread in threads { thread.join() }
      #expect(failures.withLock { $0 } == [])
      // What is written belongs to the generation that the catalog has.
      #expect(try [#require(store.current(of: entry.key)).id] == store.partialIDs)
    }
  }
}
