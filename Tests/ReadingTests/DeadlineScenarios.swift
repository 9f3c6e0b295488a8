import Base
import Glibc
import TestSupport
import Testing

@testable import Reading

/// Players beside copies and scanners, in simulated time: a film does not stutter for a copy (P13).
@Suite struct DeadlineScenarios {
  /// Reads on as soon as it has what it read, as `cp` does.
  final class Copier {
    private let bench: Bench
    private let inode: Inode
    private let opened: Ticket
    private(set) var handle: SimulatedHandle?
    private let size: Int64
    private var position: Int64 = 0
    private(set) var read: Int64 = 0
    private static let count: Int64 = 128 << 10

    init(_ bench: Bench, _ name: String, size: Int64) throws {
      self.bench = bench
      self.size = size
      inode = try bench.inode(name)
      opened = bench.open(inode)
    }

    func move() {
      guard let handle else {
        guard bench.port.take(opened) != nil else { return }
        handle = SimulatedHandle(bench, inode, size: size)
        return handle?.begin(ByteRange(0, Self.count)) ?? ()
      }
      handle.poll()
      while position < size, handle.has(ByteRange(at: position, count: Self.count)) {
        position += Self.count
        read += Self.count
        if position < size {
          handle.begin(ByteRange(at: position, count: Self.count))
        } else {
          bench.system.release(inode)
        }
      }
    }
  }

  /// Opens one file after the other and reads its head and its tail.
  final class Scanner {
    private let bench: Bench
    private var names: ArraySlice<String>
    private let size: Int64
    /// The process of the next file.
    private let nextProcess: () -> Int32
    private var process: Int32 = 0
    private var opened: (ticket: Ticket, inode: Inode)?
    private var places: [ByteRange] = []
    private var handle: SimulatedHandle?
    private(set) var read: Int64 = 0
    private static let looked: Int64 = 64 << 10

    init(_ bench: Bench, _ names: [String], size: Int64, process: @escaping () -> Int32) {
      self.bench = bench
      self.names = names[...]
      self.size = size
      nextProcess = process
    }

    func move() throws {
      if let handle {
        handle.poll()
        guard let place = places.first, handle.has(place) else { return }
        read += place.count
        places.removeFirst()
        if let next = places.first { return handle.begin(next) }
        if let opened { bench.system.release(opened.inode) }
        self.handle = nil
        opened = nil
      }
      if let opened {
        guard bench.port.take(opened.ticket) != nil else { return }
        handle = SimulatedHandle(bench, opened.inode, size: size, process: process)
        places = [ByteRange(0, Self.looked), ByteRange(size - Self.looked, size)]
        return handle?.begin(places[0]) ?? ()
      }
      guard let name = names.popFirst() else { return }
      let inode = try bench.inode(name)
      process = nextProcess()
      opened = (bench.open(inode, process: process), inode)
    }
  }

  /// A line, and who is on it.
  struct Setting: Sendable, CustomTestStringConvertible {
    var rate: Double
    var roundTrip: Double
    var players: [Double] = [1e6]
    var jumps = false
    /// Whether the first player reads the end of its film before it plays, and jumps to the middle after ten seconds.
    var probes = false
    /// At which second of its film the newest player jumps to the middle; nil: it does not. The jump may take as long
    /// as on a line of its own.
    var newestJumps: Double?
    /// By how many seconds the players come later.
    var delay = 0.0
    /// By how many seconds each player comes after the one before.
    var spacing = 3.0
    var copies = 0
    var scanners = 0
    var connections = ReadingOptions().connections
    var storeIsFull = false
    var change: LineChange?
    var httpVersion = 11
    var testDescription: String {
      "\(rate / 1e6) MB/s, \(Int(roundTrip * 1000)) ms, players \(players.map { $0 / 1e6 })\(jumps ? ", seeking" : "")"
        + (newestJumps.map { ", the newest jumps after \($0) s" } ?? "")
        + "\(probes ? ", probing, with one jump, \(delay) s later" : ""), "
        + "\(copies) copies, \(scanners) scanners, \(connections) connections, HTTP/\(httpVersion)"
        + (change.map { ", \($0)" } ?? "")
    }
  }

