import Base
import Fetching
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// The list changes while files are open.
@Suite struct ListedAnewScenarios {
  static let megabyte: Int64 = 1 << 20

  private func bench(_ names: [String]) throws -> Bench {
    var resources: [String: FakeResource] = [:]
    for name in names { resources["http://origin/\(name)"] = FakeResource(name: name, size: 20 * Self.megabyte) }
    var options = ReadingOptions.testing
    options.continuation = .never
    return try Bench(names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources, options: options)
  }

  @Test("A reader goes on over a new link, with what is stored, and each byte is fetched once")
  func newLink() throws {
    let bench = try bench(["a.mp4"])
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 2 << 20, of: "a.mp4")
    bench.run(1)
    let stored = try bench.stored(inode).count
    // The link expires, and a reader waits.
    bench.service.resources["http://new/a.mp4"] = bench.service.resources["http://origin/a.mp4"]
    bench.service.resources["http://origin/a.mp4"]?.failure = FakeResource.gone
    #expect(bench.answer(bench.read(inode, 10 * Self.megabyte, 4096)) == .error(.io))
    try bench.list([Bench.entry("a.mp4", 1, urls: ["http://new/a.mp4"])])
    bench.run(0.1)
    #expect(try bench.inode("a.mp4") == inode)
    bench.service.resources["http://new/a.mp4"]?.version = 1
    let before = bench.service.requests.count
    bench.expectBytes(inode, 0, 2 << 20, of: "a.mp4")
    #expect(bench.service.requests.count == before, "it is stored")
    bench.expectBytes(inode, 10 * Self.megabyte, 4096, of: "a.mp4")
    #expect(bench.service.requests[before...].allSatisfy { $0.url == "http://new/a.mp4" })
    #expect(try bench.stored(inode).count > stored)
  }

  /// What an origin says of its version.
  struct Tags: Sendable, CustomTestStringConvertible {
    var etag: String?
    var isWeak = false
    var date: Int64?
    static let none = Tags()
    static let strong = Tags(etag: "\"1\"")
    static let weak = Tags(etag: "\"1\"", isWeak: true)
    static let dated = Tags(date: 1_600_000_000)

    var testDescription: String { "\(isWeak ? "weak " : "")\(etag ?? "no tag"), \(date.map { "\($0)" } ?? "no date")" }

    func describe(_ resource: inout FakeResource) {
      (resource.etag, resource.isWeak, resource.lastModified) = (etag, isWeak, date)
    }
  }

  @Test(
    "A new link gives its bytes to a version only where they are proved to be the same",
    arguments: [
      (Tags.none, Tags.none), (.strong, .dated), (.dated, .strong), (.strong, .none), (.none, .dated), (.weak, .weak),
    ], [false, true])
  func newLinkIsProved(_ tags: (old: Tags, new: Tags), isOther: Bool) throws {
    let bench = try bench(["a.mp4"])
    tags.old.describe(&bench.service.resources["http://origin/a.mp4"]!)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 2 << 20, of: "a.mp4")
    bench.run(1)
    var new = FakeResource(name: "a.mp4", size: 20 * Self.megabyte)
    if isOther { new.version = 2 }
    tags.new.describe(&new)
    bench.service.resources["http://new/a.mp4"] = new
    // While a reader streams over the former link, which goes on.
    let streaming = bench.read(inode, 4 * Self.megabyte, 128 << 10)
    bench.run(0.01)
    try bench.list([Bench.entry("a.mp4", 1, urls: ["http://new/a.mp4"])])
    bench.service.resources["http://origin/a.mp4"]?.failure = FakeResource.gone
    let reply = bench.answer(streaming)
    if isOther {
      if reply != .error(.stale) { bench.expectBytes(inode, 4 * Self.megabyte, 128 << 10, of: "a.mp4") }
      #expect(bench.answer(bench.read(inode, 10 * Self.megabyte, 4096)) == .error(.stale))
      let again = try bench.opened("a.mp4")
      #expect(again != inode)
      for place in [0, 4, 10, 19] as [Int64] {
        bench.expectBytes(again, place * Self.megabyte, 128 << 10, of: "a.mp4", version: 2)
      }
    } else {
      for place in [0, 4, 10, 19] as [Int64] {
        bench.expectBytes(inode, place * Self.megabyte, 128 << 10, of: "a.mp4")
      }
      #expect(try bench.inode("a.mp4") == inode)
      #expect(bench.service.sent < 8 * Self.megabyte, "what is stored is not fetched again")
    }
  }

  @Test("A link that is replaced while its bytes come neither loses nor mixes them")
  func newLinkInFlight() throws {
    let bench = try bench(["a.mp4"])
    bench.service.resources["http://origin/a.mp4"]?.rate = 300_000
    let inode = try bench.opened("a.mp4")
    let ticket = bench.read(inode, 0, 128 << 10)
    bench.run(0.2)
    bench.service.resources["http://new/a.mp4"] = bench.service.resources["http://origin/a.mp4"]
    try bench.list([Bench.entry("a.mp4", 1, urls: ["http://new/a.mp4", "http://third/a.mp4"])])
    bench.run(0.05)
    bench.service.resources["http://origin/a.mp4"]?.failure = FakeResource.gone
    _ = bench.answer(ticket, within: 10)
    bench.expectBytes(inode, 0, 128 << 10, of: "a.mp4")
    bench.expectBytes(inode, 5 * Self.megabyte, 128 << 10, of: "a.mp4")
  }

  @Test("A file that left the list: stored bytes for its handles, ESTALE for the rest, and no more requests")
  func leaves() throws {
    let bench = try bench(["a.mp4", "b.mp4"])
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.run(1)
    let waiting = bench.read(inode, 15 * Self.megabyte, 4096)
    try bench.list([Bench.entry("b.mp4", 2)])
    #expect(bench.answer(waiting) == .error(.stale))
    let before = bench.service.requests.count
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    #expect(bench.answer(bench.read(inode, 12 * Self.megabyte, 4096)) == .error(.stale))
    // The kernel may still have the name for a moment.
    #expect(bench.port.reply(to: bench.open(inode)) == .error(.stale))
    bench.run(2)
    #expect(bench.service.requests.count == before)
    #expect(try bench.catalog.tree.find(path: "a.mp4") == nil)
    // The line comes back: all as before, and what is stored is found again.
    try bench.list([Bench.entry("a.mp4", 1), Bench.entry("b.mp4", 2)])
    bench.run(0.1)
    #expect(try bench.opened("a.mp4") == inode)
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    #expect(bench.service.requests[before...].allSatisfy { $0.range.map { $0.start >= 100_000 } ?? false })
    bench.expectBytes(inode, 12 * Self.megabyte, 4096, of: "a.mp4")
  }

  @Test("A handle of a file that left the list outlives the server")
  func leavesBeforeTheServerEnds() throws {
    let bench = try bench(["a.mp4", "b.mp4"])
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.run(2)
    try bench.list([Bench.entry("b.mp4", 2)])
    bench.run(1)
    try bench.restart()
    let before = bench.service.requests.count
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    #expect(bench.answer(bench.read(inode, 12 * Self.megabyte, 4096)) == .error(.stale))
    #expect(bench.service.requests.count == before)
  }

  @Test("A file that moves while it is open is completed under its new name")
  func moves() throws {
    let bench = try bench(["a.mp4", "b.mp4"])
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    var moved = Bench.entry("a.mp4", 1)
    moved.name = "c.mp4"
    try bench.list([moved, Bench.entry("b.mp4", 2)])
    bench.run(0.1)
    let new = try bench.inode("c.mp4")
    #expect(try new != inode && bench.catalog.tree.find(path: "a.mp4") == nil)
    bench.expectBytes(inode, 10 * Self.megabyte, 4096, of: "a.mp4")
    bench.system.fetch([new])
    #expect(bench.run(until: 60) { bench.isComplete("c.mp4") })
    #expect(try bench.generation("c.mp4").copy?.path == "c.mp4")
  }
}
