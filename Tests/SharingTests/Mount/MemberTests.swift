import Base
import Fetching
import Glibc
import TestSupport
import Testing

@testable import Reading
@testable import Sharing

/// What a mount's member of a fleet does with what the store answers, late or not at all.
@Suite("A mount as a member of a fleet", .serialized) struct MemberTests {
  @Test("A stat waits 2 s at most for its pointer, also for one that is behind others in the queue")
  func pointersInTime() throws {
    try withMember { bench in
      let begun = Instant.now
      /// How many of forty stats wait at that time.
      func waiting(_ now: Instant) -> Int {
        (1...40).count { number in
          let facts = bench.member.facts(of: MemberBench.key(Int64(number)), isCheck: false, now: now)
          return if case .wait = facts { true } else { false }
        }
      }
      #expect(waiting(begun) == 40)
      let asked = Instant.now
      #expect(waiting(begun.adding(seconds: 1.9)) == 40 && waiting(asked.adding(seconds: 2)) == 0)
    }
  }

  /// What the store has: the version of `file` with that ETag, which the origin confirmed at that time.
  private func pointer(_ file: SecondFile, _ etag: String, checked: Int64, _ bench: MemberBench) -> StoreOutcome {
    let key = bench.member.setup.key
    let entry = key.entry([file.key.high, file.key.low].flatMap(\.bigEndianBytes))
    let id = key.generation(of: entry, validator: etag, size: file.size)
    let pointer = Pointer(generation: id, size: file.size, validator: etag, checked: checked)
    return .found(StoredObject(etag: "\"of \(etag)\"", body: pointer.bytes))
  }

