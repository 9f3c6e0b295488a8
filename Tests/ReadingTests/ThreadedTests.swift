import Base
import Fetching
import Glibc
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// The reading room with all its threads: what the thread sanitizer looks at (`make tsan`). Whatever the order, bytes
/// are right, each request is answered, and the end is tidy.
@Suite struct ThreadedTests {
  private static let size: Int64 = 3 << 20
  private static let names = (1...6).map { "\($0).mp4" }

  /// Turns a fake service on a thread of its own, and carries out what other threads ask of the origin there.
  private final class Turning: Sendable {
    private let jobs = Lock<[@Sendable () -> Void]>([])
    private let isStopping = Lock(false)
    private let thread = Lock<OwnedThread?>(nil)

    func perform(_ job: @escaping @Sendable () -> Void) { jobs.withLock { $0.append(job) } }

    func start(_ service: FakeService) {
      let started = OwnedThread(name: "fake service") { [self] in
        while !isStopping.withLock({ $0 }) {
          let due = jobs.withLock { jobs in
            defer { jobs = [] }
            return jobs
          }
          for job in due { job() }
          service.move(to: .now)
          sleep(seconds: 0.001)
        }
        service.stop()
      }
      thread.withLock { $0 = started }
    }

    func stop() {
      isStopping.withLock { $0 = true }
      thread.withLock { $0.take() }?.join()
    }
  }

  @Test("Readers, changes, clearing and looks, all at once")
  func everythingAtOnce() throws {
    var seeds = SeededRandom.fromEnvironment()
    var resources: [String: FakeResource] = [:]
    var entries: [ManifestEntry] = []
    for (index, name) in Self.names.enumerated() {
      let entry = Bench.entry(name, UInt64(index + 1))
      entries.append(entry)
      var resource = FakeResource(name: name, size: Self.size)
      resource.rate = 30_000_000
      resource.latency = 0.002
      if index == 2 { resource.ignoresRanges = true }
      if index == 3 { resource.breaksAfter = 200_000 }
      resources[entry.urls[0]] = resource
    }
    let bench = try Bench(entries, resources, hasThreads: true)
    let system = try #require(bench.system)
    let port = bench.port
    let service = bench.service
    let turning = Turning()
    turning.start(service)
    defer {
      turning.stop()
      system.stop()
    }
    let problems = Lock<[String]>([])
    let tickets = Lock<UInt>(1 << 20)
    let compared = Lock<Int>(0)
    let inodes = Lock<[Inode: UInt64]>([:])

    @Sendable func wait(_ ticket: Ticket) -> Reply? {
      eventually(timeout: 120, interval: 0.0005) { port.reply(to: ticket) != nil } ? port.take(ticket) : nil
    }
    @Sendable func ticket() -> Ticket {
      Ticket(
        rawValue: tickets.withLock {
          $0 += 1
          return $0
        })
    }
    @Sendable func inode(_ name: String) -> Inode? {
      let bytes = Array(name.utf8)
      return bytes.withUnsafeBufferPointer { try? system.lookup(parent: rootInode, name: $0) }?.inode
    }
    @Sendable func check(_ name: String, _ inode: Inode, _ bytes: [UInt8], _ offset: Int64) {
      guard bytes.count >= 8 else { return }
      compared.withLock { $0 += bytes.count }
      guard let version = Pattern.generation(of: bytes, name: name, offset: offset, among: 1...20) else {
        return problems.withLock { $0.append("\(name) at \(offset): bytes of no version, or of two") }
      }
      let first = inodes.withLock { inodes in
        let first = inodes[inode, default: version]
        inodes[inode] = first
        return first
      }
      if first != version { problems.withLock { $0.append("\(name): inode \(inode) had \(first), has \(version)") } }
    }
    @Sendable func read(_ name: String, _ random: inout SeededRandom) {
      guard let inode = inode(name) else { return problems.withLock { $0.append("\(name) vanished") } }
      let opening = ticket()
      let opened: Reply?
      switch system.open(inode, ticket: opening, caller: Caller(process: 0)) {
      case .now(let mode): opened = .opened(directIO: mode.directIO)
      case .failed(let error): opened = .error(error)
      case .parked: opened = wait(opening)
      }
      guard case .opened? = opened else {
        if opened == nil { problems.withLock { $0.append("\(name): an open was never answered") } }
        return
      }
      defer { system.release(inode) }
      var offset = Int64.random(in: 0..<Self.size, using: &random)
      for _ in 0..<12 {
        let count = Int.random(in: 8...65536, using: &random)
        let reading = ticket()
        var bytes = [UInt8](repeating: 0, count: count)
        let answer = bytes.withUnsafeMutableBytes {
          system.read(inode, at: offset, into: $0, ticket: reading, caller: Caller(process: 0))
        }
        switch answer {
        case .now(let count): check(name, inode, Array(bytes[..<count]), offset)
        case .failed: break
        case .parked:
          switch wait(reading) {
          case .data(let bytes)?: check(name, inode, bytes, offset)
          case nil: problems.withLock { $0.append("\(name) at \(offset): a read was never answered") }
          default: break
          }
        }
        offset += Int64(count)
        if random.oneIn(4) { offset = Int64.random(in: 0..<Self.size, using: &random) }
      }
    }

    var threads: [OwnedThread] = []
    for number in 0..<6 {
      let seed = seeds.fork()
      threads.append(
        OwnedThread(name: "reader \(number)") {
          var random = seed
          for _ in 0..<12 { read(Self.names[Int.random(in: 0..<Self.names.count, using: &random)], &random) }
        })
    }
    let seed = seeds.fork()
    threads.append(
      OwnedThread(name: "meddler") {
        var random = seed
        for _ in 0..<20 {
          sleep(seconds: 0.03)
          let name = Self.names[Int.random(in: 0..<Self.names.count, using: &random)]
          switch Int.random(in: 0..<5, using: &random) {
          case 0: turning.perform { service.resources["http://origin/" + name]?.change() }
          case 1:
            if let inode = inode(name) { _ = system.beginClearing(inode) }
          case 2: if let inode = inode(name) { system.fetch([inode]) }
          case 3: system.reconnect()
          default:
            if let inode = inode(name) {
              let looking = ticket()
              if case .parked = system.attributes(of: inode, ticket: looking, caller: Caller(process: 0)) {
                if system.interrupt(looking, isKilled: true) { port.put(looking, .error(.interrupted)) }
              }
            }
          }
        }
      })
    for thread in threads { thread.join() }
    let found = problems.withLock { $0 }
    #expect(found.isEmpty, "seed \(seeds.seed): \(found.prefix(5))")
    #expect(compared.withLock { $0 } > 100_000)
  }
}
