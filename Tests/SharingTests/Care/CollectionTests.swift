import Base
import Glibc
import TestSupport
import Testing

@testable import Sharing

/// What `mediafs share collect` removes, in which order, and what stays.
@Suite("Collection of a fleet's bucket") struct CollectionTests {
  private static let whole = "fleet/p/"

  @Test func removesWhatNobodyUsed() throws {
    try withCareBucket { bucket, store in
      let (old, seen, edge) = (try bucket.addFile(1), try bucket.addFile(2), try bucket.addFile(3))
      try bucket.addLease(old)
      try bucket.write(ObjectName.claim(seen, 1, round: 0).text, HelperClaim(node: 1, boot: 2).bytes)
      for (id, days) in [(old, 31), (seen, 31), (seen, 5), (edge, 30)] as [(FleetID, Int64)] {
        try bucket.addSeen(id, ago: days)
      }
      try bucket.addNode(1, ago: 31)
      try bucket.addNode(2, ago: 3)
      store.age(days: 60)
      let young = try bucket.addFile(4)
      let before = store.objects

      let dry = try bucket.collect(isDryRun: true)
      #expect(store.objects == before)
      let result = try bucket.collect()
      #expect(result == dry, "a dry run says what will be done: \(dry), \(result)")
      #expect(result.generations == 1 && result.kept == 3 && result.marked == 2 && result.spared == 0)
      let counts = [
        "blocks": 3, "heads": 1, "done": 1, "probes": 1, "pointers": 1, "leases": 1, "claims": 1, "seen": 2, "nodes": 1,
      ]
      #expect(result.removed.mapValues(\.objects) == counts.mapValues(Int64.init))
      let left = try bucket.keys()
      #expect(!left.contains { $0.contains("\(old)") })
      for id in [seen, edge, young] {
        #expect(left.contains(ObjectName.block(id, 2).text) && left.contains(ObjectName.head(id).text))
      }
      for number in [2, 3, 4] as [UInt8] { #expect(left.contains(ObjectName.pointer(CareBucket.entry(number)).text)) }
      #expect(try bucket.check().findings.isEmpty)
      #expect(try bucket.collect().sum == FleetTally(), "the second time nothing is left to do")
    }
  }

  /// The deletions so far, by the kind of object, without repetitions.
  private static func order(_ store: FakeStore) -> [ObjectName.Kind] {
    var kinds: [ObjectName.Kind] = []
    for request in store.seen where request.method == "DELETE" {
      let kind = ObjectName.kind(of: String(request.target.dropFirst("/\(whole)".count)))
      if kinds.last != kind { kinds.append(kind) }
    }
    return kinds
  }

  @Test("Wherever a collection ends, what is left is a state that nodes know, and the next one removes the rest")
  func endsAnywhere() throws {
    try withCareBucket { bucket, store in
      let id = try bucket.addFile(1)
      try bucket.addLease(id)
      store.age(days: 60)
      let all = store.objects
      _ = try bucket.collect()
      #expect(Self.order(store) == [.pointers, .leases, .done, .probes, .blocks, .heads])
      let whole = store.objects
      #expect(Set(whole.keys) == [Self.whole + "mfs1/format"])
      let deletions = all.count - 1
      for end in 0..<deletions {
        for (name, object) in all { store.setObject(name, object.body, meta: object.meta) }
        store.age(days: 60)
        let left = Lock(2 * end)  // each request is shown twice
        store.configure { manner in
          manner.fault = { request in
            guard request.method == "DELETE" else { return nil }
            let isOver = left.withLock { left in
              defer { left -= 1 }
              return left <= 0
            }
            return isOver ? .refuse(403, code: "AccessDenied") : nil
          }
        }
        #expect(throws: FleetCareError.self) { try bucket.collect() }
        store.configure { $0.fault = nil }
        // Digests without all blocks would be a promise that does not hold.
        #expect(try bucket.check().findings.isEmpty, "after \(end) deletions")
        _ = try bucket.collect()
        #expect(store.objects.keys == whole.keys, "after \(end) deletions")
      }
    }
  }

  @Test("A generation that a node begins to use meanwhile keeps what is left of it")
  func usedMeanwhile() throws {
    try withCareBucket { bucket, store in
      // Used when the marks were read already, and when its first thousand blocks are gone.
      let id = CareBucket.id(9, blocks: 2500)
      for index in 0..<2500 { store.setObject(Self.whole + ObjectName.block(id, index).text, [1]) }
      store.setObject(Self.whole + ObjectName.head(id).text, [1])
      let early = try bucket.addFile(1)
      store.age(days: 60)
      let mark = { @Sendable (id: FleetID) in
        store.setObject(Self.whole + ObjectName.seen(day: CareBucket.day(), id).text, DayMark.seen.bytes)
      }
      let pointer = ObjectName.pointer(CareBucket.entry(1)).text
      store.configure { manner in
        manner.fault = { request in
          guard request.method == "DELETE" else { return nil }
          if request.target.hasSuffix(pointer) { mark(early) }
          if request.target.hasSuffix("/b/\(id)/00000500") { mark(id) }
          return nil
        }
      }
      let result = try bucket.collect()
      #expect(result.spared == 1 && result.kept == 1 && result.generations == 0, "\(result)")
      let left = try bucket.keys()
      #expect(left.count { $0.hasPrefix("mfs1/b/\(id)/") } == 1500 && left.contains(ObjectName.head(id).text))
      #expect(left.contains(ObjectName.block(early, 0).text) && left.contains(ObjectName.done(early).text))
    }
  }

  @Test("Where nodes were, and none noted what it used, nothing is removed")
  func noMarks() throws {
    try withCareBucket { bucket, store in
      try bucket.addFile(1)
      try bucket.addNode(1, ago: 2)
      store.age(days: 60)
      let before = store.objects
      #expect(throws: FleetCareError.self) { try bucket.collect() }
      #expect(store.objects == before)
      // After the days in which a node was there.
      #expect(try bucket.collect(inDays: 40).generations == 1)
    }
  }

  @Test("A pointer that a node swaps meanwhile stays")
  func swappedPointer() throws {
    try withCareBucket { bucket, store in
      try bucket.addFile(1)
      store.age(days: 60)
      let name = Self.whole + ObjectName.pointer(CareBucket.entry(1)).text
      store.configure { manner in
        manner.fault = { request in
          guard request.method == "DELETE", request.target == "/\(name)" else { return nil }
          store.setObject(name, store.objects[name]?.body ?? [])
          return nil
        }
      }
      let result = try bucket.collect()
      #expect(result.removed["pointers"] == nil && store.objects[name] != nil, "\(result)")
    }
  }

  @Test func daysAreThoseOfUTC() {
    #expect(StoreDay.number(of: 1_764_115_199) == 2025_1125 && StoreDay.number(of: 1_764_115_200) == 2025_1126)
    #expect(StoreDay.seconds("2025-11-26T00:00:00.000Z") == 1_764_115_200)
    #expect(StoreDay.seconds("2025-11-26T00:00:00Z") == 1_764_115_200)
    for text in [
      "", "Z", "2025-13-26T00:00:00.000Z", "2025-11-26 00:00:00.000Z", "2025-11-26T00:00:00", "é025-11-26T00:00:00Z",
    ] {
      #expect(StoreDay.seconds(text) == nil, "\(text)")
    }
  }
}
