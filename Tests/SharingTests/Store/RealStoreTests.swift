import Base
import Glibc
import TestSupport
import Testing

@testable import Sharing

/// The client against real stores: SeaweedFS, which keeps conditions, and rclone's server, which ignores them.
@Suite("Real stores", .serialized) struct RealStoreTests {
  /// Every form that is for objects, and what each kind of request has to come to.
  private static func takesEveryForm(_ calls: StoreCalls) throws {
    for form in FormTests.forms where form.token == nil {
      // rclone's files lie in folders, where these would be names of both.
      var request = StoreRequest(StoreCalls.anyID, form.key, form.action, timeout: 30)
      request.awaitsContinue = form.awaitsContinue
      let outcome = calls.outcome(request)
      #expect(outcome.refusal == nil && outcome.breakage == nil, "\(form.name): \(outcome)")
    }
  }

  @Test(
    "SeaweedFS, through both gateways", .enabled(if: StorePrograms.weed != nil, Comment(rawValue: StorePrograms.noWeed))
  )
  func seaweed() throws {
    try withSeaweed { store in
      try withCalls(store.endpoint(.gateway1)) { first in
        try withCalls(store.endpoint(.gateway2)) { second in
          let block = (0..<(4 << 20)).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 9) }
          let etag = try #require(first.put("mfs1/b/aa/7", block, meta: ["gid": "aa", "index": "7"]).etag)
          let object = try #require(second.get("mfs1/b/aa/7").object)
          #expect(object.body == block && object.meta == ["gid": "aa", "index": "7"] && object.etag == etag)
          #expect(object.checksum == StoreBody(block).checksum.text)
          #expect(second.put("mfs1/b/aa/7", [1]) == .conflict)
          #expect(
            second.get("mfs1/b/aa/7", ByteRange(1 << 20, 1 << 20 + 9)).object?.body
              == Array(block[1 << 20..<1 << 20 + 9]))
          #expect(second.head("mfs1/b/aa/7").object?.size == 4 << 20)
          let lease = try #require(first.put("mfs1/l/aa/0", Array("held 1".utf8)).etag)
          let next = try #require(second.swap("mfs1/l/aa/0", Array("held 2".utf8), etag: lease).etag)
          #expect(first.swap("mfs1/l/aa/0", Array("held 3".utf8), etag: lease) == .conflict)
          #expect(first.delete("mfs1/l/aa/0", ifMatch: lease) == .conflict)
          #expect(first.delete("mfs1/l/aa/0", ifMatch: next) == .deleted && second.get("mfs1/l/aa/0") == .absent)
          for index in 0..<5 { #expect(first.put("mfs1/b/bb/\(index)", [UInt8(index)]).isWritten) }
          let page = try #require(second.list("mfs1/b/bb/", .init(limit: 3)).listing)
          let rest = try #require(second.list("mfs1/b/bb/", .init(continuation: page.continuation)).listing)
          #expect((page.entries + rest.entries).map(\.key) == (0..<5).map { "mfs1/b/bb/\($0)" })
          #expect(second.list("mfs1/b/", .init(isFlat: true)).listing?.folders == ["mfs1/b/aa/", "mfs1/b/bb/"])
          try Self.takesEveryForm(first)
          #expect(first.probe(nonce: "seaweed") == .known(StoreConditions()))
        }
      }
      // The clock of this machine is three days off.
      try withCalls(store.endpoint(), { $0.clock = { [clock = $0.clock] in clock() - 3 * 86_400 } }) { calls in
        #expect(calls.head("mfs1/b/aa/7").object != nil && calls.get("mfs1/b/bb/1").object?.body == [1])
      }
      try withCalls(store.endpoint(), { $0.credentials = .guest }) { calls in
        #expect(calls.get("mfs1/b/bb/1").object?.body == [1])
        #expect(calls.put("mfs1/b/bb/9", [1]).refusal?.contains(StoreKeys.guestKey) == true)
      }
      try withCalls(store.endpoint(host: "localhost"), style: .virtualHost) { calls in
        #expect(calls.get("mfs1/b/bb/2").object?.body == [2] && calls.list("mfs1/b/bb/").listing?.entries.count == 5)
      }
      // A gateway that stands still is one that does not answer; the other goes on.
      try store.hold(.gateway1)
      try withCalls(store.endpoint(.gateway1)) { calls in #expect(calls.get("mfs1/b/bb/1", timeout: 0.3) == .timedOut) }
      try withCalls(store.endpoint(.gateway2)) { calls in #expect(calls.get("mfs1/b/bb/1").object?.body == [1]) }
      store.signal(.gateway1, SIGCONT)
    }
  }

  @Test(
    "rclone's server, whose conditions the probe finds ignored",
    .enabled(if: StorePrograms.rclone != nil, Comment(rawValue: StorePrograms.noRclone)))
  func rclone() throws {
    try withRcloneStore { store in
      try withCalls(store.endpoint) { calls in
        let block = (0..<(1 << 20)).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        #expect(calls.put("mfs1/b/aa/7", block, meta: ["gid": "aa"]).isWritten)
        let object = try #require(calls.get("mfs1/b/aa/7").object)
        #expect(object.body == block && object.meta == ["gid": "aa"] && object.checksum != nil)
        let part = calls.get("mfs1/b/aa/7", ByteRange(5, 9))
        #expect(part.object?.body == Array(block[5..<9]), "\(part)")
        #expect(calls.get("mfs1/none") == .absent && calls.head("mfs1/none") == .absent)
        #expect(calls.list("mfs1/b/aa/").listing?.entries.map(\.key) == ["mfs1/b/aa/7"])
        guard case .known(let conditions) = calls.probe(nonce: "rclone") else {
          throw StoreFailure(description: "the probe came to nothing")
        }
        #expect(!conditions.allowsLeases && !conditions.keepsMatch, "\(conditions)")
        #expect(calls.delete("mfs1/b/aa/7") == .deleted)
      }
      try withCalls(store.endpoint, { $0.clock = { [clock = $0.clock] in clock() + 86_400 } }) { calls in
        #expect(calls.put("mfs1/b/aa/8", [1]).isWritten)
      }
    }
  }
}
