import Base
import Fetching
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// Sizes that the list gives: shown without a request, and never believed when bytes are read.
@Suite struct ListedSizeScenarios {
  private static let size: Int64 = 300_000

  /// Files whose real size is ``size``, with what the list says of each.
  private func bench(_ listed: [Int64?]) throws -> Bench {
    var entries: [ManifestEntry] = []
    var resources: [String: FakeResource] = [:]
    for (index, size) in listed.enumerated() {
      var entry = Bench.entry("\(index).mp4", UInt64(index + 1))
      var facts = EntryFacts()
      (facts.size, facts.date) = (size, 1_600_000_000)
      entry.facts = facts
      entries.append(entry)
      resources[entry.urls[0]] = FakeResource(name: entry.name, size: Self.size)
    }
    return try Bench(entries, resources)
  }

  private func shown(_ bench: Bench, _ name: String, within seconds: Double = 0) throws -> Attributes? {
    guard case .attributes(let shown)? = bench.answer(bench.stat(try bench.inode(name)), within: seconds) else {
      return nil
    }
    return shown
  }

  @Test("A listing of files whose sizes the list gives makes no request, and is not final")
  func statsAskNobody() throws {
    let bench = try bench([1234, Self.size, 1 << 40])
    for (name, size) in [("0.mp4", Int64(1234)), ("1.mp4", Self.size), ("2.mp4", 1 << 40)] {
      let shown = try #require(try shown(bench, name), "the stat waits")
      #expect(shown.size == size && shown.modified == 1_600_000_000 && !shown.isFinal)
    }
    bench.run(5)
    #expect(bench.service.requests.isEmpty)
  }

  @Test("The sizes of the others of the folder are asked for, not those that the list gives")
  func siblings() throws {
    let bench = try bench([nil, nil, 1234, nil, 5678, nil])
    for name in ["0.mp4", "1.mp4"] { #expect(try shown(bench, name, within: 10)?.size == Self.size) }
    bench.run(5)
    #expect(Set(bench.service.requests.map(\.url)) == Set([0, 1, 3, 5].map { "http://origin/\($0).mp4" }))
  }

  @Test(
    "An open finds the origin's size, which a wrong one of the list does not change",
    arguments: [
      Int64(1000), 10_000_000,
    ])
  func theOriginsSizeWins(listed: Int64) throws {
    let bench = try bench([listed])
    #expect(try shown(bench, "0.mp4")?.size == listed)
    let inode = try bench.opened("0.mp4")
    let known = try #require(try shown(bench, "0.mp4"), "the stat waits")
    #expect(known.size == Self.size && known.isFinal)
    guard case .data(let head)? = bench.answer(bench.read(inode, 0, 100_000)) else {
      Issue.record("no data")
      return
    }
    #expect(head.count == 100_000)
    guard case .data(let tail)? = bench.answer(bench.read(inode, Self.size - 1000, 100_000)) else {
      Issue.record("no data")
      return
    }
    #expect(tail.count == 1000, "up to the real end, and no further")
  }
}
