import Base
import Fetching
import Glibc
import Manifest
import Storing
import TestSupport
import Testing

@testable import Reading

/// What a running server says of its files.
@Suite struct ReportScenarios {
  private static let size: Int64 = 8 << 20

  private func bench(_ options: ReadingOptions = .testing, _ failure: TransferFailure? = nil) throws -> Bench {
    var resource = FakeResource(name: "a.mp4", size: Self.size)
    resource.failure = failure
    return try Bench(resource, options: options)
  }

  private func report(_ bench: Bench) throws -> FileReport { try bench.system.reports.report(on: bench.node("a.mp4")) }

  @Test("An error is told after its file was put away, until bytes come")
  func outlivesTheFile() throws {
    let bench = try bench(.testing, FakeResource.reset)
    let inode = try bench.inode("a.mp4")
    let started = bench.now
    #expect(bench.answer(bench.open(inode)) == .error(.timedOut))
    let end = bench.now
    #expect(bench.run(until: 30, step: 0.1) { !bench.isInMemory(inode) }, "it is not put away")
    bench.run(600, step: 1)
    let later = try report(bench)
    #expect(later.error == FakeResource.reset.message)
    let at = try #require(later.errorAt)
    #expect(at >= started && at <= end, "its age is not that of the error")
    #expect(later.state == .remote && later.awaits == .reader)
    #expect(bench.system.reports.failing == [try bench.node("a.mp4").key])
    bench.service.resources["http://origin/a.mp4"]?.failure = nil
    bench.expectBytes(try bench.opened("a.mp4"), 0, 100_000, of: "a.mp4")
    bench.run(1)
    #expect(try report(bench).error == nil)
    #expect(bench.system.reports.failing.isEmpty)
  }

  @Test("An error from long before is not given as the reason of a later wait")
  func oldErrors() throws {
    var options = ReadingOptions.testing
    options.limits.rates.all = 1
    var failing = FakeResource(name: "a.mp4", size: Self.size)
    failing.failure = FakeResource.reset
    let bench = try Bench(
      [Bench.entry("a.mp4", 1), Bench.entry("b.mp4", 2)],
      ["http://origin/a.mp4": failing, "http://origin/b.mp4": FakeResource(name: "b.mp4", size: Self.size)],
      options: options)
    let inode = try bench.inode("a.mp4")
    #expect(bench.answer(bench.open(inode)) == .error(.timedOut))
    #expect(bench.run(until: 30, step: 0.1) { !bench.isInMemory(inode) })
    #expect(try report(bench).error == FakeResource.reset.message)
    _ = try bench.opened("b.mp4")  // its first bytes use the rate up for hours: nothing can be asked for, or fail
    bench.run(600, step: 1)
    #expect(bench.answer(bench.open(inode)) == .error(.timedOut))
    let error = try #require(try report(bench).error)
    #expect(error != FakeResource.reset.message, "that was ten minutes ago")
  }

  @Test("A failure that an earlier server noted is over when bytes come")
  func notedBefore() throws {
    let bench = try bench(.testing, FakeResource.gone)
    let inode = try bench.inode("a.mp4")
    #expect(bench.answer(bench.open(inode)) == .error(.io))
    bench.run(3)
    bench.service.resources["http://origin/a.mp4"]?.failure = nil
    try bench.restart()
    #expect(try report(bench).state == .failed)
    bench.expectBytes(try bench.opened("a.mp4"), 0, 100_000, of: "a.mp4")
    bench.run(3)
    #expect(try report(bench).state == .partial)
    try bench.restart()
    let fresh = try report(bench)
    #expect(fresh.state == .partial && fresh.error == nil)
  }

  @Test("A fetched file at a full store waits for disk space")
  func fullStore() throws {
    var options = ReadingOptions.testing
    options.minimumFree = 1 << 60
    let bench = try bench(options)
    _ = try bench.opened("a.mp4")  // so that something is stored: only then the room is looked at
    bench.run(3)
    bench.system.fetch([try bench.inode("a.mp4")])
    bench.run(3)
    #expect(try report(bench).awaits == .space)
    #expect(try report(bench).advice?.contains("--min-free") == true)
  }

  @Test("One whose origin named a time waits for it")
  func retryAfter() throws {
    var failure = TransferFailure(kind: .transient, status: 503, message: "busy")
    failure.retryAfter = 600
    let bench = try bench(.testing, failure)
    let inode = try bench.inode("a.mp4")
    bench.system.fetch([inode])
    bench.run(2)
    let until = try #require(bench.asksAgainAt(inode))
    #expect(try report(bench).awaits == .origin(until: until))
    #expect(until.seconds(since: bench.now) > 500)
  }

  @Test("With one connection the second file waits for its turn; beside a waiting reader for the line")
  func turnAndLine() throws {
    var options = ReadingOptions.testing
    options.connections = 1
    var silent = FakeResource(name: "b.mp4", size: Self.size)
    silent.isSilent = true
    let bench = try Bench(
      [Bench.entry("a.mp4", 1), Bench.entry("b.mp4", 2)],
      ["http://origin/a.mp4": FakeResource(name: "a.mp4", size: Self.size), "http://origin/b.mp4": silent],
      options: options)
    bench.open(try bench.inode("b.mp4"))
    bench.run(0.5)
    bench.system.fetch([try bench.inode("a.mp4")])
    bench.run(0.5)
    #expect(try report(bench).awaits == .turn)
    try bench.restart()
    bench.options.connections = 8
    bench.stop()
    try bench.start()
    bench.open(try bench.inode("b.mp4"))
    bench.run(0.5)
    bench.system.fetch([try bench.inode("a.mp4")])
    let isBehind = bench.run(until: 2) { (try? report(bench).awaits) == .line }
    #expect(isBehind, "\(String(describing: try? report(bench)))")
  }

  @Test("A copy that a user changed is told the same by the catalog, by a server, and by one that has it open")
  func changedCopy() throws {
    let bench = try bench()
    bench.system.fetch([try bench.inode("a.mp4")])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    let inode = try bench.opened("a.mp4")
    let copy = try #require(try bench.catalog.generations.current(of: bench.node("a.mp4").key)?.copy)
    try #require(truncate("\(bench.library.path)/\(copy.path)", 5) == 0)
    try #require(bench.isInMemory(inode))
    let open = try report(bench)
    let catalog = try fromCatalog(bench)
    bench.stop()
    try bench.start()
    let served = try report(bench)
    for report in [open, catalog, served] {
      #expect(report.state == .modified && report.stored == Self.size && report.size == Self.size, "\(report)")
      #expect(report.ranges == open.ranges && report.advice == open.advice)
      #expect(report.error?.contains("was changed") == true && report.error == open.error)
    }
  }

  private func fromCatalog(_ bench: Bench) throws -> FileReport {
    let key = try bench.node("a.mp4").key
    return try FileReport(
      path: "a.mp4", generation: bench.catalog.generations.current(of: key),
      problem: bench.catalog.notes.problem(of: key), copies: bench.library,
      libraryPath: bench.library.path)
  }
}
