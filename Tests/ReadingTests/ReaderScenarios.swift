import Base
import Fetching
import Glibc
import Manifest
import TestSupport
import Testing

@testable import Reading

/// What a running server says of those who read, of its lines, and of what goes on.
@Suite struct ReaderScenarios {
  private static let size: Int64 = 32 << 20
  private static let me = getpid()

  private func bench(_ names: String..., options: ReadingOptions = .testing) throws -> Bench {
    var resources: [String: FakeResource] = [:]
    for name in names { resources["http://origin/\(name)"] = FakeResource(name: name, size: Self.size) }
    return try Bench(
      names.enumerated().map { Bench.entry($0.element, UInt64($0.offset + 1)) }, resources, options: options)
  }

  private func report(_ bench: Bench, _ name: String = "a.mp4") throws -> FileReport {
    try bench.system.reports.report(on: bench.node(name))
  }

  /// Reads a mebibyte a second in pieces, from `start` on.
  private func play(_ bench: Bench, _ inode: Inode, from start: Int64, seconds: Int, process: Int32 = me) {
    for piece in 0..<(8 * seconds) {
      let ticket = bench.read(inode, start + Int64(piece) << 17, 1 << 17, process: process)
      #expect(bench.answer(ticket, within: 20) != nil)
      bench.run(0.125)
    }
  }

  @Test("A reader is told with its process, its place and its pace; after a pause its pace is none")
  func placeAndPace() throws {
    let bench = try bench("a.mp4")
    let inode = try bench.opened("a.mp4")
    #expect(try report(bench).readers.isEmpty && report(bench).opens == 1)
    play(bench, inode, from: 0, seconds: 10)
    let reader = try #require(try report(bench).readers.first)
    #expect(try report(bench).readers.count == 1)
    #expect(reader.process == Self.me)
    #expect(reader.name == ProcessNames.name(of: Self.me) && reader.name?.isEmpty == false)
    #expect(reader.position == 10 << 20 && reader.waitsSince == nil)
    #expect((0.7...1.2).contains(reader.pace / Double(1 << 20)), "\(reader.pace)")
    bench.run(10)
    #expect(try report(bench).readers.first?.pace == 0, "it is paused")
    bench.run(60)
    #expect(try report(bench).readers.isEmpty)
    bench.system.release(inode)
    #expect(try report(bench).opens == 0)
  }

  @Test("One that jumps is told where it is now, and is gone with its last handle")
  func jump() throws {
    let bench = try bench("a.mp4")
    let inode = try bench.opened("a.mp4")
    play(bench, inode, from: 0, seconds: 3)
    play(bench, inode, from: 20 << 20, seconds: 3)
    #expect(try report(bench).readers.map(\.position) == [23 << 20])
    bench.system.release(inode)
    #expect(try report(bench).readers.isEmpty)
  }

  @Test("Two processes are two readers; one that has ended is none")
  func several() throws {
    let bench = try bench("a.mp4")
    let inode = try bench.opened("a.mp4")
    let child = try BackgroundProcess(["sleep", "100"])
    play(bench, inode, from: 0, seconds: 2)
    play(bench, inode, from: 20 << 20, seconds: 2, process: child.processID)
    let readers = try report(bench).readers
    #expect(readers.map(\.position) == [2 << 20, 22 << 20])
    #expect(readers.map(\.name) == [ProcessNames.name(of: Self.me), "sleep"])
    child.terminate(grace: 0)
    _ = child.wait(timeout: 10)
    #expect(try report(bench).readers.map(\.position) == [2 << 20])
  }

  @Test("A thread's reads are its process's")
  func threads() throws {
    let done = Signal()
    let thread = OwnedThread(name: "other") { done.wait() }
    let listed = try Command.succeed(["ls", "/proc/self/task", "/proc/\(Self.me)/task"])
    let threads = listed.split(separator: "\n").compactMap { Int32($0) }
    let other = try #require(threads.first { $0 != Self.me && ProcessNames.process(ofThread: $0) == Self.me })
    #expect(ProcessNames.process(ofThread: Self.me) == Self.me && kill(other, 0) == 0)
    #expect(Program(ofThread: other).number == Program(ofThread: Self.me).number)
    done.raise()
    thread.join()
  }

  @Test("Processes of one program have one number, those of another program another one")
  func programs() throws {
    let sleepers = try (0..<2).map { _ in try BackgroundProcess(["sleep", "600"]) }
    defer { for process in sleepers { process.terminate(grace: 0) } }
    let numbers = sleepers.map { Program(ofThread: $0.processID).number }
    #expect(numbers[0] == numbers[1] && numbers[0] != Program(ofThread: Self.me).number)
    #expect(Program(ofThread: 0).number == 0, "nothing is known of it")
    let ended = Int32.max
    #expect(Program(ofThread: ended).number == Int(ended))
  }

  @Test("A read that waits is told, with what it waits for")
  func waiting() throws {
    let bench = try bench("a.mp4")
    let inode = try bench.opened("a.mp4")
    bench.service.resources["http://origin/a.mp4"]?.isSilent = true
    let ticket = bench.read(inode, 10 << 20, 4096, process: Self.me)
    bench.run(1)
    let reader = try #require(try report(bench).readers.first { $0.position == 10 << 20 })
    let since = try #require(reader.waitsSince)
    #expect((0.9...1.1).contains(bench.now.seconds(since: since)))
    #expect(reader.awaits == nil, "a request is in flight")
    bench.service.resources["http://origin/a.mp4"]?.isSilent = false
    bench.service.resources["http://origin/a.mp4"]?.failure = FakeResource.reset
    let isTold = bench.run(until: 20) {
      guard case .origin? = (try? report(bench))?.readers.first(where: { $0.waitsSince != nil })?.awaits else {
        return false
      }
      return true
    }
    #expect(isTold, "that the origin failed is not told")
    _ = bench.answer(ticket)
  }

