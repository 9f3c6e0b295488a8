import Base
import Glibc
import Manifest
import Storing
import TestSupport
import Testing

@testable import Reading

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
      #expect(bench.run(until: 90) { bench.engine.table.withLock { $0.contents.isEmpty && $0.current.isEmpty } })
      #expect(bench.engine.sources.isEmpty)
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
      #expect(bench.engine.sources.isEmpty)
    }
    // Once in the first mount, once in the second.
    #expect(bench.service.sent <= 2 * (Planner.headLength + Planner.lookAhead + Planner.tailLength))
  }
}
