import Base
import Fetching
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// What the finisher says of a file, and above all why it refuses one, counts once and for that version.
@Suite struct RefusalScenarios {
  private static let size: Int64 = 2 << 20

  /// Two files. The second one is whole and with the finisher, and its bytes are wrong. From now on the origin sends
  /// the right ones, under the head of the wrong ones.
  private func scene() throws -> (bench: Bench, first: Inode, wrong: Inode) {
    let resources = ["a.mp4", "b.mp4"].map { FakeResource(name: $0, size: Self.size) }
    var entries = resources.enumerated().map { Bench.entry($1.name, UInt64($0) + 1) }
    var digester = try Digester(.sha256)
    let right = resources[1].version + 1
    Pattern.bytes(name: "b.mp4", generation: right, offset: 0, count: Int(Self.size)).withUnsafeBytes {
      digester.update($0)
    }
    entries[1].checksum = Checksum(algorithm: .sha256, digest: digester.finish())
    let urls = entries.map { $0.urls[0] }
    let bench = try Bench(entries, Dictionary(uniqueKeysWithValues: zip(urls, resources)))
    let (first, wrong) = (try bench.opened("a.mp4"), try bench.opened("b.mp4"))
    bench.system.fetch([wrong])
    for _ in 0..<3000 where !bench.isCompleting(wrong) { bench.move(0.01, finishing: false) }
    try #require(bench.isCompleting(wrong))
    bench.service.resources[urls[1]]?.version = right
    return (bench, first, wrong)
  }

  @Test("One that is refused while the transfer thread plans is not given to the finisher again")
  func whilePlanning() throws {
    let (bench, first, wrong) = try scene()
    // The transfer thread plans the first file before, and looks at the time because that file has a reader now.
    bench.touch(try bench.hold(wrong))
    let read = bench.read(first, Self.size / 2, 1000)
    bench.holdsKeeper = true
    let refusals = Lock(0)
    bench.looks.withLock { looks in
      looks = { if bench.threads?.turnFinisher() == true { refusals.withLock { $0 += 1 } } }
    }
    bench.move(0.01, finishing: false)
    bench.looks.withLock { $0 = nil }
    bench.holdsKeeper = false
    #expect(refusals.withLock { $0 } == 1)
    #expect(try bench.inode("b.mp4") == wrong, "the refusal came before the plan")
    #expect(bench.threads?.turnFinisher() == false, "the same bytes are verified again")
    #expect(bench.run(until: 30) { bench.isComplete("b.mp4") })
    #expect(bench.port.reply(to: read) != nil)
  }

  @Test("One that is in the finisher's queue twice is refused once")
  func twiceInTheQueue() throws {
    let (bench, _, wrong) = try scene()
    try bench.queueForFinisher(wrong)
    #expect(bench.threads?.turnFinisher() == true)
    #expect(bench.isInFinishersHands(wrong))
    // The second entry leaves the queue, and the bytes are not verified again.
    #expect(bench.threads?.turnFinisher() == true && bench.isInFinishersHands(wrong))
    #expect(bench.run(until: 30) { bench.isComplete("b.mp4") })
  }

  @Test("What the finisher says of a version that was replaced meanwhile does not count against the new one")
  func replaced() throws {
    let (bench, _, wrong) = try scene()
    try bench.supersede(wrong)
    let new = try bench.inode("b.mp4")
    #expect(new != wrong)
    #expect(bench.threads?.turnFinisher() == true)
    bench.move(0.01)
    #expect(try bench.inode("b.mp4") == new)
    bench.system.fetch([new])
    #expect(bench.run(until: 30) { bench.isComplete("b.mp4") })
  }

  @Test("A version that was replaced when it was just complete does not end what is wanted of the new one")
  func completeAndReplaced() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: Self.size))
    let old = try bench.opened("a.mp4")
    bench.system.fetch([old])
    for _ in 0..<3000 where !bench.isCompleting(old) { bench.move(0.01, finishing: false) }
    #expect(bench.threads?.turnFinisher() == true)
    try bench.supersede(old)
    bench.move(0.01)
    let new = try bench.inode("a.mp4")
    #expect(new != old)
    #expect(bench.run(until: 30) { bench.isComplete("a.mp4") })
    bench.expectBytes(new, 0, Int(Self.size), of: "a.mp4")
  }
}