  // MARK: Lines

  @Test("A line is told with its rate, its transfers, its round trip and its errors")
  func lines() throws {
    let bench = try bench("a.mp4", "notes.txt")
    #expect(bench.system.reports.lines(8).isEmpty)
    let inode = try bench.opened("a.mp4")
    bench.system.fetch([inode])
    var most = (rate: 0.0, transfers: 0)
    _ = bench.run(until: 60) {
      if let line = bench.system.reports.lines(8).first {
        most = (max(most.rate, line.rate(now: bench.now)), max(most.transfers, line.transfers))
      }
      return bench.isComplete("a.mp4")
    }
    #expect(most.rate > 100_000 && most.transfers > 0, "\(most)")
    bench.run(10)
    let line = try #require(bench.system.reports.lines(8).first)
    #expect(line.host == "http://origin" && line.transfers == 0 && line.errors == 0 && line.error == nil)
    #expect(line.rate(now: bench.now) == 0 && line.connections(now: bench.now) == 0, "it is at rest")
    let trip = try #require(line.roundTrip)
    #expect(trip > 0 && trip < 1)

    bench.service.resources["http://origin/notes.txt"]?.failure = FakeResource.reset
    let started = bench.now
    #expect(bench.answer(bench.open(try bench.inode("notes.txt"))) == .error(.timedOut))
    let failing = try #require(bench.system.reports.lines(8).first)
    #expect(failing.errors > 0 && failing.error?.message == FakeResource.reset.message)
    #expect(try #require(failing.error).at >= started)
    #expect(bench.system.reports.lines(0).isEmpty)
  }

  @Test("Of many lines the busiest are told")
  func busiest() throws {
    let reports = LineReports()
    let now = Instant(nanoseconds: 1_000_000_000_000)
    var lines: [LineReport] = []
    for number in 0..<100 {
      var line = Line(connections: 4)
      if number % 10 == 3 { line.received(number << 10, of: TransferID(1), now: now) }
      lines.append(LineReport(host: "http://user:secret@h\(number)", line, now: now))
    }
    reports.publish(lines)
    let told = reports.busiest(12, now: now)
    #expect(told.map(\.host).prefix(3) == ["http://h93", "http://h83", "http://h73"])
    #expect(told.count == 12)
  }

  // MARK: What goes on

  @Test("What goes on is told, what waits or is read first, and nothing else")
  func active() throws {
    var options = ReadingOptions.testing
    options.limits.rates.all = 1 << 20
    let bench = try bench("a.mp4", "b.mp4", "c.mp4", "d.mp4", options: options)
    #expect(bench.system.reports.active.count == 0)
    let read = try bench.opened("c.mp4")
    bench.expectBytes(read, 0, 4096, of: "c.mp4")
    _ = try bench.opened("d.mp4")
    bench.system.fetch([try bench.inode("a.mp4")])
    bench.run(10)  // c was read a while ago, and is only open
    bench.expectBytes(read, 4096, 4096, of: "c.mp4")
    bench.run(0.1)
    let active = bench.system.reports.active
    let files = try active.reports(10)
    #expect(active.count == 3 && files.first?.path == "c.mp4", "\(files.map(\.path))")
    #expect(Set(files.map(\.path)) == ["a.mp4", "c.mp4", "d.mp4"])
    #expect(active.size == 3 * Self.size && active.unknownSizes == 0)
    #expect(active.stored == files.reduce(0) { $0 + $1.stored })
    #expect(active.transfers == files.reduce(0) { $0 + $1.transfers })
    #expect(try active.reports(1).map(\.path) == ["c.mp4"])
    bench.service.resources["http://origin/b.mp4"]?.isSilent = true
    bench.open(try bench.inode("b.mp4"))
    bench.run(0.5)
    #expect(try bench.system.reports.active.reports(10).first?.path == "b.mp4", "its reader waits")
  }
}

/// How fast bytes came of late.
@Suite struct RecentRateTables {
  private func at(_ seconds: Double) -> Instant { Instant(nanoseconds: 0).adding(seconds: 1000 + seconds) }

  @Test func steadyBytesHaveTheirRate() {
    var rate = RecentRate(slice: 4)
    #expect(rate.rate(now: at(0), pause: 8) == 0)
    for step in 0..<200 { rate.note(100, now: at(Double(step) / 10)) }
    #expect((990...1050).contains(rate.rate(now: at(20), pause: 8)))
    #expect((400...560).contains(rate.rate(now: at(27), pause: 8)), "a pause lowers it")
    #expect(rate.rate(now: at(28), pause: 8) == 0)
  }

  @Test func aBurstIsNoGreatRate() {
    var rate = RecentRate(slice: 4)
    rate.note(1000, now: at(0))
    #expect(rate.rate(now: at(0.001), pause: 8) == 1000)
  }

  @Test func aLongPauseIsForgotten() {
    var rate = RecentRate(slice: 1)
    rate.note(1_000_000, now: at(0))
    rate.note(1000, now: at(60))
    #expect(rate.rate(now: at(60.5), pause: 8) == 1000)
    rate.note(1000, now: at(61.5))
    #expect((1000...1400).contains(rate.rate(now: at(61.5), pause: 8)))
  }
}
