import Base
import Glibc
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// A complete file is in the library, and what follows its rename fails.
@Suite struct PlacingScenarios {
  private static let size: Int64 = 6 << 20

  /// From here on the catalog does not take that a file is in the library, or again.
  private func refuseCopies(_ bench: Bench, _ isRefusing: Bool) throws {
    let trigger = """
      CREATE TEMP TRIGGER refused BEFORE UPDATE OF copy_path ON generation WHEN NEW.copy_path IS NOT NULL
      BEGIN SELECT RAISE(ABORT, 'the test refuses it'); END
      """
    try bench.catalog.connections.withWriter { (connection, _) throws(StoreError) in
      try connection.run(isRefusing ? trigger : "DROP TRIGGER refused")
    }
  }

  /// The path of the copy.
  private func copy(_ bench: Bench) -> String { bench.folder + "/library/a.mp4" }

  /// A file that a program has open, and that was renamed into the library. The catalog does not know that.
  private func unsettled() throws -> (Bench, Inode) {
    let bench = try Bench(FakeResource(name: "a.mp4", size: Self.size))
    let inode = try bench.opened("a.mp4")
    try refuseCopies(bench, true)
    bench.system.fetch([inode])
    #expect(bench.run(until: 60) { access(copy(bench), F_OK) == 0 })
    bench.run(1)
    #expect(!bench.isComplete("a.mp4"))
    return (bench, inode)
  }

  @Test("The catalog cannot take that a file is in the library: no byte of it goes or is fetched again, until it can")
  func commitThatFails() throws {
    let (bench, inode) = try unsettled()
    let sent = bench.service.sent
    bench.system.release(inode)
    bench.run(0.1)
    try bench.askFor(ByteRangeSet(ByteRange(1 << 20, 3 << 20)), of: inode)
    // Long enough to put away what nobody uses.
    bench.run(12, step: 0.05)
    #expect(spaceOnDisk(below: bench.folder + "/library") >= Self.size, "the copy has holes")
    let again = try bench.opened("a.mp4")
    bench.expectBytes(again, 0, Int(Self.size), of: "a.mp4")
    #expect(bench.service.sent == sent)
    #expect(try bench.state("a.mp4") != .complete)

    try refuseCopies(bench, false)
    #expect(bench.run(until: RoomLimits.refusedSeconds + 2) { bench.isComplete("a.mp4") })
    bench.run(1)
    #expect(try bench.state("a.mp4") == .complete)
    bench.expectBytes(again, 0, Int(Self.size), of: "a.mp4")
    #expect(bench.service.sent == sent && spaceOnDisk(below: bench.folder + "/store/partial") == 0)
    bench.stop()
    #expect(try bench.findings().isEmpty)
  }

  @Test("A user removes a file of the library that the catalog does not know yet: an open has it fetched again")
  func copyThatIsRemoved() throws {
    let (bench, inode) = try unsettled()
    try #require(unlink(copy(bench)) == 0)
    #expect(bench.run(until: RoomLimits.refusedSeconds + 2) { (try? bench.stored(inode).isEmpty) == true })
    bench.run(1)
    #expect(try bench.generation("a.mp4").stored.isEmpty)
    let sent = bench.service.sent
    bench.expectBytes(try bench.opened("a.mp4"), 1 << 20, 50_000, of: "a.mp4")
    #expect(bench.service.sent > sent)
  }
}
