import Base
import Glibc
import TestSupport
import Testing

@testable import Sharing

/// A bucket that a fleet has filled, as commands find it. Blocks have 64 KiB.
struct CareBucket {
  static let block = 64 << 10
  static let key = FormatTests.key

  let calls: StoreCalls
  var format = FleetFormat()

  init(_ calls: StoreCalls) throws {
    self.calls = calls
    format.block = Self.block
    try write(ObjectName.format.text, format.bytes(key: Self.key))
  }

  func write(_ key: String, _ bytes: [UInt8], meta: [String: String] = [:]) throws {
    let outcome = calls.put(key, bytes, meta: meta)
    try #require(outcome.isWritten, "\(key): \(outcome)")
  }

  /// The bytes of a block; `number` tells generations apart.
  static func bytes(_ number: UInt8, _ index: Int, count: Int = block) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ index &+ Int(number) &* 31) }
  }

  static func meta(_ id: FleetID, _ index: Int, _ bytes: [UInt8]) -> [String: String] {
    bytes.withUnsafeBytes { raw in
      [
        "mfs": BlockLabel(generation: id, index: index, length: bytes.count, crc32c: CRC32C(raw).value).text,
        "mfs-pieces": PieceSums(raw, piece: block / PieceSums.count).text,
      ]
    }
  }

  static func entry(_ number: UInt8) -> FleetID { key.entry(Array(repeating: number, count: 16)) }

  static func size(_ blocks: Int) -> Int64 { Int64(blocks * block - 100) }

  static func id(_ number: UInt8, blocks: Int) -> FleetID {
    key.generation(of: entry(number), validator: "\"v\(number)\"", size: size(blocks))
  }

  /// A file of so many blocks, the last one short, of which those of `stored` are there.
  @discardableResult
  func addFile(_ number: UInt8, blocks: Int = 3, stored: Range<Int>? = nil, isDone: Bool = true) throws -> FleetID {
    let id = Self.id(number, blocks: blocks)
    let size = Self.size(blocks)
    let validator = "\"v\(number)\""
    try write(ObjectName.head(id).text, GenerationHead(size: size, validator: validator).bytes)
    try write(
      ObjectName.pointer(Self.entry(number)).text,
      Pointer(generation: id, size: size, validator: validator, checked: 1).bytes)
    var sums: [UInt32] = []
    for index in stored ?? 0..<blocks {
      let bytes = Self.bytes(number, index, count: index == blocks - 1 ? Self.block - 100 : Self.block)
      sums.append(bytes.withUnsafeBytes { CRC32C($0).value })
      try write(ObjectName.block(id, index).text, bytes, meta: Self.meta(id, index, bytes))
    }
    guard stored == nil, isDone else { return id }
    let done = try #require(DoneObject(size: size, crc32c: sums).bytes(of: id, key: Self.key))
    try write(ObjectName.done(id).text, done)
    let probe = ProbeSet(size: size, pieces: [.init(offset: 0, bytes: [1, 2, 3])])
    try write(ObjectName.probe(id).text, try #require(probe.bytes(of: id, key: Self.key)))
    return id
  }

  func addLease(_ id: FleetID, isReleased: Bool = false) throws {
    var lease = Lease(node: 0xFEED, boot: 1)
    (lease.have, lease.at, lease.rate, lease.isReleased) = (BlockSet(0..<1), 1, 2048, isReleased)
    try write(ObjectName.lease(id, segment: 0).text, lease.bytes)
  }

  /// This day by this machine's clock, so many days ago.
  static func day(ago: Int64 = 0) -> Int { StoreDay.number(of: Int64(time(nil)) - ago * 86_400) }

  func addSeen(_ id: FleetID, ago: Int64 = 0) throws {
    try write(ObjectName.seen(day: Self.day(ago: ago), id).text, DayMark.seen.bytes)
  }

  func addNode(_ node: UInt64, ago: Int64 = 0) throws {
    try write(ObjectName.node(day: Self.day(ago: ago), node).text, DayMark.node.bytes)
  }

  /// The bucket as a command opens it.
  func opened(inDays days: Int64 = 0) throws -> FleetBucket {
    try FleetBucket(calls, key: Self.key, at: days == 0 ? nil : Int64(time(nil)) + days * 86_400)
  }

  func check(repairs: Bool = false) throws -> (sums: FleetCheck.Sums, findings: [String: FleetCheck.Finding]) {
    let found = Lock<[String: FleetCheck.Finding]>([:])
    let sums = try FleetCheck(
      opened(), repairs: repairs, found: { finding in found.withLock { $0[finding.key] = finding } }, progress: { _ in }
    ).run()
    return (sums, found.withLock { $0 })
  }

  func collect(days: Int = 30, inDays: Int64 = 0, isDryRun: Bool = false) throws -> FleetCollection.Result {
    try FleetCollection(opened(inDays: inDays), days: days, isDryRun: isDryRun) { _ in }.run()
  }

  /// The keys of all that is there.
  func keys() throws -> Set<String> {
    var keys: Set<String> = []
    try opened().pages("mfs1/") { page throws(FleetCareError) in keys.formUnion(page.entries.map(\.key)) }
    return keys
  }
}

/// Lends a bucket in a store in memory.
func withCareBucket<Result>(_ body: (CareBucket, FakeStore) throws -> Result) throws -> Result {
  try withFakeStore { store in
    try withCalls(store.endpoint) { calls in try body(try CareBucket(calls), store) }
  }
}
