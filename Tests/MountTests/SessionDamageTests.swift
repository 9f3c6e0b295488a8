import Base
import CSystem
import Glibc
import Reading
import TestSupport
import Testing

@testable import Mount

/// What a server makes of a session memory into which an earlier one wrote what it should not.
@Suite("A damaged session memory")
struct SessionDamageTests {
  /// The memory, and what was put there.
  private struct Model: ~Copyable {
    let file = FileDescriptor(owning: csystem_make_memory_file("damage"))
    var slots: [Int: [UInt8]] = [:]
    var buffers: [Int: [UInt8]] = [:]
    var handles: [Int: OpenHandle] = [:]

    init(_ random: inout SeededRandom) throws {
      try file.truncate(to: Int64(SessionLayout.size))
      let memory = try next()
      memory.remember(MountBeginning(firstID: 7, mountedAt: 8), catalogID: 9)
      try SessionDamageTests.read(0).withUnsafeBytes { (bytes) throws in try memory.save(initRequest: bytes) }
      memory.raiseSlotMark(to: Int.random(in: 0...50, using: &random))
      memory.raiseHandleMark(to: Int.random(in: 0...50, using: &random))
      for index in 0..<memory.slotMark where random.oneIn(2) {
        let request = SessionDamageTests.read(UInt64(2 * index + 2), offset: Int64(random.next() >> 2))
        #expect(request.withUnsafeBytes { memory.keep($0, inSlot: index) })
        slots[index] = request
      }
      for index in 0..<SessionLayout.bufferCount where random.oneIn(2) {
        let request = SessionDamageTests.read(UInt64(2 * index + 1002))
        request.withUnsafeBytes { memory.buffer(index).copyMemory(from: $0) }
        buffers[index] = request
      }
      for index in 0..<memory.handleMark where random.oneIn(2) {
        let handle = OpenHandle(unique: UInt64(index + 1), inode: 2 + random.next() % 5, backing: Int32(index % 3))
        memory.keep(handle, inHandle: index)
        handles[index] = handle
      }
    }

    /// The next server's view.
    func next() throws -> SessionMemory { try SessionMemory(FileDescriptor(owning: dup(file.rawValue))) }

    func write(_ bytes: [UInt8], at offset: Int) throws {
      try bytes.withUnsafeBytes { try file.writeFully($0, at: Int64(offset)) }
    }

    func bytes(at offset: Int, _ count: Int) throws -> [UInt8] {
      var found = [UInt8](repeating: 0, count: count)
      let filled = try found.withUnsafeMutableBytes { try file.readFully(at: Int64(offset), into: $0) }
      try #require(filled == count)
      return found
    }

