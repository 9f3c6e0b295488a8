import Base
import Fetching
import Glibc
import TestSupport
import Testing

@testable import Reading
@testable import Sharing

extension MemberTests {
  /// What a member offers to the store later.
  @Suite("What a member owes") struct OwedTests {
    /// A member that was shown a file of eight blocks, all of them stored here, which nobody opens.
    private func withOwed(_ body: (MemberBench) throws -> Void) throws {
      try withTemporaryFolder { folder in
        let known = MemberBench.file(1)
        let path = try folder.write(String(repeating: "a", count: Int(known.size)), to: "film.mp4")
        try withMember { bench in
          let served = ServedFile(copy: try FileDescriptor.open(path, O_RDONLY))
          let view = SecondView(stored: ByteRangeSet(ByteRange(0, known.size)), served: served, continues: false)
          bench.member.offer(known, view, now: .now)
          #expect(bench.member.owedBytes == known.size)
          try body(bench)
        }
      }
    }

    private func isList(_ asked: Asked) -> Bool { if case .list = asked { true } else { false } }
    private func isUpload(_ asked: Asked) -> Bool { if case .upload = asked { true } else { false } }
    private func isCompare(_ asked: Asked) -> Bool { if case .compare = asked { true } else { false } }

    /// Somebody opens the file.
    private func openFile(_ bench: MemberBench) {
      let known = MemberBench.file(1)
      let view = SecondView(
        stored: ByteRangeSet(ByteRange(0, known.size)), served: bench.member.files[1]?.served, continues: false)
      _ = bench.member.look(at: known, view, now: .now)
    }

    /// What the first block that is compared with the store's is.
    private func comparedLabel(_ bench: MemberBench) throws -> BlockLabel {
      let labels = bench.member.asked.values.compactMap { question -> BlockLabel? in
        if case .compare(_, let label) = question.what { label } else { nil }
      }
      return try #require(labels.first)
    }

    /// The next offer is due, and the store has none of the file's blocks. Returns how many go up.
    private func offered(_ bench: MemberBench) -> Int {
      _ = bench.member.offerOwed(bench.member.offers.next)
      #expect(bench.answer(.listed(StoreListing()), isList))
      return Int(bench.member.uploads.budget.waiting >> 16)
    }

    /// The store answers so many uploads.
    private func answer(_ outcome: StoreOutcome, uploads: Int, _ bench: MemberBench) {
      var left = uploads
      let areAnswered = eventually {
        _ = bench.member.sendUploads(.now)
        while left > 0, bench.answer(outcome, isUpload) { left -= 1 }
        return left == 0
      }
      #expect(areAnswered, "\(left) are not sent")
    }

    @Test("A store that has just not taken a block is offered two at a time, until it takes one")
    func blocksAtTrial() throws {
      try withOwed { bench in
        #expect(offered(bench) == 8)
        answer(.busy(retryAfter: nil, reason: "SlowDown"), uploads: 8, bench)
        #expect(bench.member.breaker.isUp, "readers suffer for it")
        #expect(offered(bench) == 2)
        answer(.written(etag: nil), uploads: 2, bench)
        #expect(offered(bench) == 6)
      }
    }

    @Test("A block that is too short in the store is removed, though its label is right")
    func shortBlock() throws {
      try withOwed { bench in
        #expect(offered(bench) == 8)
        answer(.conflict, uploads: 1, bench)
        let label = try comparedLabel(bench)
        let object = StoredObject(etag: "\"b\"", meta: ["mfs": label.text], size: 0)
        #expect(bench.answer(.found(object), isCompare))
        #expect(bench.pending { if case .removal = $0 { true } else { false } }.count == 1)
      }
    }

    @Test("Other bytes in the store than an earlier mount stored here: the file is shared no more, open or not")
    func otherBytes() throws {
      for isOpen in [false, true] {
        try withOwed { bench in
          #expect(offered(bench) == 8)
          if isOpen { openFile(bench) }
          answer(.conflict, uploads: 1, bench)
          var label = try comparedLabel(bench)
          label.crc32c ^= 1
          let object = StoredObject(etag: "\"b\"", meta: ["mfs": label.text], size: 64 << 10)
          #expect(bench.answer(.found(object), isCompare))
          let file = try #require(bench.member.files[1])
          #expect(file.ending == .unstable && bench.member.owedBytes == 0, "isOpen: \(isOpen)")
          if isOpen { #expect(bench.member.fleet.generations[1]?.ending == .unstable) }
        }
      }
    }

    @Test("What a replaced version owes does not go up, whether it waits to be offered or for its turn")
    func replacedVersion() throws {
      try withOwed { bench in
        _ = bench.member.offerOwed(bench.member.offers.next)
        bench.member.close(1, isReplaced: true)
        #expect(bench.answer(.listed(StoreListing()), isList))
        #expect(bench.member.owedBytes == 0 && bench.member.uploads.budget.waiting == 0)
      }
      for isOpen in [false, true] {
        try withOwed { bench in
          #expect(offered(bench) == 8)
          if isOpen { openFile(bench) }
          bench.member.close(1, isReplaced: true)
          let areDropped = eventually {
            _ = bench.member.sendUploads(.now)
            return bench.member.uploads.budget.waiting == 0
          }
          #expect(areDropped && bench.pending(isUpload).isEmpty && bench.member.owedBytes == 0)
        }
      }
    }

    @Test("The probe sets of 10,000 files may wait, where descriptors allow it: a quarter of them")
    func probeSets() throws {
      var limit = rlimit()
      try #require(getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
      let quarter = Int(limit.rlim_cur / 4)
      try withOwed { bench in
        let file = try #require(bench.member.files[1])
        let served = try #require(file.served)
        let job = ProbeJob(
          number: 1, id: file.id, size: file.size, parts: [ByteRange(0, 1)], epoch: 0, served: served)
        let most = (1...).first { !bench.member.uploads.add(job) || $0 > quarter }.map { $0 - 1 } ?? 0
        #expect(most >= min(10_000, quarter) && most <= quarter, "\(most) of \(quarter)")
      }
    }
  }
}