  @Test("A store whose Date is thousands of years ahead makes pointers old, and ends no mount")
  func pointersOfOldTimes() throws {
    try withMember { bench in
      let file = MemberBench.file(1)
      func isRead(_ what: Asked) -> Bool { if case .facts = what { true } else { false } }
      bench.hear(date: 250_000_000_000)
      _ = bench.member.facts(of: file.key, isCheck: false, now: .now)
      #expect(bench.answer(pointer(file, file.etag, checked: 0, bench), isRead))
      let facts = bench.member.facts(of: file.key, isCheck: false, now: .now)
      guard case .found(let found, _) = facts else { return #expect(Bool(false), "not found: \(facts)") }
      #expect(found.size == file.size)
    }
  }

  @Test("A pointer that was checked more than a minute in the future counts as one that nobody checked")
  func pointersOfTimesToCome() throws {
    try withMember { bench in
      let file = MemberBench.file(1)
      func isFacts(_ what: Asked) -> Bool { if case .facts = what { true } else { false } }
      func isRead(_ what: Asked) -> Bool { if case .pointer = what { true } else { false } }
      func isWrite(_ what: Asked) -> Bool { if case .pointerWrite = what { true } else { false } }
      let now = Int64(time(nil))
      for (ahead, isChecked) in [(30, true), (1_000_000, false)] as [(Int64, Bool)] {
        let found = pointer(file, file.etag, checked: now + ahead, bench)
        bench.member.pointers.known[file.key] = nil
        _ = bench.member.facts(of: file.key, isCheck: false, now: .now)
        #expect(bench.answer(found, isFacts))
        guard case .told(.found(_, let checkedAt), _, _)? = bench.member.pointers.known[file.key] else {
          return #expect(Bool(false), "nothing is told")
        }
        let age = Instant.now.seconds(since: checkedAt)
        #expect((age < 1_000_000) == isChecked, "\(age) s")
        // The origin is asked, and what it said is written in the pointer's place.
        bench.member.confirmed(file)
        #expect(bench.answer(found, isRead))
        #expect(bench.answer(.written(etag: nil), isWrite) == !isChecked)
      }
    }
  }

  @Test("What a member writes has the store's time, also when this machine's clock is set while it shares")
  func timesOfTheStore() throws {
    try withMember { bench in
      let now = Int64(time(nil))
      // This machine's clock was far behind, and is set right, or nearly so.
      for (number, ahead) in [(1, 1_000_000), (2, 0), (3, 50)] as [(Int64, Int64)] {
        bench.hear(date: now + ahead)
        bench.member.confirmed(MemberBench.file(number))
        let times = bench.member.asked.values.compactMap { question -> Int64? in
          if case .pointer(let write) = question.what, write.file.generation == number { write.began } else { nil }
        }
        let isRight = times.count == 1 && times.allSatisfy { (0..<100_000).contains($0 - now - ahead) }
        #expect(isRight, "\(times), not \(now + ahead)")
      }
    }
  }

  @Test("A pointer whose write the store refused is read again: it is written, unless another node was as late")
  func pointersAfterARefusal() throws {
    try withMember { bench in
      let file = MemberBench.file(1)
      func isRead(_ what: Asked) -> Bool { if case .pointer = what { true } else { false } }
      func isHead(_ what: Asked) -> Bool { if case .headOfNext = what { true } else { false } }
      func isWrite(_ what: Asked) -> Bool { if case .pointerWrite = what { true } else { false } }
      let now = Int64(time(nil))
      for (winner, checked, isWritten) in [("\"0\"", now - 1000, true), ("\"0\"", now + 60, false)] {
        bench.member.confirmed(file)
        #expect(bench.answer(pointer(file, "\"0\"", checked: now - 1000, bench), isRead))
        #expect(bench.answer(.written(etag: nil), isHead))
        #expect(bench.answer(.conflict, isWrite))
        #expect(bench.answer(pointer(file, winner, checked: checked, bench), isRead), "it is not read again")
        #expect(bench.answer(.written(etag: nil), isHead) == isWritten)
        // A second refusal is believed.
        #expect(bench.answer(.conflict, isWrite) == isWritten)
        #expect(bench.pending { isRead($0) || isHead($0) || isWrite($0) }.isEmpty)
      }
    }
  }

  @Test("A mark of use that the store did not take is written again when it has listed the nodes")
  func marksAgain() throws {
    func isNodeMark(_ what: Asked) -> Bool { if case .mark = what { true } else { false } }
    func isNodes(_ what: Asked) -> Bool { if case .nodes = what { true } else { false } }
    func isSeen(_ what: Asked) -> Bool { if case .seen = what { true } else { false } }
    try withMember { bench in
      /// The store lists the nodes.
      func list() {
        bench.member.start.listsNodesAt = .now
        _ = bench.member.goOnStarting(.now)
        #expect(bench.answer(.listed(StoreListing()), isNodes))
      }
      #expect(bench.answer(.written(etag: nil), isNodeMark))
      let view = SecondView(stored: ByteRangeSet(), served: nil, continues: false)
      _ = bench.member.look(at: MemberBench.file(1), view, now: .now)
      for failure in [StoreOutcome.busy(retryAfter: nil, reason: "SlowDown"), .timedOut] {
        #expect(bench.answer(failure, isSeen))
        #expect(bench.pending(isSeen).isEmpty, "it is written again without a pause")
        list()
        #expect(bench.pending(isSeen).count == 1, "\(failure)")
      }
      #expect(bench.answer(.conflict, isSeen))
      list()
      #expect(bench.pending(isSeen).isEmpty, "it is there, and is written again")
    }
  }

  @Test("Of a file with more segments than six digits can number, nothing is shared")
  func longestFile() throws {
    try withMember { bench in
      let view = SecondView(stored: ByteRangeSet(), served: nil, continues: false)
      // A segment has 16 blocks here.
      for (blocks, isShared) in [(8, true), (16_000_001, false)] as [(Int64, Bool)] {
        let known = MemberBench.file(blocks, blocks: blocks)
        #expect((bench.member.look(at: known, view, now: .now) != nil) == isShared)
        #expect((bench.member.files[blocks] != nil) == isShared)
      }
    }
  }

  @Test("A complete file waits 5 s at most for its digests, and is looked at again then")
  func digestsInTime() throws {
    try withMember { bench in
      let file = bench.member.make(MemberBench.file(1))
      func waits(since: Instant) -> Bool {
        file.digests = .asking([], since: since)
        if case .wait = bench.member.digest(of: 1) { return true } else { return false }
      }
      #expect(!waits(since: Instant.now.adding(seconds: -5)))
      // Times to come are as good as those that are past, and no machine is too slow for them.
      let since = Instant.now.adding(seconds: 1000)
      #expect(waits(since: since))
      let end = since.adding(seconds: 5)
      let next = bench.member.endDigestWaits(since.adding(seconds: 4.9))
      #expect(next == end && bench.changed == [])
      let last = bench.member.endDigestWaits(end)
      #expect(last == .never && bench.changed == [file.key])
    }
  }

  /// A file of eight blocks, of which a reader waits for the byte 1000, and waited for so long that it gets a window.
  private func withWindow(_ body: (MemberBench, SharedFile, (Int64, ByteRange?) -> Void) throws -> Void) throws {
    try withMember { bench in
      let known = MemberBench.file(1)
      let view = SecondView(stored: ByteRangeSet(), served: nil, continues: false)
      _ = bench.member.look(at: known, view, now: .now)
      /// A reader waits there, and what of its file is on its way.
      func wait(_ front: Int64, inFlight: ByteRange? = nil) {
        var wants = SecondWants()
        (wants.ranges, wants.fronts) = ([ByteRange(front, front + 4096)], [front])
        if let inFlight { wants.inFlight = [inFlight] }
        _ = bench.member.want(wants, of: known, now: .now)
      }
      wait(1000)
      bench.member.tell(.timer(.patience(0)), at: FleetNode.Place(generation: 1, segment: 0))
      try body(bench, try #require(bench.member.files[1])) { wait($0, inFlight: $1) }
    }
  }

  private func isWindowOut(_ bench: MemberBench) -> Bool? {
    bench.member.fleet.segments[FleetNode.Place(generation: 1, segment: 0)]?.share.waits.first?.isWindowOut
  }

  @Test("A lease that cannot be read is taken when its time is over, but not one that changes or is of another version")
  func damagedLeases() throws {
    func object(_ text: String, etag: String = "\"l\"") -> StoreOutcome {
      .found(StoredObject(etag: etag, body: Array(text.utf8)))
    }
    let cut = object("mediafs lease 1\nnode=x\n")
    let rotten = StoreOutcome.rotten(etag: "\"l\"", reason: "")
    let next = object("mediafs lease 2\n")
    let cases: [(first: StoreOutcome, second: StoreOutcome, isTaken: Bool)] = [
      (cut, cut, true), (object(""), object(""), true), (rotten, rotten, true), (cut, rotten, true),
      (cut, object("mediafs lease 1\nnode=x\n", etag: "\"m\""), false), (next, next, false),
    ]
    func isRead(_ what: Asked) -> Bool { if case .readLease = what { true } else { false } }
    func isWrite(_ what: Asked) -> Bool { if case .writeLease = what { true } else { false } }
    let place = FleetNode.Place(generation: 1, segment: 0)
    for (first, second, isTaken) in cases {
      try withMember { bench in
        bench.member.fleet.saw(nodes: [5, 6])
        let view = SecondView(stored: ByteRangeSet(), served: nil, continues: false)
        _ = bench.member.look(at: MemberBench.file(1), view, now: .now)
        var wants = SecondWants()
        (wants.ranges, wants.fronts) = ([ByteRange(0, 4096)], [0])
        _ = bench.member.want(wants, of: MemberBench.file(1), now: .now)
        bench.member.tell(.looked(0, .absent), at: place)
        #expect(bench.answer(first, isRead), "the lease is not read")
        #expect(bench.pending(isWrite).isEmpty, "\(first) is taken at once")
        for timer in [ShareTimer.expiry, .poll] { bench.member.tell(.timer(timer), at: place) }
        #expect(bench.answer(second, isRead), "the lease is not read again")
        #expect(bench.pending(isWrite).count == (isTaken ? 1 : 0), "\(second)")
      }
    }
  }

  @Test("A window may be asked for until it is: a start that finds no place on the line comes again")
  func windowsLast() throws {
    try withWindow { bench, _, wait in
      #expect(isWindowOut(bench) == true)
      let range = ByteRange(1000, 9000)
      for _ in 0..<2 {
        let route = bench.member.route(range, of: MemberBench.file(1), isProven: false, now: .now)
        #expect(route == .origin(range))
        wait(1000, nil)
      }
      // Some of it has come.
      wait(5000, nil)
      let rest = bench.member.route(ByteRange(5000, 9000), of: MemberBench.file(1), isProven: false, now: .now)
      #expect(rest == .origin(ByteRange(5000, 9000)) && isWindowOut(bench) == true)
    }
  }

  @Test("A window ends when nobody waits in it and nothing of it is on its way, whatever became of it")
  func windowsEnd() throws {
    try withWindow { bench, file, wait in
      let range = ByteRange(1000, 9000)
      _ = bench.member.route(range, of: MemberBench.file(1), isProven: false, now: .now)
      file.windows[0] = range  // the reader waits behind it
      wait(60_000, range)
      #expect(isWindowOut(bench) == true)
      wait(60_000, nil)
      #expect(isWindowOut(bench) == false && file.windows.isEmpty)
      let route = bench.member.route(ByteRange(60_000, 61_000), of: MemberBench.file(1), isProven: false, now: .now)
      #expect(route == .wait(until: 61_000))
    }
  }

  @Test("Digests that one block contradicts count no more: the other blocks are not compared with them")
  func wrongDigests() throws {
    try withMember { bench in
      let file = bench.member.make(MemberBench.file(1, blocks: 3))
      let done = DoneObject(size: file.size, crc32c: [1, 2, 3])
      file.digests = .found(done, etag: "\"d\"")
      #expect(bench.member.allows(1, at: 0, of: file, "\"0\""))
      #expect(!bench.member.allows(9, at: 1, of: file, "\"1\""))
      #expect(bench.member.allows(9, at: 2, of: file, "\"2\""))
      #expect(bench.pending { if case .removal = $0 { true } else { false } }.count == 1)
    }
  }

  /// The member reads the first bytes of a file's first block, for which it looks. Some bytes of `object` come, unless
  /// it is nil, and the read ends so. Returns how many removals are asked for.
  private func removals(
    _ bench: MemberBench, _ id: UInt64, bytes end: Int64, _ object: StoredObject?, _ outcome: StoreOutcome
  ) throws -> Int {
    let file = try #require(bench.member.files[1])
    file.looking = [0]
    var request = TransferRequest(id: TransferID(id), url: "", range: ByteRange(0, end))
    request.generation = 1
    bench.member.start(request)
    let read = try #require(bench.member.reads[request.id])
    if let object {
      let isTaken = [UInt8](repeating: 0, count: 8).withUnsafeBytes { bench.member.received($0, object, read) }
      #expect(!isTaken)
    }
    bench.member.end(read, outcome)
    #expect(file.looking.isEmpty, "it is looked for without an end")
    return bench.pending { if case .removal = $0 { true } else { false } }.count
  }

  @Test("An answer of another form than was asked for removes no block, one with other metadata does")
  func formsOfAnswers() throws {
    try withMember { bench in
      let file = bench.member.make(MemberBench.file(1))
      let label = BlockLabel(generation: file.id, index: 0, length: 64 << 10, crc32c: 1)
      let meta = ["mfs": label.text, "mfs-pieces": String(repeating: "0", count: 64 * 8)]
      let whole = StoredObject(etag: "\"b\"", meta: meta, size: 64 << 10)
      var unsized = whole
      unsized.size = nil
      var foreign = whole
      foreign.meta = [:]
      let part = try removals(bench, 1, bytes: 1024, whole, .cancelled)
      #expect(part == 0, "all came in the place of a part")
      let (none, one) = (
        try removals(bench, 2, bytes: 64 << 10, unsized, .cancelled),
        try removals(bench, 3, bytes: 64 << 10, foreign, .cancelled)
      )
      #expect(none == 0 && one == 1)
    }
  }

  @Test("A block without bytes is removed")
  func emptyBlock() throws {
    let ends: [StoreOutcome] = [
      .found(StoredObject(etag: "\"b\"", size: 0)), .rotten(etag: "\"b\"", reason: "its checksum is another one"),
    ]
    for outcome in ends {
      try withMember { bench in
        _ = bench.member.make(MemberBench.file(1))
        let removed = try removals(bench, 1, bytes: 64 << 10, nil, outcome)
        #expect(removed == 1)
        #expect(bench.member.breaker.isUp)
      }
    }
  }

  @Test("A silence of the store is told once, however many reads end with it")
  func silenceIsToldOnce() throws {
    try withMember { bench in
      _ = bench.member.make(MemberBench.file(1))
      for block in 0..<4 as Range<Int64> {
        let range = ByteRange(block << 16, (block + 1) << 16)
        var request = TransferRequest(id: TransferID(UInt64(block) + 1), url: "", range: range)
        request.generation = 1
        bench.member.start(request)
      }
      #expect(bench.member.reads.count == 4)
      let told = try bench.logged("the fleet's store") { bench.member.heard(.timedOut) }
      #expect(!bench.member.breaker.isUp && bench.member.reads.isEmpty)
      #expect(told.count == 1 && told[0].contains("does not answer"), "\(told)")
    }
  }

  @Test("A refusal is told once, and again when it becomes one of another kind")
  func refusalsAreToldByKind() throws {
    try withMember { bench in
      let place = bench.member.store.location.description
      let told = try bench.logged("the fleet's store") {
        for object in ["b/1", "b/2", "u/3"] { bench.member.heard(.refused(reason: "\(place): \(object) is denied")) }
        for time in [12, 34] { bench.member.heard(.busy(retryAfter: nil, reason: "\(place): busy for \(time) ms")) }
      }
      let words = ["every file comes from its origin: b/1 is denied", "is still not used: busy for 12 ms"]
      #expect(told.count == 2 && zip(told, words).allSatisfy { $0.hasSuffix($1) }, "\(told)")
    }
  }

  @Test("A store without room is told once until it takes something")
  func fullStoreIsToldOnce() throws {
    try withMember { bench in
      let full = StoreOutcome.full(reason: "\(bench.member.store.location.description): the store has no room")
      let told = try bench.logged("the fleet's store takes no more") {
        for _ in 0..<3 { bench.member.heard(full, isUpload: true) }
        bench.member.heard(.written(etag: nil))
        bench.member.heard(full, isUpload: true)
        // What it has already says nothing of its room.
        bench.member.heard(.conflict, isUpload: true)
        bench.member.heard(full, isUpload: true)
        bench.member.heard(.written(etag: nil), isUpload: true)
        bench.member.heard(full, isUpload: true)
      }
      #expect(told.count == 2 && told[0].hasSuffix(": the store has no room"), "\(told)")
      #expect(bench.member.breaker.isUp)
    }
  }
}