    /// Whether a mark is one ahead of its copy.
    func isOneAhead(_ first: Int, _ second: Int) throws -> Bool {
      let marks = try [first, second].map { at in
        try bytes(at: at, 4).withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) }
      }
      return marks[0] == marks[1] &+ 1
    }

    /// Other bytes than were there.
    func damage(at offset: Int, _ most: Int, _ random: inout SeededRandom) throws {
      var changed = try bytes(at: offset, Int.random(in: 1...most, using: &random))
      let before = changed
      switch Int.random(in: 0..<4, using: &random) {
      case 0: changed = changed.map { _ in 0xFF }
      case 1: changed = changed.map { _ in UInt8.random(in: 0...255, using: &random) }
      default:
        changed[Int.random(in: 0..<changed.count, using: &random)] ^= 1 << UInt8.random(in: 0..<8, using: &random)
      }
      if changed == before { changed[0] ^= 1 }
      try write(changed, at: offset)
    }
  }

  /// A READ as the kernel writes it.
  fileprivate static func read(_ unique: UInt64, offset: Int64 = 0) -> [UInt8] {
    withUnsafeBytes(of: (UInt32(80), UInt32(15), unique, 9 as UInt64, 0 as UInt64, 0 as UInt64)) { Array($0) }
      + withUnsafeBytes(of: (3 as UInt64, offset, UInt32(4096), UInt32(0), 0 as UInt64, 0 as UInt64)) { Array($0) }
  }

  /// What is as it was written is there for the next server, and what is not is refused by the number in it.
  @Test func whatIsIntactIsThereAndTheRestIsNot() throws {
    try Fuzzing("damaged session memories", cases: 400).run { random, place in
      var model = try Model(&random)
      for index in model.slots.keys.sorted() where random.oneIn(4) {
        // Its checksum or the request; not what is free between them. A slot whose length became 0 is as a free one.
        let at = SessionLayout.slotStart + index * SessionLayout.slotSize
        let part = random.oneIn(4) ? (4, 4) : (16, 80)
        try model.damage(at: at + part.0, part.1, &random)
        model.slots[index] = nil
      }
      for index in model.handles.keys.sorted() where random.oneIn(4) {
        let at = SessionLayout.handleStart + index * SessionLayout.handleSize
        try model.damage(at: at, 24, &random)
        model.handles[index] = nil
      }
      let memory = try model.next()
      let left = memory.leftRequests()
      let slots = left.requests.compactMap { if case .slot(let index) = $0 { index } else { nil } }
      let buffers = left.requests.compactMap { if case .buffer(let index) = $0 { index } else { nil } }
      #expect(slots == model.slots.keys.sorted(), "\(place)")
      #expect(buffers == model.buffers.keys.sorted(), "\(place)")
      for (index, request) in model.slots {
        #expect(memory.request(inSlot: index).map { Array($0) } == request, "\(place): slot \(index)")
      }
      #expect(left.damaged.isDisjoint(with: left.numbers), "\(place)")
      _ = HandleTable.dropDamaged(in: memory)
      #expect(
        HandleTable.leftOpen(in: memory) == model.handles.sorted { $0.key < $1.key }.map(\.value), "\(place)")
      // The places of what was damaged are free.
      let table = HandleTable(memory, pending: [])
      let mark = memory.handleMark
      for unique in 0..<(mark - model.handles.count) {
        #expect(table.add(OpenHandle(unique: UInt64(1000 + unique), inode: 3, backing: 0)) != nil)
      }
      #expect(memory.handleMark == mark && !(0..<mark).contains { !memory.isTaken(handle: $0) }, "\(place)")
      for index in 0..<memory.slotMark {
        #expect(memory.isTaken(slot: index) == (model.slots[index] != nil), "\(place): slot \(index)")
      }
    }
  }

  /// Without its marks and its INIT, a server cannot go on: it says so, and the helper answers the readers.
  @Test func aDamagedHeaderIsRefused() throws {
    try Fuzzing("damaged headers", cases: 200).run { random, place in
      let model = try Model(&random)
      // The magic number to the catalog's number, the second marks and the checksums, the INIT request.
      let part = [(0, 48), (48, 16), (64, 80)].randomElement(using: &random) ?? (0, 48)
      let at = Int.random(in: part.0..<part.0 + part.1, using: &random)
      let before = try model.bytes(at: at, 1)
      try model.write([before[0] ^ 1 << UInt8.random(in: 0..<8, using: &random)], at: at)
      // A mark that is one ahead of its copy is what a server leaves that is killed as it raises it.
      if try model.isOneAhead(SessionLayout.slotMarkAt, SessionLayout.secondSlotMarkAt)
        || model.isOneAhead(SessionLayout.handleMarkAt, SessionLayout.secondHandleMarkAt)
      {
        _ = try model.next()
      } else {
        #expect(throws: MountError.memory, "\(place): byte \(at)") { try model.next() }
      }
    }
  }

  /// The first server saved the kernel's INIT. One that follows it and finds none would wait for it for ever.
  @Test func aNextServerWithoutAnINITRefuses() throws {
    var random = SeededRandom(seed: 1)
    let model = try Model(&random)
    try model.write([0, 0, 0, 0], at: SessionLayout.initLengthAt)
    #expect(throws: MountError.memory) { try model.next() }
  }

  /// A thread's buffer has no checksum, as the kernel writes it. What no kernel sends does not get to libfuse.
  @Test func whatNoKernelSendsIsDropped() throws {
    func request(_ operation: UInt32, _ body: [UInt8], length: Int? = nil) -> [UInt8] {
      let header = (UInt32(length ?? 40 + body.count), operation, 44 as UInt64, 9 as UInt64, 0 as UInt64, 0 as UInt64)
      return withUnsafeBytes(of: header) { Array($0) } + body
    }
    func reading(_ offset: Int64, _ size: UInt32, _ operation: UInt32 = 15) -> [UInt8] {
      let place = withUnsafeBytes(of: (3 as UInt64, offset, size, UInt32(0), 0 as UInt64, 0 as UInt64)) { Array($0) }
      return request(operation, place)
    }
    let name = Array("film".utf8)
    let cases: [([UInt8], Bool)] = [
      (reading(0, 4096), true), (reading(1 << 60, 1 << 20), true), (reading(-1, 1), false),
      (reading(.max, 4096), false), (reading(0, .max), false), (reading(-4096, 4096, 28), false),
      (reading(0, 1 << 30, 44), false), (request(15, []), false), (request(1, name + [0]), true),
      (request(1, name), false), (request(1, []), false), (request(22, [0, 0, 0, 0, 0, 0, 0, 0] + name + [0]), true),
      (request(22, [0, 0, 0, 0, 0, 0, 0, 0] + name), false), (request(21, [0, 0, 0, 0, 0, 0, 0, 0] + name), false),
      (request(21, [0, 0, 0, 0, 0, 0, 0, 0] + name + [0, 7]), true), (request(12, name), false),
      (request(38, []), false), (request(26, [UInt8](repeating: 0, count: 64)), false), (request(41, []), false),
      (request(14, [0, 0, 0, 0, 0, 0, 0, 0]), true), (request(25, [UInt8](repeating: 0, count: 24)), true),
      (request(46, [UInt8](repeating: 0, count: 24)), true), (request(3, [], length: 39), false),
      (request(3, [], length: 9000), false),
    ]
    for (bytes, isTaken) in cases {
      let memory = try SessionMemory()
      bytes.withUnsafeBytes { memory.buffer(3).copyMemory(from: $0) }
      let left = memory.leftRequests()
      #expect(left.requests == (isTaken ? [.buffer(3)] : []), "\(bytes)")
      #expect(left.damaged == (isTaken ? [] : [44]), "\(bytes)")
      #expect((memory.request(inBuffer: 3) != nil) == isTaken, "\(bytes)")
    }
  }
}
