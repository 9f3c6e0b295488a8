import Base
import Fetching
import Glibc
import TestSupport
import Testing

import Reading
@testable import Storing

/// A version that another one replaced, while programs have it open or threads work on it: what comes of it says
/// nothing of the new one.
@Suite struct ReplacementScenarios {
  private static let url = "http://origin/a.mp4"

  /// A file that a user wants, slowly. Its first version is open, and the origin has another one, which is being
  /// fetched.
  private func replaced(size: Int64 = 50 << 20) throws -> (bench: Bench, old: Inode, new: Inode) {
    let bench = try Bench(FakeResource(name: "a.mp4", size: size, rate: 200_000))
    let old = try bench.opened("a.mp4")
    bench.system.fetch([old])
    bench.run(1)
    bench.service.resources[Self.url]?.change()
    try #require(bench.run(until: 60) { (try? bench.inode("a.mp4")) != old })
    bench.run(1)
    return (bench, old, try bench.inode("a.mp4"))
  }

  @Test("An open of the old version does not bring back the download that a user ended")
  func cancelled() throws {
    let (bench, old, _) = try replaced()
    try bench.cancel("a.mp4")
    #expect(bench.run(until: 30) { bench.service.running.isEmpty })
    let asked = bench.service.requests.count
    #expect(bench.port.reply(to: bench.open(old)) == .error(.stale))
    bench.run(5)
    #expect(bench.service.requests.count == asked)
    #expect(try !bench.generation("a.mp4").continues)
  }

  @Test("An open of the old version leaves the new one complete, which is not in memory any more")
  func complete() throws {
    let (bench, old, new) = try replaced(size: 4 << 20)
    try #require(bench.run(until: 120) { bench.isComplete("a.mp4") && !bench.isInMemory(new) })
    let asked = bench.service.requests.count
    #expect(bench.port.reply(to: bench.open(old)) == .error(.stale))
    bench.run(10)
    #expect(bench.service.requests.count == asked)
    #expect(try bench.isComplete("a.mp4") && bench.inode("a.mp4") == new)
  }

  @Test("A reader of the new version begins, whatever one of the old version has used up")
  func newcomer() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 50 << 20))
    let old = try bench.opened("a.mp4")
    bench.expectBytes(old, 0, 100_000, of: "a.mp4")
    // The credit of a newcomer lasts ten seconds.
    bench.run(20, step: 0.05)
    try bench.supersede(old)
    let new = try bench.inode("a.mp4")
    bench.read(new, 0, 100_000)
    bench.move(0.01)
    #expect(bench.isNewcomer(new))
  }

  @Test("A player of the new version gets the end of that one ahead, as one of the old version did")
  func tail() throws {
    let size: Int64 = 50 << 20
    let end = ByteRange(size - 4096, size)
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let old = try bench.opened("a.mp4")
    bench.expectBytes(old, 0, 65536, of: "a.mp4")
    #expect(bench.run(until: 5) { (try? bench.stored(old))?.contains(end) == true })
    bench.service.resources[Self.url]?.change()
    #expect(bench.answer(bench.read(old, 30 << 20, 4096)) == .error(.stale))
    let new = try bench.opened("a.mp4")
    bench.expectBytes(new, 0, 65536, of: "a.mp4", version: 2)
    #expect(bench.run(until: 5) { (try? bench.stored(new))?.contains(end) == true })
  }

  /// A file whose first version is with the finisher when another one replaces it. A clearing waits for that.
  private func clearing() throws -> (bench: Bench, new: Inode, isDone: Lock<Bool>) {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 4 << 20))
    let old = try bench.opened("a.mp4")
    bench.system.fetch([old])
    for _ in 0..<3000 where !bench.isCompleting(old) { bench.move(0.01, finishing: false) }
    try #require(bench.isCompleting(old))
    let isDone = Lock(false)
    try bench.clear(old) { isDone.withLock { $0 = true } }
    bench.move(0.01, finishing: false)
    try bench.supersede(old)
    return (bench, try bench.inode("a.mp4"), isDone)
  }

  @Test("A clearing that waited takes away what is stored of the new version, and the copy of the old one")
  func cleared() throws {
    let (bench, new, isDone) = try clearing()
    for _ in 0..<1000 where (try? bench.stored(new))?.isEmpty == true { bench.move(0.01, finishing: false) }
    try #require(try !bench.stored(new).isEmpty && !isDone.withLock { $0 })
    #expect(bench.run(until: 5) { isDone.withLock { $0 } })
    bench.run(2)
    #expect(try bench.stored(new).isEmpty && bench.service.running.isEmpty)
    #expect(!bench.isComplete("a.mp4") && access(bench.folder + "/library/a.mp4", F_OK) != 0)
  }

  @Test("A clearing that waits is carried out though nobody uses the new version meanwhile")
  func clearedWhileIdle() throws {
    let (bench, _, isDone) = try clearing()
    try bench.cancel("a.mp4")
    // Long enough to put it away from memory.
    for _ in 0..<1000 { bench.move(0.02, finishing: false) }
    #expect(!isDone.withLock { $0 })
    #expect(bench.run(until: 5) { isDone.withLock { $0 } })
  }

  @Test("A disk that loses bytes of the old version stops nothing of the new one")
  func lost() throws {
    let (bench, old, new) = try replaced()
    try bench.failSync(old)
    bench.move(0.01)
    #expect(bench.isStoring(new) == true)
    #expect(try bench.system.reports.report(on: bench.node("a.mp4")).error == nil)
  }

  @Test("A program that closes the old version is none that passes by the new one")
  func closed() throws {
    let (bench, old, _) = try replaced()
    bench.system.release(old)
    bench.move(0.01)
    let origin = try #require(bench.origin("http://origin"))
    #expect(origin.passedAt == nil)
  }
}
