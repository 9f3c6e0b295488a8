import Base
import Fetching
import Manifest
import TestSupport
import Testing

@testable import Reading
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
    "An open after a wrong size of the list is ESTALE once, and goes past the cache until the kernel has the origin's",
    arguments: [1000, 10_000_000])
  func theOriginsSizeWins(listed: Int64) throws {
    let bench = try bench([listed])
    #expect(try shown(bench, "0.mp4")?.size == listed)
    let inode = try bench.inode("0.mp4")
    let others = bench.open(inode)
    let tickets = [others, bench.open(inode), bench.open(inode)]
    #expect(bench.answer(tickets[0]) == .error(.stale))
    // Who comes without a look between reads past the cache.
    for ticket in tickets[1...] { #expect(bench.answer(ticket) == .opened(directIO: true)) }
    #expect(bench.answer(bench.open(inode)) == .opened(directIO: true))
    let known = try #require(try shown(bench, "0.mp4"), "the stat waits")
    #expect(known.size == Self.size && known.isFinal)
    #expect(try bench.opened("0.mp4") == inode, "the same inode: cp has it from before")
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

  @Test("Sizes of the list: how opens are answered")
  func verdicts() {
    var sizes = ListedSizes()
    #expect(sizes.opens(5, size: 10) == .open)
    sizes.loaded(5, size: nil)
    #expect(sizes.opens(5, size: 10) == .open, "the list gives none")
    sizes.loaded(5, size: 7)
    sizes.loaded(5, size: 10)  // loaded again: the former one may have been shown
    #expect(sizes.opens(5, size: 7) == .open && sizes.opens(6, size: 10) == .open)
    #expect(sizes.opens(5, size: 10) == .stale && sizes.opens(5, size: 10) == .direct, "no look between them")
    sizes.left(5)
    sizes.showedOrigins(5)
    sizes.loaded(5, size: 7)
    #expect(sizes.opens(5, size: 10) == .open, "the look came while it was in memory no more")
    sizes.showedListed(5, size: 7)
    #expect(sizes.opens(5, size: 10) == .stale)
    sizes.showedOrigins(5)
    sizes.changed(5, size: nil)
    #expect(sizes.opens(5, size: 10) == .stale, "the former list's may be there")
    sizes.showedOrigins(5)
    #expect(sizes.opens(5, size: 10) == .open)
    sizes.changed(6, size: nil)
    #expect(sizes.opens(6, size: 10) == .open, "no list gave one")
    sizes.loaded(7, size: 10)
    sizes.showedListed(7, size: 9)
    #expect(sizes.opens(7, size: 10) == .stale, "it was shown another one than it was loaded with")
    for inode in 100..<40_000 { sizes.loaded(Inode(inode), size: 1) }
    #expect(sizes.opens(39_999, size: 10) == .stale && sizes.opens(100, size: 10) == .stale)
  }

  @Test("A body without a length, and a file that is put away: the list's size opens neither")
  func laterSizes() throws {
    let bench = try bench([1000])
    #expect(try shown(bench, "0.mp4")?.size == 1000)
    let inode = try bench.inode("0.mp4")
    bench.service.resources["http://origin/0.mp4"]?.hidesLength = true
    bench.service.resources["http://origin/0.mp4"]?.ignoresRanges = true
    // Nobody has asked for the size since: it comes with the end of the body.
    guard case .opened(directIO: true)? = bench.answer(bench.open(inode)) else {
      Issue.record("not opened while it grows")
      return
    }
    _ = bench.answer(bench.read(inode, Self.size - 1000, 2000))
    bench.run(5)
    let again = bench.answer(bench.open(inode))
    guard case .error(.stale)? = again else {
      Issue.record("\(String(describing: again))")
      return
    }
    #expect(try shown(bench, "0.mp4")?.size == Self.size)
    #expect(try bench.opened("0.mp4") == inode)
  }
}
