import Base
import Glibc
import TestSupport
import Testing

/// Garbage in the session memory, as a server leaves it that writes where it should not. Only root can open the
/// helper's memory.
@Suite(.serialized, .enabled(if: TestUser.canSwitch, "only root can open the memory of the helper"))
struct GarbageTests {
  private static let rounds = 8
  private static let sizes: [Int64] = [300_000, 70_000, 200_000]

  /// The next server serves the right bytes, or refuses. It neither dies of what it finds nor hangs, and a reader whose
  /// request is intact gets its bytes.
  @Test func theNextServerServesOrRefuses() throws {
    var random = SeededRandom.fromEnvironment(for: "garbage in the session memory")
    try withWatchdog(200) {
      try withOrigin { origin in
        var shelf = Shelf(origin: origin)
        for size in Self.sizes { _ = shelf.add(size: size) }
        try withServedStore { store in
          try store.list(Self.sizes.indices.map { shelf.line($0) })
          try #require(try store.start(["--continue", "never"], shimmed: false), "\(store.errors)")
          for index in 0..<2 { #expect(shelf.isRight(try store.read(Shelf.name(index)), index, at: 0)) }
          origin.fault(.stallBeforeHeaders, path: Shelf.path(2))
          let right = try store.folder.write(
            Pattern.bytes(name: Shelf.path(2), offset: 0, count: Int(Self.sizes[2])), to: "right")
          let reader = try BackgroundProcess(["cmp", "\(store.mountpoint)/\(Shelf.name(2))", right])
          try waitUntil(timeout: 20, "a reader that waits") { !origin.log.entries(of: Shelf.path(2)).isEmpty }
          let mayRefuse = try goThroughRounds(store, shelf, reader, &random)
          origin.clearFaults(path: Shelf.path(2))
          let end = try #require(reader.wait(timeout: 60), "the reader waits for ever: \(store.errors)")
          #expect(end.succeeded || mayRefuse && end.errors.contains("Input/output error"), "\(random.seed): \(end)")
          let deaths = store.errors.matches(of: #/killed by signal (\d+)/#).map { String($0.1) }
          #expect(deaths == [String](repeating: "9", count: Self.rounds), "\(random.seed): \(store.errors)")
          #expect(!store.errors.contains("hangs"), "\(store.errors)")
          try refuseTheMount(store, &random)
        }
      }
    }
  }

  /// Each round leaves other garbage. `reader` waits for a file all the while. Returns whether requests may be refused.
  private func goThroughRounds(
    _ store: ServedStore, _ shelf: Shelf, _ reader: BackgroundProcess, _ random: inout SeededRandom
  ) throws -> Bool {
    let held = try FileDescriptor.open("\(store.mountpoint)/\(Shelf.name(0))", O_RDONLY)
    var mayRefuse = false
    for round in 0..<Self.rounds {
      let isLate = round >= Self.rounds - 3
      try takeOver(store) { memory in
        for _ in 0..<Int.random(in: 1...3, using: &random) {
          // The last ones: what refuses or breaks a file does so until the mount ends.
          switch Int.random(in: 0..<(isLate ? 6 : 4), using: &random) {
          case 0: try memory.fillSlots(&random)
          case 1: try memory.fillBuffers(&random)
          case 2: try memory.fillHandles(&random)
          case 3: try memory.fillRecords(&random)
          case 4:
            try memory.damageHandles(&random)
            mayRefuse = true
          default:
            try memory.fillSuspects(&random)
            mayRefuse = true
          }
        }
      }
      let place = "round \(round) of \(random.seed)"
      for index in 0..<2 { expectRight(store, shelf, index, mayRefuse: mayRefuse, place) }
      #expect(reader.isRunning || mayRefuse, "\(place): the reader that waits has ended: \(reader.standardErrorSoFar)")
    }
    posix_fadvise(held.rawValue, 0, 0, POSIX_FADV_DONTNEED)
    do throws(Errno) {
      #expect(shelf.isRight(try readPart(held, at: 0, count: 300_000), 0, at: 0))
    } catch {
      #expect(mayRefuse, "\(error)")
    }
    return mayRefuse
  }

  /// A damaged header: the server says so and ends, and the mount can be ended as ever.
  private func refuseTheMount(_ store: ServedStore, _ random: inout SeededRandom) throws {
    try takeOver(store, serves: false) { try $0.damageHeader(&random) }
    try waitUntil(timeout: 30, "the refusal: \(store.errors)") { store.errors.contains("or is damaged") }
    try store.unmount()
  }

  /// Kills the server, changes the memory while none runs, and waits for the next one.
  private func takeOver(_ store: ServedStore, serves: Bool = true, _ change: (SessionFile) throws -> Void) throws {
    let (served, last) = (store.timesServed, try #require(store.server))
    store.holdHelper()
    store.killServer()
    try waitUntil(timeout: 30, "the server's end") { store.hasEnded(last) }
    let helper = try #require(store.helper)
    defer { Glibc.kill(helper, SIGCONT) }
    try change(SessionFile(ofHelper: helper))
    Glibc.kill(helper, SIGCONT)
    if serves {
      try waitUntil(timeout: 60, "the next server: \(store.errors)") { store.timesServed > served }
    }
  }

  private func expectRight(
    _ store: ServedStore, _ shelf: Shelf, _ index: Int, mayRefuse: Bool, _ place: String
  ) {
    do throws(Errno) {
      try store.forgetPages(Shelf.name(index))
      let bytes = try store.read(Shelf.name(index))
      #expect(bytes.count == Int(Self.sizes[index]) && shelf.isRight(bytes, index, at: 0), "\(place): wrong bytes")
    } catch {
      #expect(mayRefuse && [EIO, ESTALE].contains(error.rawValue), "\(place): \(error)\n\(store.errors)")
    }
  }
}

/// The session memory of a mount whose server is dead (mount-helper/PROTOCOL.md).
private struct SessionFile {
  private let path: String
  private static let (buffers, slots, handles, suspects, records) = (4096, 135_168, 2_232_320, 1088, 2048)

  init(ofHelper helper: pid_t) throws {
    let found = try Command.succeed(["find", "/proc/\(helper)/fd", "-lname", "*mediafs session*"])
    path = String(try #require(found.split(separator: "\n").first))
  }

  private func read(at offset: Int, _ count: Int) throws -> [UInt8] {
    try readPart(FileDescriptor.open(path, O_RDONLY), at: Int64(offset), count: count)
  }

  private func write(_ bytes: [UInt8], at offset: Int) throws {
    let file = try FileDescriptor.open(path, O_RDWR)
    try bytes.withUnsafeBytes { try file.writeFully($0, at: Int64(offset)) }
  }

  private func number(at offset: Int) throws -> UInt32 {
    try read(at: offset, 4).withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) }
  }

  private func isFree(_ offset: Int) throws -> Bool { try number(at: offset) == 0 }

  /// Raises both copies of a mark, so that what lies below it is looked at.
  private func raiseMark(at offset: Int, _ copy: Int, to mark: UInt32) throws {
    guard try number(at: offset) < mark else { return }
    for place in [offset, copy] { try write(withUnsafeBytes(of: mark) { Array($0) }, at: place) }
  }

  private static func garbage(_ count: Int, _ random: inout SeededRandom) -> [UInt8] {
    let kind = Int.random(in: 0..<3, using: &random)
    return (0..<count).map { _ in kind == 0 ? 0xFF : UInt8.random(in: 0...(kind == 1 ? 3 : 255), using: &random) }
  }

  /// A request with numbers that a kernel might send, and others. The kernel has not given its number.
  private static func request(_ random: inout SeededRandom) -> [UInt8] {
    let extremes: [UInt64] = [0, 1, 2, 3, 4, 5, 4096, 1 << 31, 1 << 32 - 1, 1 << 62, 1 << 63 - 4096, 1 << 63, .max]
    func any() -> UInt64 { extremes.randomElement(using: &random) ?? 0 }
    let words = (0..<Int.random(in: 0...8, using: &random)).map { _ in any() }
    let operations: [UInt32] = Array(0...54) + [1, 3, 14, 15, 15, 15, 18, 22, 28, 44, 4096, .max]
    let length = random.oneIn(8) ? UInt32(truncatingIfNeeded: any()) : UInt32(40 + 8 * words.count)
    let unique = 1 << 40 | UInt64(random.next() >> 32) << 1
    let header = (length, operations.randomElement(using: &random) ?? 0, unique, any(), any(), any())
    var bytes = withUnsafeBytes(of: header) { Array($0) }
    for word in words { withUnsafeBytes(of: word) { bytes += $0 } }
    return random.oneIn(4) ? bytes + [UInt8](repeating: 0xFF, count: 8192 - bytes.count) : bytes
  }

  func fillSlots(_ random: inout SeededRandom) throws {
    try raiseMark(at: 16, 48, to: 1000)
    for index in 0..<1000 where try isFree(Self.slots + index * 128) && random.oneIn(2) {
      var bytes = random.oneIn(2) ? Self.garbage(128, &random) : [80, 0, 0, 0] + [UInt8](repeating: 0, count: 12)
      if bytes.count < 128 { bytes += Self.request(&random).prefix(112) }
      try write(bytes, at: Self.slots + index * 128)
    }
  }

  func fillBuffers(_ random: inout SeededRandom) throws {
    for index in 0..<16 where try isFree(Self.buffers + index * 8192) {
      try write(
        random.oneIn(4) ? Self.garbage(8192, &random) : Self.request(&random), at: Self.buffers + index * 8192)
    }
  }

  func fillHandles(_ random: inout SeededRandom) throws {
    try raiseMark(at: 20, 52, to: 2000)
    for index in 0..<2000 where try isFree(Self.handles + index * 32) && random.oneIn(4) {
      try write(Self.garbage(32, &random), at: Self.handles + index * 32)
    }
  }

  /// Those in use, too.
  func damageHandles(_ random: inout SeededRandom) throws {
    for index in 0..<Int(try number(at: 20)) where random.oneIn(2) {
      try write(Self.garbage(Int.random(in: 1...24, using: &random), &random), at: Self.handles + index * 32)
    }
  }

  func fillSuspects(_ random: inout SeededRandom) throws {
    let operations: [UInt32] = [1, 3, 14, 15, 22, 27, 28, 44]
    for index in 0..<8 {
      let first = random.oneIn(2) ? random.next() : 0
      let suspect = (
        operations.randomElement(using: &random) ?? 1, UInt32.random(in: 0...3, using: &random),
        UInt64.random(in: 0...8, using: &random), first, first &+ random.next() >> 1
      )
      try write(
        random.oneIn(4) ? Self.garbage(32, &random) : withUnsafeBytes(of: suspect) { Array($0) },
        at: Self.suspects + index * 32)
    }
  }

  func fillRecords(_ random: inout SeededRandom) throws {
    try write(Self.garbage(2048, &random), at: Self.records)
  }

  /// The kernel's INIT, the marks, or what the mount began with.
  func damageHeader(_ random: inout SeededRandom) throws {
    let at = [12, 17, 21, 24, 32, 40, 64, 72].randomElement(using: &random) ?? 12
    try write([try read(at: at, 1)[0] ^ 0x55], at: at)
  }
}
