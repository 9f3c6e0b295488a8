import Base
import Fetching
import Storing
import TestSupport
import Testing

@testable import Reading

/// Origins that hold each connection to a part of the line, in simulated time: a copy gets many connections soon, and
/// nobody else pays for it.
@Suite struct SlowConnectionScenarios {
  private static let roundTrip = 0.05
  private static let connection = 4e6
  private static let line = 25 * connection
  private static let part: Int64 = 128 << 10

  private struct Setting {
    var files: [(name: String, size: Int64)]
    var connection: Double? = SlowConnectionScenarios.connection
    var line = SlowConnectionScenarios.line
    var options = ReadingOptions.testing
    var fake: FakeStore?

    func bench() throws -> Bench {
      var resources: [String: FakeResource] = [:]
      for file in files {
        resources["http://origin/" + file.name] = FakeResource(
          name: file.name, size: file.size, latency: SlowConnectionScenarios.roundTrip)
      }
      let entries = files.enumerated().map { Bench.entry($1.name, UInt64($0 + 1)) }
      let bench = try Bench(entries, resources, options: options, fake: fake)
      bench.service.line = line
      bench.service.connectionRate = connection
      bench.service.packet = 8 << 10
      bench.service.connectSeconds = SlowConnectionScenarios.roundTrip
      return bench
    }
  }

  /// Reads `range` from start to end as cp does, with a process of its own; how many seconds it took.
  private func copy(
    _ bench: Bench, _ name: String, _ range: ByteRange, process: Int32 = 1, beside: () -> Void = {}
  ) throws -> Double {
    let inode = try bench.opened(name)
    let handle = SimulatedHandle(bench, inode, size: range.end, process: process)
    let begun = bench.now
    var next = range.start
    while next < range.end {
      let chunk = ByteRange(next, min(next + Self.part, range.end))
      handle.begin(chunk)
      while !handle.has(chunk) {
        bench.move(0.002)
        handle.poll()
        beside()
        if bench.now.seconds(since: begun) > 120 { throw Errno.timedOut }
      }
      next = chunk.end
    }
    bench.system.release(inode)
    return bench.now.seconds(since: begun)
  }

  @Test("The first file comes faster than over six connections from the start")
  func firstFile() throws {
    let size: Int64 = 64 << 20
    let bench = try Setting(files: [("film.mp4", size)]).bench()
    let seconds = try copy(bench, "film.mp4", ByteRange(0, size))
    let six = Double(size) / (6 * Self.connection)
    #expect(seconds <= six, "\(seconds) s, and six connections take \(six)")
  }

  @Test("A large file gets what the allowed connections bring")
  func largeFile() throws {
    let (first, size) = (Int64(64 << 20), Int64(320 << 20))
    let bench = try Setting(files: [("film.mp4", size)]).bench()
    // Of 1 GiB nearly all is behind the first part.
    _ = try copy(bench, "film.mp4", ByteRange(0, first))
    let rate = Double(size - first) / (try copy(bench, "film.mp4", ByteRange(first, size)))
    #expect(rate >= 0.8 * Self.line, "\(rate / Self.line) of the line")
    #expect(bench.service.mostRunning <= ReadingOptions.testing.connections)
  }

  @Test("A file begins with what is known of its host, in the same mount and after a restart, for a day")
  func nextFiles() throws {
    let size: Int64 = 48 << 20
    let names = ["first.mp4", "second.mp4", "third.mp4", "fourth.mp4"]
    let bench = try Setting(files: names.map { ($0, size) }).bench()
    let first = try copy(bench, names[0], ByteRange(0, size))
    let second = try copy(bench, names[1], ByteRange(0, size))
    #expect(second < 0.8 * first, "\(second) s, after \(first) s")
    bench.run(5)
    try bench.restart()
    let third = try copy(bench, names[2], ByteRange(0, size))
    #expect(third < 0.8 * first, "\(third) s after a restart, after \(first) s")
    bench.run(5)
    bench.stop()
    bench.time.withLock { $0 = $0.adding(seconds: 25 * 3600) }
    try bench.start()
    let fourth = try copy(bench, names[3], ByteRange(0, size))
    #expect(fourth > 0.9 * first, "\(fourth) s after a day, after \(first) s")
  }

  @Test("What is known of a host is noted, at most once in five seconds")
  func notes() throws {
    let store = FakeStore()
    let size: Int64 = 160 << 20
    let bench = try Setting(files: [("film.mp4", size)], fake: store).bench()
    let seconds = try copy(bench, "film.mp4", ByteRange(0, size))
    bench.run(6)
    let note = try #require(store.hosts().first)
    #expect(store.hosts().count == 1 && note.name == "http://origin")
    #expect(note.lanes >= 8 && note.lanes <= 32, "\(note)")
    #expect(abs((note.connectionRate ?? 0) - Self.connection) < 0.15 * Self.connection, "\(note)")
    #expect(note.rate > 4 * Self.connection && note.rate < 2 * Self.line, "\(note)")
    #expect(abs(note.roundTrip - Self.roundTrip) < 0.01 && note.httpVersion == 11, "\(note)")
    // At most once in each round of looks at all files.
    #expect(store.hostNotes <= Int((seconds + 6) / 5) + 1, "\(store.hostNotes) notes in \(seconds + 6) s")
  }

