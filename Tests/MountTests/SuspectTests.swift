import Base
import CSystem
import Glibc
import Testing

@testable import Mount

@Suite("Requests that kill their server")
struct SuspectTests {
  /// A memory that servers follow one another in.
  private struct Servers: ~Copyable {
    let file = FileDescriptor(owning: csystem_make_memory_file("suspects"))

    init() throws { try file.truncate(to: Int64(SessionLayout.size)) }

    /// The next server.
    func next() throws -> SessionMemory { try SessionMemory(FileDescriptor(owning: dup(file.rawValue))) }

    /// Thread `index` has raised a signal.
    func die(_ index: Int) throws {
      try withUnsafeBytes(of: UInt32(SIGSEGV)) {
        try file.writeFully($0, at: Int64(SessionLayout.threadStart + index * SessionLayout.threadSize + 12))
      }
    }
  }

  /// A request as the kernel writes it.
  private static func request(_ operation: UInt32, inode: UInt64 = 9, unique: UInt64 = 2, _ body: [UInt64]) -> [UInt8] {
    var bytes: [UInt8] = []
    withUnsafeBytes(of: (UInt32(40 + 8 * body.count), operation, unique, inode, 0 as UInt64, 0 as UInt64)) {
      bytes += $0
    }
    for word in body { withUnsafeBytes(of: word) { bytes += $0 } }
    return bytes
  }

  private static func read(_ range: Range<UInt64>, inode: UInt64 = 9, unique: UInt64 = 2) -> [UInt8] {
    request(15, inode: inode, unique: unique, [77, range.lowerBound, UInt64(range.count), 0, 0])
  }

  private static func suspect(_ request: [UInt8]) -> Suspect? { request.withUnsafeBytes { Suspect($0) } }

  private func put(_ request: [UInt8], _ memory: SessionMemory, inBuffer index: Int) {
    request.withUnsafeBytes { memory.buffer(index).copyMemory(from: $0) }
  }

  @Test("What a thread served as it raised a signal is refused after the second time")
  func secondTime() throws {
    let servers = try Servers()
    put(Self.read(0..<131_072), try servers.next(), inBuffer: 3)
    try servers.die(3)
    let second = try servers.next()
    #expect(second.suspect(0)?.deaths == 1 && second.refused.isEmpty)
    // Another thread serves what it left; its own buffer has something else.
    put(Self.read(0..<4096, inode: 5), second, inBuffer: 1)
    put(Self.read(65_536..<131_072, unique: 4), second, inBuffer: 12)
    second.note(request: second.request(inBuffer: 12), ofThread: 1)
    try servers.die(1)
    let third = try servers.next()
    let refused = try #require(third.refused.first)
    #expect(third.refused.count == 1 && refused.inode == 9 && refused.deaths == 2)
    #expect(refused.place == 65_536..<131_072, "what both asked for")
    for (range, inode, isRefused) in [
      (0..<65_536, 9, false), (65_535..<65_537, 9, true), (131_071..<200_000, 9, true), (131_072..<140_000, 9, false),
      (65_536..<131_072, 8, false),
    ] as [(Range<UInt64>, UInt64, Bool)] {
      #expect(Self.suspect(Self.read(range, inode: inode)).map { refused.overlaps($0) } == isRefused, "\(range)")
    }
    #expect(try servers.next().refused == third.refused, "it stays so")
  }

  @Test("What others did, or what waits, is never counted")
  func others() throws {
    let servers = try Servers()
    for round in 0..<4 {
      let memory = try servers.next()
      // Busy and parked, and no thread raised a signal.
      put(Self.read(0..<4096), memory, inBuffer: 0)
      #expect(Self.read(4096..<8192).withUnsafeBytes { memory.keep($0, inSlot: round) })
      memory.raiseSlotMark(to: round + 1)
      // A thread that served nothing did.
      try servers.die(2)
      // A thread that served what has no answer did.
      put(Self.request(2, [1]), memory, inBuffer: 4)
      try servers.die(4)
    }
    let memory = try servers.next()
    #expect((0..<SessionLayout.suspectCount).allSatisfy { memory.suspect($0) == nil })
  }

  @Test("What the helper has answered is counted, and not served again")
  func answered() throws {
    let servers = try Servers()
    let first = try servers.next()
    put(Self.read(0..<4096, unique: 0), first, inBuffer: 3)
    put(Self.read(4096..<8192, unique: 6), first, inBuffer: 4)
    try servers.die(3)
    let second = try servers.next()
    #expect(second.suspect(0)?.place == 0..<4096 && second.suspect(1) == nil)
    let left = second.leftRequests()
    #expect(left.requests == [.buffer(4)] && left.numbers == [6])
    #expect(second.request(inBuffer: 3) == nil)
  }

  @Test("Requests of one operation for one inode are told apart")
  func apart() throws {
    let same = [
      (Self.request(1, [0x66_696C_6D]), Self.request(1, unique: 8, [0x66_696C_6D])),
      (Self.request(22, [0, 0x6161]), Self.request(22, [255, 0x6161])), (Self.request(3, [1]), Self.request(3, [2])),
      (Self.request(28, [5, 128, 4096]), Self.request(28, [6, 128, 8192])),
    ]
    let other = [
      (Self.request(1, [0x66_696C_6D]), Self.request(1, [0x66_696C_6E])),
      (Self.request(1, [0x66_696C_6D]), Self.request(1, inode: 7, [0x66_696C_6D])),
      (Self.request(22, [0, 0x6161]), Self.request(22, [0, 0x6162])),
      (Self.request(28, [5, 128, 4096]), Self.request(28, [5, 129, 4096])),
      (Self.request(3, [1]), Self.request(14, [1])),
    ]
    for (pairs, expected) in [(same, true), (other, false)] {
      for (one, two) in pairs {
        let (one, two) = (try #require(Self.suspect(one)), try #require(Self.suspect(two)))
        #expect(one.overlaps(two) == expected, "\(one) \(two)")
      }
    }
    #expect(Self.suspect(Self.read(.max - 1 ..< .max)) != nil)
    #expect(Self.suspect([1, 2, 3]) == nil)
  }

  @Test("There is room for those that killed twice")
  func full() throws {
    let servers = try Servers()
    for inode in 1...20 as ClosedRange<UInt64> {
      for _ in 0..<(inode <= 3 ? 2 : 1) {
        put(Self.read(0..<4096, inode: inode), try servers.next(), inBuffer: 0)
        try servers.die(0)
      }
    }
    #expect(try servers.next().refused.map(\.inode) == [1, 2, 3])
  }
}
