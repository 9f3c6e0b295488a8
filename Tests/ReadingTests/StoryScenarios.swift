import Base
import Fetching
import Glibc
import Manifest
import Storing
import TestSupport
import Testing

import Reading

/// The story of a file: where it comes from and lies, what was fetched of it for whom, what went wrong.
@Suite struct StoryScenarios {
  private static let size: Int64 = 8 << 20

  private func story(_ bench: Bench, _ name: String = "a.mp4") throws -> FileReport.Story {
    try #require(try bench.system.reports.story(of: bench.node(name)))
  }

  @Test("What was fetched is told by whom it was for and where it came from, also after the file was put away")
  func fetched() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: Self.size, latency: 0.05))
    #expect(try story(bench).fetched.isEmpty)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 4 << 20, 100_000, of: "a.mp4")
    let read = try story(bench)
    #expect(read.fetched.reader >= 100_000 && read.fetched.continuation == 0 && read.goesOn == nil)
    #expect(read.servesRanges == true && read.partial != nil && read.copy == nil && read.checkedAt != nil)
    bench.system.fetch([inode])
    bench.run(0.02)
    #expect(try story(bench).goesOn == .asked)
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    bench.system.release(inode)
    #expect(bench.run(until: 60, step: 0.1) { !bench.isInMemory(inode) }, "it is not put away")
    let told = try story(bench)
    #expect(told.fetched.reader + told.fetched.scan + told.fetched.continuation == Self.size)
    #expect(told.fetched.hosts.map(\.host) == ["http://origin"] && told.fetched.hosts[0].bytes == Self.size)
    #expect(told.copy == "a.mp4" && told.partial == nil && told.goesOn == nil)
    // It goes on counting.
    let again = try bench.opened("a.mp4")
    try bench.clear(again)
    bench.run(1)
    bench.expectBytes(again, 0, 1000, of: "a.mp4")
    bench.run(1)
    #expect(try story(bench).fetched.hosts[0].bytes > Self.size)
  }

  @Test("The last errors are told with their times, after they are over too")
  func errors() throws {
    var resource = FakeResource(name: "a.mp4", size: Self.size)
    resource.failure = FakeResource.reset
    let bench = try Bench(resource)
    let inode = try bench.inode("a.mp4")
    _ = bench.answer(bench.open(inode))
    bench.run(100, step: 1)
    bench.service.resources["http://origin/a.mp4"]?.failure = FakeResource.gone
    let later = bench.now
    _ = bench.answer(bench.open(inode))
    bench.service.resources["http://origin/a.mp4"]?.failure = nil
    bench.run(6)
    bench.expectBytes(try bench.opened("a.mp4"), 0, 100_000, of: "a.mp4")
    bench.run(1)
    #expect(try bench.system.reports.report(on: bench.node("a.mp4")).error == nil)
    let errors = try story(bench).errors
    #expect(errors.map(\.message) == [FakeResource.gone.message, FakeResource.reset.message], "\(errors)")
    #expect(errors[0].at >= later && errors[1].at < later)
  }

  @Test("Mirrors that were given up are told, and which one is asked; no URL's secrets are")
  func mirrors() throws {
    var first = FakeResource(name: "a.mp4", size: Self.size)
    first.failure = FakeResource.gone
    let urls = ["http://user:s3cret@one/a.mp4?token=s3cret", "http://two/a.mp4"]
    let bench = try Bench(
      [Bench.entry("a.mp4", 3, urls: urls)], [urls[0]: first, urls[1]: FakeResource(name: "a.mp4", size: Self.size)])
    _ = try bench.opened("a.mp4")
    bench.run(0.1)
    let told = try story(bench)
    #expect(told.origins.map(\.host) == ["http://one", "http://two"] && told.line == 3)
    #expect(told.origins.map(\.isAsked) == [false, true])
    #expect(told.origins[0].refusal == FakeResource.gone.message && told.origins[1].refusal == nil)
    #expect(told.fetched.hosts.map(\.host) == ["http://two"])
  }
}
