import Base
import Glibc
import TestSupport
import Testing

@testable import Sharing

/// What `mediafs share` does with a bucket.
@Suite("Care for a fleet's bucket") struct FleetCareTests {
  private static let whole = "fleet/p/"

  @Test func theCensusCountsAll() throws {
    try withCareBucket { bucket, store in
      let (first, second) = (try bucket.addFile(1), try bucket.addFile(2, stored: 0..<1))
      try bucket.addLease(second)
      try bucket.addLease(first, isReleased: true)
      try bucket.addNode(1)
      try bucket.addNode(2)
      try bucket.addNode(3, ago: 1)
      try bucket.addSeen(first)
      store.setObject("\(Self.whole)mfs1/strange", [1])
      store.setObject("\(Self.whole)elsewhere", [1])
      let opened = try bucket.opened()
      var census = try FleetCensus(opened) { _ in }
      #expect(census[.blocks] == FleetTally(objects: 4, bytes: CareBucket.size(3) + Int64(CareBucket.block)))
      let counts: [ObjectName.Kind: Int64] = [
        .heads: 2, .pointers: 2, .done: 1, .probes: 1, .leases: 2, .seen: 1, .nodes: 3, .format: 1, .foreign: 1,
        .claims: 0, .conditions: 0,
      ]
      for (kind, count) in counts { #expect(census[kind].objects == count, "\(kind)") }
      #expect(census.generations == 2 && census.incompleteGenerations == 1)
      #expect(
        census.incomplete == [
          .init(
            generation: second.description, blocks: 1, bytes: Int64(CareBucket.block), size: CareBucket.size(3))
        ])
      #expect(
        census.leases == [
          .init(generation: second.description, segment: 0, node: "000000000000feed", blocks: 1, at: 1, rate: 2048)
        ])
      #expect(census.leasesHeld == 1 && census.nodesToday == 2 && census.keepsConditions == nil)
      census.probe(opened)
      #expect(census.keepsConditions == true && census.conditions.isEmpty)
      store.configure { $0.keepsConditions = false }
      census.probe(opened)
      #expect(census.keepsConditions == false && !census.conditions.isEmpty)
      store.configure { $0.fault = { $0.method == "PUT" ? .refuse(403, code: "AccessDenied") : nil } }
      census.probe(opened)
      #expect(census.keepsConditions == nil && census.conditions.first?.contains("may not do this") == true)
      // What nobody renews is held by nobody.
      store.configure { $0.fault = nil }
      store.age(days: 1)
      #expect(try FleetCensus(opened) { _ in }.leases.isEmpty)
    }
  }

  @Test("Sizes that a store claims beyond all sums are counted as the greatest sum")
  func hugeSizes() throws {
    try withCareBucket { bucket, store in
      let id = CareBucket.id(1, blocks: 2)
      let opened = try bucket.opened()
      let entries = [0, 1].map { index in
        "<Contents><Key>p/\(ObjectName.block(id, index).text)</Key><Size>\(Int64.max)</Size></Contents>"
      }
      let list = "<ListBucketResult>\(entries.joined())</ListBucketResult>"
      store.configure {
        $0.fault = { seen in
          guard seen.target.contains("list-type") else { return nil }
          return .raw("HTTP/1.1 200 OK\r\nContent-Length: \(list.utf8.count)\r\n\r\n\(list)")
        }
      }
      let census = try FleetCensus(opened) { _ in }
      #expect(census[.blocks] == FleetTally(objects: 2, bytes: .max) && census.incomplete.map(\.bytes) == [.max])
      var result = FleetCollection.Result()
      for kind in ["blocks", "heads"] { result.removed[kind] = FleetTally(objects: 1, bytes: .max) }
      #expect(result.sum == FleetTally(objects: 2, bytes: .max))
    }
  }

  @Test("Lists of several pages are read to their end")
  func pages() throws {
    try withCareBucket { bucket, store in
      let id = CareBucket.id(9, blocks: 2500)
      for index in 0..<2500 { store.setObject("\(Self.whole)\(ObjectName.block(id, index).text)", [1]) }
      let census = try FleetCensus(try bucket.opened()) { _ in }
      #expect(census[.blocks] == FleetTally(objects: 2500, bytes: 2500) && census.generations == 1)
      store.age(days: 40)
      let result = try bucket.collect()
      #expect(result.removed["blocks"]?.objects == 2500 && result.generations == 1)
      #expect(try bucket.keys() == ["mfs1/format"])
    }
  }

  // MARK: Check

  /// A fault that is put into the file 1, and the words of the finding; nil: there is none.
  private struct Fault: Sendable {
    var name: String
    var key: ObjectName
    var words: String
    var isRemovable = true
    var put: @Sendable (FakeStore, String) throws -> Void
  }

  private static let id = CareBucket.id(1, blocks: 3)
  private static let other = CareBucket.id(2, blocks: 3)

  /// Metadata as the store has them, with the checksum of the whole object that the client compares itself.
  private static func stored(_ meta: [String: String], _ bytes: [UInt8]) -> [String: String] {
    var all = ["x-amz-meta-crc32c": bytes.withUnsafeBytes { CRC32C($0).text }]
    for (name, value) in meta { all["x-amz-meta-\(name)"] = value }
    return all
  }

  private static func block(
    _ name: String, _ words: String, index: Int = 1, _ bytes: [UInt8], meta: [String: String]
  ) -> Fault {
    Fault(name: name, key: .block(id, index), words: words) { store, key in
      store.setObject(key, bytes, meta: stored(meta, bytes))
    }
  }

  private static func text(_ name: String, _ key: ObjectName, _ words: String, _ bytes: [UInt8], stays: Bool = false)
    -> Fault
  {
    Fault(name: name, key: key, words: words, isRemovable: !stays) { store, key in store.setObject(key, bytes) }
  }

  private static let right = CareBucket.bytes(1, 1)
  private static let wrong = right.map { $0 ^ 1 }
  private static let faults: [Fault] = [
    Fault(name: "a bit", key: .block(id, 1), words: "is not what was stored") { store, key in
      let meta = store.objects[key]?.meta ?? [:]
      store.setObject(key, wrong, meta: meta)
    },
    block("other bytes under the old label", "its bytes are not", wrong, meta: CareBucket.meta(id, 1, right)),
    block("no label", "do not say which block", right, meta: [:]),
    block("a block of another place", "it is the block 0", right, meta: CareBucket.meta(id, 0, right)),
    block("a block of another file", "of the generation \(other)", right, meta: CareBucket.meta(other, 1, right)),
    block(
      "no pieces", "lack the checksums of its pieces", right,
      meta: CareBucket.meta(id, 1, right).filter { $0.key == "mfs" }),
    block(
      "pieces of other bytes", "the checksums of its pieces", right,
      meta: CareBucket.meta(id, 1, right).merging(CareBucket.meta(id, 1, wrong)) { right, wrong in
        right.count > 200 ? wrong : right
      }),
    block(
      "a short block", "a file of", Array(right.dropLast()), meta: CareBucket.meta(id, 1, Array(right.dropLast()))),
    block("a long block", "longer than a block", right + right, meta: CareBucket.meta(id, 1, right + right)),
    block("right but for its digests", "not the one among", wrong, meta: CareBucket.meta(id, 1, wrong)),
    block("behind the end", "has 0 there", index: 7, right, meta: CareBucket.meta(id, 7, right)),
    text(
      "a pointer to another version", .pointer(CareBucket.entry(1)), "does not follow",
      Pointer(generation: other, size: 1, validator: "\"v1\"", checked: 1).bytes),
    text("a pointer that is cut", .pointer(CareBucket.entry(1)), "damaged", Array("mediafs pointer 1\ngene".utf8)),
    text("a head of a million fields", .head(id), "longer than 4096", Array(repeating: 0x0A, count: 1 << 20)),
    text("a head of hostile text", .head(id), "damaged", Array("mediafs head 1\nsize=-1\nvalidator=\u{1B}[2J\n".utf8)),
    text("digests of nobody", .done(id), "damaged", Array("mediafs done 1\nsize=5\ncrc32c=\nmac=00\n".utf8)),
    text("a probe set of nobody", .probe(id), "damaged", Array("mediafs probe 1\nsize=5\nmac=00\n\nabc".utf8)),
    text("a lease that is none", .lease(id, segment: 0), "damaged", Array("mediafs lease 1\nnode=x\n".utf8)),
    text(
      "a head of a later version", .head(id), "version 2", Array("mediafs head 2\nsize=1\n".utf8), stays: true),
    text("a head of another program", .head(id), "did not write it", Array("{}".utf8), stays: true),
  ]

  @Test func aSoundBucketHasNoFindings() throws {
    try withCareBucket { bucket, _ in
      let id = try bucket.addFile(1)
      try bucket.addFile(2, stored: 1..<3)
      try bucket.addLease(id)
      try bucket.addSeen(id)
      try bucket.addNode(1)
      try bucket.write(ObjectName.claim(id, 1, round: 0).text, HelperClaim(node: 1, boot: 2).bytes)
      let (sums, findings) = try bucket.check()
      #expect(findings.isEmpty && sums.findings == 0, "\(findings)")
      #expect(sums.blocks == 5 && sums.objects == 11 && sums.bytes > 4 * Int64(CareBucket.block))
    }
  }

  @Test("The check finds each fault, and removes it if it may", arguments: faults.indices)
  func findsFaults(_ number: Int) throws {
    let fault = Self.faults[number]
    try withCareBucket { bucket, store in
      try bucket.addFile(1)
      try bucket.addFile(2)
      try fault.put(store, Self.whole + fault.key.text)
      let before = store.objects
      let found = try bucket.check().findings
      #expect(found[fault.key.text]?.reason.contains(fault.words) == true, "\(fault.name): \(found)")
      #expect(found[fault.key.text]?.isRemoved == (fault.isRemovable ? false : nil))
      // What a fault takes from the digests of its file is a finding as well, and nothing else is.
      #expect(found.keys.allSatisfy { [fault.key.text, ObjectName.done(Self.id).text].contains($0) }, "\(found)")
      #expect(store.objects == before, "a check without --repair changes nothing")
      let repaired = try bucket.check(repairs: true).findings
      #expect(repaired[fault.key.text]?.isRemoved == (fault.isRemovable ? true : nil), "\(fault.name): \(repaired)")
      #expect((store.objects[Self.whole + fault.key.text] == nil) == fault.isRemovable)
      #expect(store.objects.keys.contains(Self.whole + ObjectName.block(Self.other, 1).text))
      // Digests of a file whose block is gone are found in the next run.
      _ = try bucket.check(repairs: true)
      #expect(try bucket.check().findings.keys.allSatisfy { $0 == fault.key.text && !fault.isRemovable })
    }
  }

  @Test("Names that mediafs does not write are told, and stay")
  func strangeNames() throws {
    try withCareBucket { bucket, store in
      let names = [
        "mfs1/", "mfs1/b", "mfs1/b/x/00000001", "mfs1/b/\(Self.id)/1", "mfs1/b/\(Self.id)/00000001/2",
        "mfs1/g/../format",
        "mfs1/u/\(String(repeating: "A", count: 32))", "mfs1/s/2026/\(Self.id)", "mfs1/zzz/\u{202E}",
        "mfs1/l/\(Self.id)/0000001", "mfs1/e/\(Self.id)/00000001-1",
      ]
      for name in names { store.setObject(Self.whole + name, [1]) }
      let found = try bucket.check(repairs: true).findings
      #expect(Set(found.keys) == Set(names) && found.values.allSatisfy { $0.isRemoved == nil })
      store.age(days: 400)
      _ = try bucket.collect(days: 1)
      #expect(try bucket.keys() == Set(names + ["mfs1/format"]))
    }
  }

  @Test("A block that cannot be read is a finding; a store that is gone ends the check")
  func storeFails() throws {
    try withCareBucket { bucket, store in
      try bucket.addFile(1)
      let key = ObjectName.block(Self.id, 1).text
      store.configure { manner in
        manner.fault = { $0.target.hasSuffix(key) ? .refuse(403, code: "AccessDenied") : nil }
      }
      let (sums, found) = try bucket.check()
      #expect(Set(found.keys) == [key] && found[key]?.reason.contains("cannot be read") == true, "\(found)")
      #expect(sums.findings == 1)
      store.configure { $0.fault = { $0.method == "GET" ? .refuse(403, code: "AccessDenied") : nil } }
      #expect(throws: FleetCareError.self) { try bucket.check() }
    }
  }

  // MARK: Refusal

  @Test("A bucket of another fleet, another version, or none, is left as it is", arguments: [0, 1, 2, 3])
  func refuses(_ which: Int) throws {
    try withCareBucket { bucket, store in
      try bucket.addFile(1)
      store.age(days: 100)
      let name = Self.whole + ObjectName.format.text
      switch which {
      case 0: store.setObject(name, FleetFormat().bytes(key: FleetKey(Array("another fleet's secret".utf8))))
      case 1: store.setObject(name, Array("mediafs fleet 2\nblock=1\n".utf8))
      case 2: store.setObject(name, Array("<html>".utf8))
      default: store.setObject(name, [UInt8](repeating: 0xFF, count: 1 << 20))
      }
      let (before, seen) = (store.objects, store.seen.count)
      #expect(throws: FleetCareError.self) { try bucket.collect(days: 1) }
      #expect(throws: FleetCareError.self) { try bucket.check(repairs: true) }
      #expect(throws: FleetCareError.self) { try FleetCensus(bucket.opened()) { _ in } }
      #expect(store.objects == before)
      #expect(store.seen.dropFirst(seen).allSatisfy { $0.method == "GET" && $0.target.hasSuffix("mfs1/format") })
    }
  }

  // MARK: Real stores

  private static func looksAfter(_ endpoint: String) throws {
    try withCalls(endpoint) { calls in
      let bucket = try CareBucket(calls)
      let (kept, gone) = (try bucket.addFile(1), try bucket.addFile(2))
      try bucket.addLease(gone, isReleased: true)
      try bucket.addNode(7)
      let census = try FleetCensus(bucket.opened()) { _ in }
      #expect(census[.blocks].objects == 6 && census.generations == 2 && census.incompleteGenerations == 0)
      #expect(census[.foreign].objects == 0 && census.nodesToday == 1)
      let (sums, findings) = try bucket.check()
      #expect(findings.isEmpty && sums.blocks == 6, "\(findings)")
      #expect(throws: FleetCareError.self, "a node was there, and no mark is") { try bucket.collect() }
      try bucket.addSeen(gone)
      #expect(try bucket.collect().sum == FleetTally(), "all of it is new")
      // In 40 days, where the file 1 was seen a week before.
      try bucket.addSeen(kept, ago: -33)
      let before = try bucket.keys()
      let dry = try bucket.collect(inDays: 40, isDryRun: true)
      #expect(try bucket.keys() == before)
      let result = try bucket.collect(inDays: 40)
      #expect(result == dry && result.generations == 1 && result.kept == 1 && result.removed["blocks"]?.objects == 3)
      let left = try bucket.keys()
      #expect(left.contains(ObjectName.block(kept, 2).text) && !left.contains { $0.contains("\(gone)") })
      #expect(!left.contains { $0.contains("/n/") || $0.contains("/l/") })
      #expect(result.removed["seen"]?.objects == 1 && result.removed["nodes"]?.objects == 1)
      #expect(try bucket.check().findings.isEmpty)
    }
  }

  @Test(
    "SeaweedFS: counted, checked, collected",
    .enabled(if: StorePrograms.weed != nil, Comment(rawValue: StorePrograms.noWeed))
  )
  func seaweed() throws { try withSeaweed { try Self.looksAfter($0.endpoint()) } }

  @Test(
    "rclone's server: counted, checked, collected",
    .enabled(if: StorePrograms.rclone != nil, Comment(rawValue: StorePrograms.noRclone)))
  func rclone() throws { try withRcloneStore { try Self.looksAfter($0.endpoint) } }
}