  @Test("No more connections than the user allows", arguments: [1, 2, 6])
  func cap(connections: Int) throws {
    let size: Int64 = 24 << 20
    var setting = Setting(files: [("film.mp4", size)])
    setting.options.connections = connections
    let bench = try setting.bench()
    _ = try copy(bench, "film.mp4", ByteRange(0, size))
    #expect(bench.service.mostRunning <= connections)
  }

  @Test("An origin that answers 503 to too many gets fewer", arguments: [429, 503])
  func pushedBack(status: Int) throws {
    let size: Int64 = 192 << 20
    let bench = try Setting(files: [("film.mp4", size)]).bench()
    var refused: Set<TransferID> = []
    let service = bench.service
    service.answer = { request, resource in
      guard service.running.count > 12 || refused.contains(request.id) else { return resource }
      refused.insert(request.id)
      var busy = resource
      busy.failure = TransferFailure(kind: .transient, status: status, message: "too many")
      return busy
    }
    let seconds = try copy(bench, "film.mp4", ByteRange(0, size))
    // A third of what it takes is still used.
    #expect(Double(size) / seconds > 4 * Self.connection, "\(Double(size) / seconds / Self.connection) connections")
    let share = Double(refused.count) / Double(service.requests.count)
    #expect(!refused.isEmpty && share < 0.25, "\(refused.count) of \(service.requests.count) requests were refused")
  }

  @Test("A line that two connections fill gets no more of them for long, and a player beside a copy does not stall")
  func fullLine() throws {
    let line = 8e6
    let (film, other) = (Int64(32 << 20), Int64(96 << 20))
    var setting = Setting(files: [("film.mp4", film), ("other.mp4", other)], connection: nil)
    setting.line = line
    let bench = try setting.bench()
    let handle = SimulatedHandle(bench, try bench.opened("film.mp4"), size: film)
    let player = SimulatedPlayer(
      handle, rate: 1e6, line: line / 2, roundTrip: Self.roundTrip, jumps: [], now: bench.now)
    for _ in 0..<1500 {
      bench.move(0.002)
      player.move(bench.now)
    }
    _ = try copy(bench, "other.mp4", ByteRange(0, other)) { player.move(bench.now) }
    #expect(player.started != nil && player.waits.isEmpty, "\(player.waits)")
    #expect(bench.service.mostRunning <= 12, "\(bench.service.mostRunning) at once")
  }

  @Test("A player beside a copy over slow connections does not stall")
  func playerBeside() throws {
    let (film, other) = (Int64(64 << 20), Int64(256 << 20))
    let bench = try Setting(files: [("film.mp4", film), ("other.mp4", other)]).bench()
    let handle = SimulatedHandle(bench, try bench.opened("film.mp4"), size: film)
    let player = SimulatedPlayer(
      handle, rate: 2.4e6, line: Self.connection, roundTrip: Self.roundTrip, jumps: [], now: bench.now)
    for _ in 0..<1500 {
      bench.move(0.002)
      player.move(bench.now)
    }
    _ = try copy(bench, "other.mp4", ByteRange(0, other)) { player.move(bench.now) }
    #expect(player.started != nil && player.waits.isEmpty, "\(player.waits)")
  }

  @Test("Readers that come and go on a full line show no slow connections to the last of them")
  func sharedLine() throws {
    let size: Int64 = 256 << 20
    let names = (0..<4).map { "copy\($0).mp4" }
    var setting = Setting(files: names.map { ($0, size) }, connection: nil)
    setting.line = 20e6
    let bench = try setting.bench()
    var copies: [DeadlineScenarios.Copier] = []
    for second in 0..<4 {
      // Each comes a second after the last; then all but the first leave, in the same order.
      copies.append(try DeadlineScenarios.Copier(bench, names[second], size: size))
      for _ in 0..<500 { step() }
    }
    func step() {
      bench.move(0.002)
      for copy in copies { copy.move() }
    }
    while copies.count > 1 {
      copies.removeLast()
      for _ in 0..<500 { step() }
    }
    for _ in 0..<3000 { step() }
    let room = try #require(bench.threads?.client as? TransferThread)
    let line = try #require(room.lines.known("http://origin"))
    #expect(!line.estimate.connections.hasFound && copies[0].read > 100 << 20)
  }
}
