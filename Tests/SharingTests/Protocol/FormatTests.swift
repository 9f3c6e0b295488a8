import Base
import TestSupport
import Testing

@testable import Sharing

/// The small objects of the bucket: what is written is read again, and whatever else lies there is refused in bounded
/// time and space.
@Suite("Objects of a fleet's bucket") struct FormatTests {
  static let key = FleetKey(Array("a fleet's secret".utf8))
  static let entry = key.entry(Array(repeating: 7, count: 16))
  static let generation = key.generation(of: entry, validator: "\"v1\"", size: 1 << 30)

  private static var lease: Lease {
    var lease = Lease(node: 0xFEED, boot: .max)
    (lease.counter, lease.have, lease.at, lease.arrived, lease.rate) = (7, BlockSet(0..<5), 5, 1024, 51_200)
    return lease
  }
  private static let probe = ProbeSet(
    size: 100_000,
    pieces: [.init(offset: 0, bytes: [1, 2, 10, 0]), .init(offset: 99_000, bytes: Array(repeating: 10, count: 999))])
  private static let done = DoneObject(
    size: 9 << 20, crc32c: [1, 0xFFFF_FFFF, 0xABC], sha256: String(repeating: "ab", count: 32))
  private static let pointer = Pointer(
    generation: generation, size: 5, validator: "\"a\\n=b\\\\\"\nc", checked: 1_764_000_000)
  private static let head = GenerationHead(size: 1 << 40, validator: "\"x\"", type: "video/mp4")

  @Test func whatIsWrittenIsRead() throws {
    #expect(try Lease(Self.lease.bytes) == Self.lease)
    var released = Self.lease
    released.isReleased = true
    #expect(try Lease(released.bytes) == released)
    let claim = HelperClaim(node: 1, boot: 2)
    #expect(try HelperClaim(claim.bytes) == claim)
    #expect(try Pointer(Self.pointer.bytes) == Self.pointer)
    #expect(try GenerationHead(Self.head.bytes) == Self.head)
    var format = FleetFormat()
    (format.block, format.segment) = (1 << 20, 64)
    #expect(try FleetFormat(format.bytes(key: Self.key), key: Self.key) == format)
    let probe = try #require(Self.probe.bytes(of: Self.generation, key: Self.key))
    #expect(try ProbeSet(probe, of: Self.generation, key: Self.key) == Self.probe)
    let done = try #require(Self.done.bytes(of: Self.generation, key: Self.key))
    #expect(try DoneObject(done, of: Self.generation, key: Self.key) == Self.done)
    let label = BlockLabel(generation: Self.generation, index: 255, length: 4 << 20, crc32c: 0xBEEF)
    #expect(BlockLabel(label.text) == label)
  }

