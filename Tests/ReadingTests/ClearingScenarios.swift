import Base
import Fetching
import Glibc
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// Bytes that are taken away while something else has them in its hands, and the end of a mount meanwhile.
@Suite struct ClearingScenarios {
  private static let size: Int64 = 2 << 20

  private func bench() throws -> Bench {
    var digester = try Digester(.sha256)
    Pattern.bytes(name: "a.mp4", offset: 0, count: Int(Self.size)).withUnsafeBytes { digester.update($0) }
    return try Bench(
      FakeResource(name: "a.mp4", size: Self.size), checksum: Checksum(algorithm: .sha256, digest: digester.finish()))
  }

  /// Opens and reads all of it, so that it waits for the finisher, which is held back.
  private func completing(_ bench: Bench) throws -> Inode {
    let inode = try bench.opened("a.mp4")
    bench.system.fetch([inode])
    for _ in 0..<3000 where !bench.isCompleting(inode) { bench.move(0.01, finishing: false) }
    try #require(bench.isCompleting(inode))
    return inode
  }

  @Test("Clearings that overlap are all carried out, one after the other")
  func overlappingClearings() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    let done = Lock(0)
    for _ in 0..<3 { try bench.clear(inode) { done.withLock { $0 += 1 } } }
    _ = bench.run(until: 5) { done.withLock { $0 } == 3 }
    #expect(done.withLock { $0 } == 3)
    bench.run(0.1)
    #expect(bench.isInMemory(inode) && !bench.isBeingCleared(inode))
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
  }

  @Test("A clearing waits for the finisher, and then takes the copy away", arguments: [1, 2])
  func clearingDuringADigest(_ count: Int) throws {
    let bench = try bench()
    let inode = try completing(bench)
    let done = Lock(0)
    for _ in 0..<count { try bench.clear(inode) { done.withLock { $0 += 1 } } }
    for _ in 0..<100 { bench.move(0.01, finishing: false) }
    #expect(done.withLock { $0 } == 0)
    _ = bench.run(until: 5) { done.withLock { $0 } == count }
    #expect(done.withLock { $0 } == count)
    #expect(!bench.isComplete("a.mp4") && access(bench.folder + "/library/a.mp4", F_OK) != 0)
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
  }

  @Test("A clearing waits for the finisher also when that refuses the bytes")
  func clearingDuringAVainDigest() throws {
    let bench = try Bench(
      FakeResource(name: "a.mp4", size: Self.size),
      checksum: Checksum(algorithm: .md5, digest: [UInt8](repeating: 0, count: 16)))
    let inode = try completing(bench)
    let done = Lock(0)
    try bench.clear(inode) { done.withLock { $0 += 1 } }
    _ = bench.run(until: 5) { done.withLock { $0 } == 1 }
    #expect(done.withLock { $0 } == 1)
  }

  @Test("Who waits for a clearing behind a digest is let go when the server ends")
  func endDuringAClearing() throws {
    let bench = try bench()
    let inode = try completing(bench)
    let node = try bench.node("a.mp4")
    let system = try #require(bench.system)
    let result = Lock<Errno?>(nil)
    let isDone = Lock(false)
    let thread = OwnedThread(name: "clearing") {
      do throws(Errno) { _ = try system.clear(node) } catch { result.withLock { $0 = error } }
      isDone.withLock { $0 = true }
    }
    // Turns without the finisher: the digest goes on and on.
    var isPostponed = false
    for _ in 0..<2000 where !isPostponed {
      bench.move(0.01, finishing: false)
      isPostponed = bench.isClearingPostponed(inode)
      sleep(seconds: 0.001)
    }
    #expect(isPostponed)
    #expect(!isDone.withLock { $0 })
    system.beginEnding()
    #expect(eventually(timeout: 30) { isDone.withLock { $0 } }, "the clearing waits for the digest")
    #expect(result.withLock { $0 } == .interrupted)
    // Whatever it was, it must end before the test does.
    for _ in 0..<10_000 where !isDone.withLock({ $0 }) {
      bench.run(0.01)
      sleep(seconds: 0.001)
    }
    thread.join()
  }

  @Test("An unmount breaks a digest off: the file is not refused, not fetched again, and complete after the next mount")
  func endDuringADigest() throws {
    let bench = try bench()
    _ = try completing(bench)
    let sent = bench.service.sent
    bench.threads?.stopFinisher()
    #expect(bench.threads?.turnFinisher() == true)
    #expect(!bench.isComplete("a.mp4") && access(bench.folder + "/library/a.mp4", F_OK) != 0)
    bench.move(0.01)
    try bench.restart()
    #expect(bench.run(until: 30) { bench.isComplete("a.mp4") })
    #expect(bench.service.sent == sent, "the file was fetched again")
  }
}
