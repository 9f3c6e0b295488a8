import Base
import Fetching
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// A full disk, or a store at its limit, stops storing, not playing (P9).
@Suite struct FullStoreScenarios {
  static let megabyte: Int64 = 1 << 20

  @Test("A store at its limit: the open file is played to its end, unstored, within bounded memory")
  func limit() throws {
    var options = ReadingOptions.testing
    options.minimumFree = 1 << 60
    let size = 30 * Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size), options: options)
    let inode = try bench.opened("a.mp4")
    var most: Int64 = 0
    var offset: Int64 = 0
    while offset < size {
      bench.expectBytes(inode, offset, 65536, of: "a.mp4", within: 20)
      offset += 65536
      bench.run(0.04)
      most = max(most, try bench.kept(inode).count)
    }
    #expect(most > 0 && most <= RoomLimits.keptOfOneFile)
    let stored = try bench.stored(inode).count
    #expect(stored < size * 2 / 3, "the store's limit is not kept: \(stored) bytes")
    // Back to what is stored, and to what is gone.
    bench.expectBytes(inode, 0, 65536, of: "a.mp4")
    bench.expectBytes(inode, size - 80_000, 65536, of: "a.mp4")
    #expect(!bench.isComplete("a.mp4"))
  }

  @Test("A write that fails costs no reader anything; when there is room again storing goes on")
  func roomAgain() throws {
    let size = 12 * Self.megabyte
    let bench = try Bench(FakeResource(name: "a.mp4", size: size))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 100_000, of: "a.mp4")
    bench.refuseWrite()
    let before = try bench.stored(inode).count
    bench.expectBytes(inode, 5 * Self.megabyte, 200_000, of: "a.mp4")
    let after = try bench.stored(inode).count
    #expect(after - before < 600_000, "what was under way may still be stored")
    #expect(try !bench.kept(inode).isEmpty)
    bench.system.fetch([inode])
    #expect(bench.run(until: 200, step: 0.02) { bench.isComplete("a.mp4") })
    #expect(bench.service.sent <= size + size / 50)
    bench.expectBytes(inode, 5 * Self.megabyte, 200_000, of: "a.mp4")
  }

  @Test("A read of bytes that leave the memory at that moment waits for them, and does not fail")
  func readWhileMemoryEmpties() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 8 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    let (held, now, offset) = (try bench.hold(inode), bench.now, 4 * Self.megabyte)
    let state = Lock((isDone: false, hits: 0, failures: 0))
    let reader = OwnedThread(name: "reader") {
      while !state.withLock({ $0.isDone }) {
        switch held.read(offset, 4096, ticket: Ticket(rawValue: .max), now: now) {
        case .now: state.withLock { $0.hits += 1 }
        case .failed, nil: state.withLock { $0.failures += 1 }
        case .parked: break
        }
      }
    }
    let bytes = [UInt8](repeating: 1, count: 4096)
    for _ in 0..<20_000 {
      _ = try bench.keep([(offset, bytes)], of: inode)
      _ = try bench.keep([], of: inode)
    }
    state.withLock { $0.isDone = true }
    reader.join()
    #expect(state.withLock { $0.failures } == 0)
    #expect(state.withLock { $0.hits } > 0)
  }

  @Test("Many files at once stay within one bound")
  func bound() throws {
    var entries: [ManifestEntry] = []
    var resources: [String: FakeResource] = [:]
    for number in 1...24 {
      entries.append(Bench.entry("\(number).mp4", UInt64(number)))
      resources["http://origin/\(number).mp4"] = FakeResource(name: "\(number).mp4", size: 30 * Self.megabyte)
    }
    let bench = try Bench(entries, resources)
    let inodes = try (1...24).map { try bench.opened("\($0).mp4") }
    for round in 0..<24 {
      bench.refuseWrite()
      let offset = Int64(round) * Self.megabyte
      let tickets = inodes.map { bench.read($0, offset, 131072) }
      for (ticket, number) in zip(tickets, 1...) {
        guard case .data(let bytes)? = bench.answer(ticket) else {
          Issue.record("a read failed")
          return
        }
        #expect(Pattern.check(bytes, name: "\(number).mp4", offset: offset) == nil)
      }
      #expect(bench.keptInAll <= RoomLimits.keptInAll)
    }
  }

  @Test("Players that wait on a dead origin with all the memory there is leave some to one on a living origin")
  func deadNeighbours() throws {
    var options = ReadingOptions.testing
    options.minimumFree = 1 << 60
    let count = Int(RoomLimits.keptInAll / RoomLimits.keptOfOneFile)
    let size = 30 * Self.megabyte
    var entries: [ManifestEntry] = []
    var resources: [String: FakeResource] = [:]
    for number in 0...count {
      let url = "http://\(number == 0 ? "living" : "dead")/\(number).mp4"
      entries.append(Bench.entry("\(number).mp4", UInt64(number + 1), urls: [url]))
      resources[url] = FakeResource(name: "\(number).mp4", size: size)
    }
    let bench = try Bench(entries, resources, options: options)
    let inodes = try (1...count).map { try bench.opened("\($0).mp4") }
    for number in 1...count { bench.service.resources["http://dead/\(number).mp4"]?.isSilent = true }
    bench.run(2)
    // Each waits for a read of which the first half is there, the oldest of all that it has.
    let wanted = ByteRange(at: 10 * Self.megabyte, count: 128 << 10)
    let half = wanted.start + wanted.count / 2
    var tickets: [Ticket] = []
    for (inode, number) in zip(inodes, 1...) {
      tickets.append(bench.read(inode, wanted.start, Int(wanted.count)))
      let offsets = stride(from: half - RoomLimits.keptOfOneFile, to: half, by: 64 << 10).reversed()
      let pieces = offsets.map { offset in
        (offset, Pattern.bytes(name: "\(number).mp4", generation: 1, offset: offset, count: 64 << 10))
      }
      #expect(try bench.keep(pieces, of: inode))
    }
    let living = try bench.inode("0.mp4")
    #expect(bench.answer(bench.open(living), within: 5) == .opened(directIO: false))
    var offset: Int64 = 0
    while offset < 4 * Self.megabyte {
      bench.expectBytes(living, offset, 128 << 10, of: "0.mp4", within: 5)
      offset += 128 << 10
      #expect(bench.keptInAll <= RoomLimits.keptInAll)
    }
    // They wait still, and what they wait for was left to them.
    for (ticket, inode) in zip(tickets, inodes) {
      #expect(bench.port.reply(to: ticket) == nil)
      #expect(try bench.kept(inode).contains(ByteRange(wanted.start, half)))
    }
  }
}