  /// The bytes that FLEET-FORMAT.md promises: what one version writes the next one has to read.
  @Test func theBytesStayAsTheyAre() {
    #expect(
      String(decoding: Self.lease.bytes, as: UTF8.self) == """
        mediafs lease 1
        node=000000000000feed
        boot=ffffffffffffffff
        counter=7
        have=000000000000001f
        at=5
        arrived=1024
        rate=51200
        state=held

        """)
    #expect(ObjectName.block(Self.generation, 42).text == "mfs1/b/\(Self.generation)/00000042")
    #expect(ObjectName.claim(Self.generation, 42, round: 1).text == "mfs1/e/\(Self.generation)/00000042-01")
    #expect(ObjectName.lease(Self.generation, segment: 3).text == "mfs1/l/\(Self.generation)/000003")
    #expect(ObjectName.node(day: 20_261_125, 0xFEED).text == "mfs1/n/20261125/000000000000feed")
    #expect(ObjectName.block(in: ObjectName.block(Self.generation, 42).text, of: Self.generation) == 42)
    #expect(ObjectName.block(in: ObjectName.block(Self.entry, 42).text, of: Self.generation) == nil)
    #expect(ObjectName.node(in: ObjectName.node(day: 20_261_125, 3).text, of: 20_261_125) == 3)
  }

  /// The vectors of RFC 4231 hold for the HMAC: 1, 2 and 6 (a key longer than a block).
  @Test func identitiesAreHMACs() {
    let short = FleetKey(Array(repeating: 0x0B, count: 20))
    #expect(
      short.hmac(Array("Hi There".utf8)).map { UInt64($0).hex(digits: 2) }.joined().hasPrefix(
        "b0344c61d8db38535ca8afceaf0bf12b"))
    let text = FleetKey(Array("Jefe".utf8)).hmac(Array("what do ya want for nothing?".utf8))
    #expect(text.map { UInt64($0).hex(digits: 2) }.joined().hasPrefix("5bdcc146bf60754e6a042426089575c7"))
    let long = FleetKey(Array(repeating: 0xAA, count: 131))
    let message = Array("Test Using Larger Than Block-Size Key - Hash Key First".utf8)
    #expect(long.hmac(message).map { UInt64($0).hex(digits: 2) }.joined().hasPrefix("60e431591ee0b67f0d8a26aacbf5b77f"))
    let other = FleetKey(Array("another secret".utf8))
    #expect(other.entry(Array(repeating: 7, count: 16)) != Self.entry)
    #expect(Self.key.generation(of: Self.entry, validator: "\"v1\"", size: 1) != Self.generation)
    #expect(Self.key.generation(of: Self.entry, validator: "\"v2\"", size: 1 << 30) != Self.generation)
  }

  @Test func anotherVersionAndAnotherKeyAreRefused() {
    let bytes = FleetFormat().bytes(key: Self.key)
    #expect(throws: ObjectRefusal.otherKey) { try FleetFormat(bytes, key: FleetKey([1])) }
    let newer = Array(String(decoding: bytes, as: UTF8.self).replacing("fleet 1", with: "fleet 2").utf8)
    #expect(throws: ObjectRefusal.version("2")) { try FleetFormat(newer, key: Self.key) }
    #expect(throws: ObjectRefusal.notOurs) { try FleetFormat(Array("<Error/>".utf8), key: Self.key) }
    #expect(throws: ObjectRefusal.notOurs) { try FleetFormat([], key: Self.key) }
    let added = Array((String(decoding: bytes, as: UTF8.self) + "new=field\n").utf8)
    #expect(throws: Never.self) { try FleetFormat(added, key: Self.key) }
    #expect(throws: ObjectRefusal.damaged("text")) { try FleetFormat(added + added, key: Self.key) }
    let probe = Self.probe.bytes(of: Self.generation, key: Self.key) ?? []
    #expect(throws: ObjectRefusal.damaged("mac")) { try ProbeSet(probe, of: Self.entry, key: Self.key) }
    #expect(throws: ObjectRefusal.damaged("mac")) { try ProbeSet(probe, of: Self.generation, key: FleetKey([1])) }
    let large = DoneObject(size: 1, crc32c: Array(repeating: 1, count: 1 << 20))
    #expect(large.bytes(of: Self.generation, key: Self.key) == nil)
  }

  @Test("A pointer's size is at most an exbibyte, so that sums of offsets do not overflow")
  func pointersAreBounded() throws {
    func pointer(_ size: Int64) -> [UInt8] {
      Pointer(generation: Self.generation, size: size, validator: "\"v\"", checked: 1).bytes
    }
    #expect(try Pointer(pointer(1 << 60)).size == 1 << 60)
    for size: Int64 in [(1 << 60) + 1, .max] {
      #expect(throws: ObjectRefusal.damaged("size")) { try Pointer(pointer(size)) }
    }
  }

  @Test func mutatedObjectsAreReadOrRefused() {
    let words = tokens(
      "\n", "=", "\\", "mediafs lease 1\n", "node=", "have=", "state=held\n", "piece.0=", " ", "-1", "0x1",
      "18446744073709551615", "99999999999999999999", "\u{0}", "é")
    let objects = [
      Self.lease.bytes, HelperClaim(node: 1, boot: 2).bytes, Self.pointer.bytes, Self.head.bytes,
      FleetFormat().bytes(key: Self.key), Self.probe.bytes(of: Self.generation, key: Self.key) ?? [],
      Self.done.bytes(of: Self.generation, key: Self.key) ?? [],
    ]
    var taken = 0
    Fuzzing("fleet objects", cases: 4000).run { random, place in
      let which = place.index % objects.count
      let bytes = random.mutated(objects[which], tokens: words)
      do {
        switch which {
        // What is understood is written as the same value.
        case 0: #expect(try Lease(try Lease(bytes).bytes) == Lease(bytes), "\(place)")
        case 1: _ = try HelperClaim(bytes)
        case 2: #expect(try Pointer(try Pointer(bytes).bytes) == Pointer(bytes), "\(place)")
        case 3: _ = try GenerationHead(bytes)
        case 4: _ = try FleetFormat(bytes, key: Self.key)
        case 5: #expect(try ProbeSet(bytes, of: Self.generation, key: Self.key) == Self.probe, "\(place)")
        default: #expect(try DoneObject(bytes, of: Self.generation, key: Self.key) == Self.done, "\(place)")
        }
        taken += 1
      } catch {
        #expect(error is ObjectRefusal, "\(place): \(error)")
      }
      _ = BlockLabel(
        String(
          decoding: random.mutated(Array("1 \(Self.generation) 7 4194304 0000beef".utf8), tokens: words), as: UTF8.self)
      )
    }
    // A mutation in the value of a text, or none that counts.
    #expect(taken > 0)
  }
}