  /// What came of it.
  struct Outcome {
    var stalls: [[(second: Double, seconds: Double)]] = []
    /// How long each player waited for its first second; nil: until the end.
    var starts: [Double?] = []
    /// Bytes that the others read while the players had their lead, and those that were left for them.
    var others = 0.0
    var left = 0.0
    /// Bytes that each scanner read.
    var scans: [Int64] = []
    /// Bytes that each copy read beside the players, and how many of their reads failed.
    var copies: [Int64] = []
    var errors = 0
    /// How many requests for copies began behind bytes that had not been requested.
    var skips = 0
  }

  /// Each scanner is a process of its own.
  static func run(_ setting: Setting, seconds: Double, lead: Double = 20) throws -> Outcome {
    let processes = try (0..<setting.scanners).map { _ in try BackgroundProcess(["sleep", "600"]) }
    defer { for process in processes { process.terminate(grace: 0) } }
    return try run(setting, seconds: seconds, lead: lead) { processes[$0].processID }
  }

  /// `scanner`: the process of the next file of the scanner with that number.
  static func run(
    _ setting: Setting, seconds: Double, lead: Double = 20, scanner: @escaping (Int) -> Int32
  ) throws -> Outcome {
    let size: Int64 = 1 << 30
    var resources: [String: FakeResource] = [:]
    let films = setting.players.indices.map { "film\($0).bin" }
    let copies = (0..<setting.copies).map { "copy\($0).bin" }
    let clips = (0..<setting.scanners).map { scanner in (0..<400).map { "clip\(scanner)-\($0).bin" } }
    let names = films + copies + clips.flatMap { $0 }
    for name in names {
      var resource = FakeResource(name: name, size: size, latency: setting.roundTrip)
      resource.httpVersion = setting.httpVersion
      resources["http://origin/" + name] = resource
    }
    var options = ReadingOptions.testing
    options.connections = setting.connections
    if setting.change == nil { options.continuation = .never }
    if setting.storeIsFull { options.minimumFree = 1 << 60 }
    let bench = try Bench(
      names.enumerated().map { Bench.entry($1, UInt64($0 + 1)) }, resources, options: options)
    bench.service.line = setting.rate
    bench.service.packet = 8 << 10
    if case .jitter(let most)? = setting.change {
      bench.service.answer = { request, resource in
        var late = resource
        late.latency += LineChange.jitter(most, of: request.id)
        return late
      }
    }
    if case .queue(let seconds)? = setting.change {
      bench.service.network = FakeNetwork(
        rate: setting.rate, trip: setting.roundTrip, queue: seconds * setting.rate)
    }
    bench.service.connectSeconds = setting.httpVersion == 20 ? 0 : setting.roundTrip
    let began = bench.now
    let step = 0.002
    let others = try copies.map { try Copier(bench, $0, size: size) }
    let scanners = clips.enumerated().map { index, names in
      Scanner(bench, names, size: size) { scanner(index) }
    }
    var players: [SimulatedPlayer] = []
    var opened: Instant?
    var deaths = 0
    func move(_ step: Double = 0.002) throws {
      if let change = setting.change, let opened {
        let second = bench.now.seconds(since: opened)
        bench.service.line = setting.rate * change.rate(at: second)
        if case .deaths(let seconds) = change, Int(second / seconds) > deaths {
          deaths += 1
          bench.service.dropConnections()
        }
      }
      bench.move(step)
      for player in players { player.move(bench.now) }
      for other in others { other.move() }
      for scanner in scanners { try scanner.move() }
    }
    // The others are there first, and have used up their credit.
    while bench.now.seconds(since: began) < Playout.creditSeconds + setting.delay { try move(0.004) }
    for (index, rate) in setting.players.enumerated() {
      let arrival = bench.now.adding(seconds: index == 0 ? 0 : setting.spacing)
      while bench.now < arrival { try move() }
      let inode = try bench.inode(films[index])
      opened = opened ?? bench.now
      let ticket = bench.open(inode)
      while bench.port.reply(to: ticket) == nil { try move() }
      let handle = SimulatedHandle(bench, inode, size: size, process: getpid())
      var jumps: [SimulatedPlayer.Jump] = []
      if setting.jumps, index == 0 {
        jumps = [.init(second: 8, offset: 400 << 20), .init(second: 16, offset: 700 << 20)]
      }
      if let second = setting.newestJumps, index == setting.players.count - 1 {
        jumps = [.init(second: second, offset: size / 2)]
      }
      if setting.probes, index == 0 {
        jumps = [.init(second: 10, offset: size / 2)]
        for place in [0, size - SimulatedPlayer.chunk] {
          let place = ByteRange(at: place, count: SimulatedPlayer.chunk)
          handle.begin(place)
          while !handle.has(place) {
            try move()
            handle.poll()
          }
        }
      }
      players.append(
        SimulatedPlayer(
          handle, rate: rate,
          line: setting.newestJumps == nil ? setting.rate / Double(setting.players.count) : setting.rate,
          roundTrip: setting.roundTrip, jumps: jumps, now: bench.now))
    }
    func read() -> Int64 { others.reduce(0) { $0 + $1.read } + scanners.reduce(0) { $0 + $1.read } }
    var before: Int64 = 0
    let copied = others.map(\.read)
    let steps = Int(seconds / step)
    for index in 0..<steps {
      if index == Int(lead / step) { before = read() }
      try move()
    }
    var outcome = Outcome()
    outcome.stalls = players.map { $0.started == nil ? [(0, seconds)] : $0.waits }
    outcome.starts = players.map(\.started)
    outcome.others = Double(read() - before)
    outcome.scans = scanners.map(\.read)
    outcome.copies = zip(others, copied).map { $0.read - $1 }
    outcome.errors = others.reduce(0) { $0 + ($1.handle?.errors ?? 0) }
    for name in copies {
      var requested = ByteRangeSet()
      for range in bench.service.requests.filter({ $0.url.hasSuffix("/" + name) }).compactMap(\.range) {
        if requested.runEnd(from: 0) < range.start { outcome.skips += 1 }
        requested.insert(range)
      }
    }
    outcome.left = (setting.rate - setting.players.reduce(0, +)) * (seconds - lead)
    return outcome
  }

  @Test(
    "A player never stalls beside copies, on a line with 15 % to spare and more",
    arguments: [
      Setting(rate: 8e6, roundTrip: 0.08, copies: 3), Setting(rate: 4e6, roundTrip: 0.08, copies: 3),
      Setting(rate: 14e6, roundTrip: 0.08, copies: 6), Setting(rate: 1.2e6, roundTrip: 0.08, copies: 1),
      Setting(rate: 4e6, roundTrip: 0.08, copies: 30),
    ])
  func copies(setting: Setting) throws {
    let outcome = try Self.run(setting, seconds: 40)
    for stalls in outcome.stalls { #expect(stalls.isEmpty, "\(stalls)") }
    // What a tight line leaves is less than the windows in which it is shared.
    guard setting.rate > 2e6 else { return }
    #expect(outcome.others >= 0.7 * outcome.left, "\(outcome.others / outcome.left) of what was left")
  }

  @Test(
    "A player that jumps beside scanners that take the whole line waits for nothing that one can see",
    arguments: [0, 0.513])
  func jumpBesideScanners(delay: Double) throws {
    let setting = Setting(rate: 12e6, roundTrip: 0.04, probes: true, delay: delay, scanners: 8)
    let outcome = try Self.run(setting, seconds: 21)
    let stalls = outcome.stalls[0].filter { $0.seconds > 0.1 }
    #expect(stalls.isEmpty, "\(stalls)")
    // None of them waits until others have no more files.
    let (least, most) = (try #require(outcome.scans.min()), try #require(outcome.scans.max()))
    #expect(2 * least >= most, "\(outcome.scans) bytes")
  }

  @Test(
    "Thirty-two programs of which nothing is known, that go from file to file, cost a film that begins no stall",
    arguments: [
      Setting(rate: 12e6, roundTrip: 0.04, probes: true, scanners: 32),
      Setting(rate: 4e6, roundTrip: 0.05, probes: true, scanners: 32),
    ])
  func beginsBesideScanners(setting: Setting) throws {
    let outcome = try Self.run(setting, seconds: 24, lead: 8)
    let stalls = outcome.stalls[0].filter { $0.seconds > 0.1 }
    #expect(stalls.isEmpty, "\(stalls)")
    #expect(outcome.others >= 0.2 * outcome.left, "\(outcome.others / outcome.left) of what was left")
    let (least, most) = (try #require(outcome.scans.min()), try #require(outcome.scans.max()))
    #expect(2 * least >= most, "\(outcome.scans) bytes")
  }

  @Test("Nor do those that have a process for each file")
  func processes() throws {
    // So many that none comes back often.
    let processes = try (0..<400).map { _ in try BackgroundProcess(["sleep", "600"]) }
    defer { for process in processes { process.terminate(grace: 0) } }
    var files = 0
    let setting = Setting(rate: 12e6, roundTrip: 0.04, probes: true, scanners: 32)
    let outcome = try Self.run(setting, seconds: 5, lead: 1) { _ in
      defer { files += 1 }
      return processes[files % processes.count].processID
    }
    let stalls = outcome.stalls[0].filter { $0.seconds > 0.1 }
    #expect(stalls.isEmpty, "\(stalls)")
    #expect(outcome.others >= 0.1 * outcome.left, "\(outcome.others / outcome.left) of what was left")
  }

  @Test("On a line that a player nearly fills, a copy does not use up what it had ahead", arguments: [0, 1.026])
  func leadBesideACopy(delay: Double) throws {
    let setting = Setting(rate: 1.2e6, roundTrip: 0.08, probes: true, delay: delay, copies: 1)
    let stalls = try Self.run(setting, seconds: 21).stalls[0].filter { $0.seconds > 0.02 }
    #expect(stalls.isEmpty, "\(stalls)")
  }

  @Test("A film that begins while thirty copies have just begun, too, does not stall", arguments: [-2, -1.5, -1])
  func amongNewcomers(delay: Double) throws {
    let setting = Setting(rate: 4e6, roundTrip: 0.08, probes: true, delay: delay, copies: 30)
    let stalls = try Self.run(setting, seconds: 9).stalls[0].filter { $0.seconds > 0.1 }
    #expect(stalls.isEmpty, "\(stalls)")
  }

  @Test("At a full store, a copy beside a player goes on from memory")
  func fullStore() throws {
    let outcome = try Self.run(Setting(rate: 8e6, roundTrip: 0.08, copies: 1, storeIsFull: true), seconds: 24)
    #expect(outcome.others > 0.2 * outcome.left, "\(outcome.others / outcome.left) of what was left")
  }

  @Test(
    "Nor beside scanners, nor with other players, over few connections or HTTP/2, near and far",
    arguments: [
      Setting(rate: 12e6, roundTrip: 0.04, scanners: 8),
      Setting(rate: 12e6, roundTrip: 0.04, copies: 3, scanners: 8),
      Setting(rate: 4e6, roundTrip: 0.08, players: [0.5e6, 1e6, 1.5e6], jumps: true, copies: 3),
      Setting(rate: 4e6, roundTrip: 0.08, copies: 3, connections: 2),
      Setting(rate: 4e6, roundTrip: 0.08, copies: 3, connections: 6),
      Setting(rate: 4e6, roundTrip: 0.08, copies: 3, httpVersion: 20),
      Setting(rate: 4e6, roundTrip: 0.005, copies: 3), Setting(rate: 4e6, roundTrip: 0.3, copies: 3),
    ])
  func company(setting: Setting) throws {
    let outcome = try Self.run(setting, seconds: 24)
    for stalls in outcome.stalls.map({ $0.filter { $0.seconds > 0.1 } }) { #expect(stalls.isEmpty, "\(stalls)") }
  }

  @Test(
    "Programs that are known to look cost a player no stall, however many they are",
    arguments: [
      Setting(rate: 12e6, roundTrip: 0.04, scanners: 8), Setting(rate: 4e6, roundTrip: 0.05, scanners: 32),
    ])
  func knownLookers(setting: Setting) throws {
    try LookScenarios.withLooker { looker in
      let outcome = try Self.run(setting, seconds: 8, lead: 0) { _ in looker }
      #expect(outcome.stalls[0].isEmpty, "\(outcome.stalls[0])")
      let start = try #require(outcome.starts[0])
      #expect(start < 0.6, "it started after \(start) s")
    }
  }
}
