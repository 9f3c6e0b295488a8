import Base
import Fetching
import Glibc
import TestSupport
import Testing

@testable import Sharing

/// The client against a store that misbehaves on purpose.
@Suite("The store's client") struct FakeStoreTests {
  private static let key = "mfs1/b/00/1"
  private static let name = "\(StoreKeys.bucket)/p/\(key)"

  private static func with(
    _ change: (inout StoreSetup) -> Void = { _ in }, _ body: (FakeStore, StoreCalls) throws -> Void
  ) throws {
    try withFakeStore { store in try withCalls(store.endpoint, change) { try body(store, $0) } }
  }

  @Test func anObjectOnItsWay() throws {
    try Self.with { store, calls in
      #expect(calls.get(Self.key) == .absent && calls.head(Self.key) == .absent)
      let body = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
      let etag = try #require(calls.put(Self.key, body, meta: ["gid": "ab", "index": "1"]).etag)
      #expect(calls.put(Self.key, [1]) == .conflict)
      let object = try #require(calls.get(Self.key).object)
      #expect(object.body == body && object.etag == etag && object.size == 100_000 && object.range == nil)
      #expect(object.meta == ["gid": "ab", "index": "1"] && object.checksum == StoreBody(body).checksum.text)
      let head = try #require(calls.head(Self.key).object)
      #expect(head.size == 100_000 && head.body.isEmpty && head.meta == object.meta && head.etag == etag)
      let part = try #require(calls.get(Self.key, ByteRange(10, 20)).object)
      #expect(part.body == Array(body[10..<20]) && part.range == ByteRange(10, 20) && part.size == 100_000)
      #expect(calls.swap(Self.key, [2], etag: "\"other\"") == .conflict)
      let second = try #require(calls.swap(Self.key, [2], etag: etag).etag)
      #expect(calls.swap("mfs1/none", [2], etag: etag) == .absent)
      #expect(calls.delete(Self.key, ifMatch: etag) == .conflict)
      #expect(calls.get(Self.key).object?.body == [2])
      #expect(calls.delete(Self.key, ifMatch: second) == .deleted && calls.get(Self.key) == .absent)
      // One line, kept.
      #expect(store.connections == 1 && store.signatureFaults == [])
    }
  }

  @Test func piecesComeAsTheyArrive() throws {
    try Self.with { _, calls in
      let body = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 7 >> 2) }
      #expect(calls.put(Self.key, body).isWritten)
      let got = Lock((bytes: [UInt8](), size: Int64(0), outcome: StoreOutcome?.none))
      func ask(_ takes: Int) -> StoreOutcome? {
        got.withLock { $0 = ([], 0, nil) }
        calls.start(.get(StoreCalls.anyID, Self.key, inPieces: true, timeout: 20)) { bytes, object in
          got.withLock { got in
            got.bytes += bytes
            got.size = object.size ?? 0
            return got.bytes.count < takes
          }
        } done: { outcome in
          got.withLock { $0.outcome = outcome }
        }
        #expect(eventually { got.withLock { $0.outcome } != nil })
        return got.withLock { $0.outcome }
      }
      let object = try #require(ask(.max)?.object)
      #expect(got.withLock { $0.bytes } == body && got.withLock { $0.size } == 1_000_000 && object.body.isEmpty)
      #expect(ask(1) == .cancelled)
      #expect(got.withLock { $0.bytes.count } < body.count)
    }
  }

  @Test func listsByPages() throws {
    try Self.with { store, calls in
      for index in 0..<25 {
        store.setObject("\(StoreKeys.bucket)/p/mfs1/b/aa/\(index + 10)", [UInt8](repeating: 1, count: index))
      }
      store.setObject("\(StoreKeys.bucket)/p/mfs1/b/bb/1", [])
      store.setObject("\(StoreKeys.bucket)/q/mfs1/b/aa/99", [])
      var query = StoreListing.Query(limit: 10)
      var keys: [String] = []
      repeat {
        let page = try #require(calls.list("mfs1/b/aa/", query).listing)
        keys += page.entries.map(\.key)
        query.continuation = page.continuation
      } while query.continuation != nil
      #expect(keys == (10..<35).map { "mfs1/b/aa/\($0)" })
      let rest = try #require(calls.list("mfs1/b/aa/", .init(after: "mfs1/b/aa/32")).listing)
      #expect(rest.entries.map(\.size) == [23, 24] && rest.entries[0].etag?.hasPrefix("\"set-") == true)
      #expect(calls.list("mfs1/b/", .init(isFlat: true)).listing?.folders == ["mfs1/b/aa/", "mfs1/b/bb/"])
      #expect(calls.list("mfs1/c/").listing == StoreListing())
    }
  }

  @Test("A page that goes on where it began is no list: nobody follows it for ever")
  func endlessList() throws {
    try Self.with { store, calls in
      let text =
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>"
        + "</ListBucketResult>"
      let answer = "HTTP/1.1 200 OK\r\nContent-Length: \(text.utf8.count)\r\n\r\n\(text)"
      store.configure { $0.fault = { _ in .raw(answer) } }
      #expect(calls.list("mfs1/").listing?.continuation == "again")
      #expect(calls.list("mfs1/", .init(continuation: "before")).listing?.continuation == "again")
      #expect(calls.list("mfs1/", .init(continuation: "again")).breakage?.contains("goes on where it began") == true)
    }
  }

  @Test("A clock that is days off, either of them: the store's is followed, and each request goes twice at most")
  func clocks() throws {
    for offset in [-3 * 86_400, 40 * 86_400] as [Int64] {
      try Self.with { store, calls in
        store.configure { $0.clockOffset = offset }
        #expect(calls.head(Self.key) == .absent)  // its answer has no reason
        #expect(store.seen.count == 2)
        #expect(calls.put(Self.key, [1, 2]).isWritten && calls.get(Self.key).object?.body == [1, 2])
        #expect(store.seen.count == 4)
        store.configure { $0.clockOffset = 0 }
        #expect(calls.get(Self.key).object?.body == [1, 2])
        #expect(store.seen.count == 6 && store.signatureFaults == [])
        // The store's Date does not help.
        store.configure { $0.fault = { _ in .refuse(403, code: "RequestTimeTooSkewed") } }
        #expect(calls.get(Self.key).refusal?.contains("the clocks") == true)
        #expect(store.seen.count == 7)
      }
    }
  }

  @Test func renewedKeysAreTakenOnce() throws {
    let asked = Lock(0)
    try Self.with({ setup in
      setup.credentials.secretKey = "old"
      setup.renew = {
        asked.withLock { $0 += 1 }
        return .test
      }
    }) { store, calls in
      #expect(calls.put(Self.key, [1]).isWritten && calls.get(Self.key).object?.body == [1])
      #expect(asked.withLock { $0 } == 1 && store.seen.count == 3)
    }
    try Self.with({ $0.renew = { .guest } }) { store, calls in
      store.configure { $0.judge?.secrets = [:] }
      #expect(calls.get(Self.key).refusal?.contains("InvalidAccessKeyId") == true)
      #expect(store.seen.count == 2)
    }
  }

  @Test func whatAStoreSaysInsteadOfAnObject() throws {
    try Self.with { store, calls in
      func when(_ fault: FakeStore.Fault) -> StoreOutcome {
        store.configure { $0.fault = { _ in fault } }
        return calls.get(Self.key)
      }
      guard case .busy(retryAfter: 7?, let reason) = when(.refuse(503, code: "SlowDown", fields: ["Retry-After: 7"]))
      else { throw StoreFailure(description: "503 is not busy") }
      #expect(reason.contains("SlowDown") && reason.contains("s3://fleet/p"))
      if case .busy(retryAfter: nil, _) = when(.refuse(429, code: "TooManyRequests")) {} else { Issue.record("429") }
      #expect(when(.refuse(403, code: "AccessDenied")).refusal?.contains(StoreKeys.key) == true)
      #expect(when(.refuse(404, code: "NoSuchBucket")).refusal?.contains("create it") == true)
      #expect(when(.refuse(404, code: "NoSuchKey")) == .absent && when(.refuse(409, code: "Conflict")) == .conflict)
      let moved = when(.refuse(301, code: "PermanentRedirect", fields: ["x-amz-bucket-region: eu-west-9"]))
      #expect(moved.refusal?.contains("eu-west-9") == true)
      #expect(when(.refuse(500, code: "InternalError")).breakage?.contains("InternalError") == true)
      #expect(when(.refuse(501, code: "NotImplemented")).refusal != nil)
      guard case .rotten(etag: nil, _) = when(.refuse(416, code: "InvalidRange")) else {
        throw StoreFailure(description: "an object that is too short counts as a refusal")
      }
      for (status, code) in [
        (507, "XMinioStorageFull"), (507, "Whatever"), (403, "QuotaExceeded"), (400, "XMinioAdminBucketQuotaExceeded"),
      ] {
        let outcome = when(.refuse(status, code: code))
        if case .full(let reason) = outcome, reason.contains("no room"), reason.contains(code) { continue }
        Issue.record("\(status) \(code): \(outcome)")
      }
      #expect(when(.raw("HTTP/1.1 200 OK\r\nContent-Length: nonsense\r\n\r\n")).breakage != nil)
      #expect(when(.raw("garbage\r\n\r\n")).breakage != nil)
      #expect(when(.raw("HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\n<a>")).breakage?.contains("HTTP 500") == true)
      store.configure { $0.fault = { _ in .raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<a></a>  ") } }
      #expect(calls.list("mfs1/").breakage?.contains("another kind") == true)
      store.configure { $0.fault = nil }
      #expect(calls.get(Self.key) == .absent, "it is not well again")
    }
  }

  @Test func bodiesThatAreCutOrRotten() throws {
    try Self.with { store, calls in
      let body = [UInt8](repeating: 5, count: 300_000)
      let etag = try #require(calls.put(Self.key, body).etag)
      store.configure { $0.fault = { _ in .cut(200_000) } }
      #expect(calls.get(Self.key).breakage?.contains("200000 of 300000 bytes") == true)
      store.configure { $0.fault = { _ in .rot } }
      guard case .rotten(etag, let reason) = calls.get(Self.key) else {
        throw StoreFailure(description: "a rotten body was taken")
      }
      #expect(reason.contains(Self.key))
      store.configure { $0.fault = nil }
      #expect(calls.delete(Self.key, ifMatch: etag) == .deleted)
      // One that another program put there has no checksum.
      store.setObject(Self.name, [1, 2, 3])
      #expect(calls.get(Self.key).object?.body == [1, 2, 3] && calls.get(Self.key).object?.checksum == nil)
    }
  }

  @Test func aBodyThatIsTooLongEndsEarly() throws {
    try Self.with({ $0.largestObject = 1 << 20 }) { store, calls in
      store.setObject(Self.name, [UInt8](repeating: 0, count: 3 << 20))
      #expect(calls.get(Self.key).breakage?.contains("longer than 1 MiB") == true)
      store.setObject(Self.name, [UInt8](repeating: 0, count: 1 << 20))
      #expect(calls.get(Self.key).object?.body.count == 1 << 20)
    }
  }

  @Test("Of an object, no more is kept than its kind may have") func kindsHaveLimits() throws {
    try Self.with { store, calls in
      let id = try #require(FleetID(String(repeating: "a", count: 32)))
      let names: [ObjectName] = [
        .format, .pointer(id), .head(id), .lease(id, segment: 1), .claim(id, 1, round: 0), .probe(id), .done(id),
      ]
      for name in names {
        let limit = try #require(name.kind.limit)
        let place = "\(StoreKeys.bucket)/p/\(name.text)"
        store.setObject(place, [UInt8](repeating: 1, count: limit))
        #expect(calls.get(name.text).object?.body.count == limit, "\(name)")
        // It is there, and nobody takes it for what it is not: one writes it anew, under the condition of its ETag.
        store.setObject(place, [UInt8](repeating: 1, count: limit + 1))
        let object = try #require(calls.get(name.text).object, "\(name)")
        #expect(object.body.isEmpty && object.etag == store.objects[place]?.etag, "\(name)")
      }
    }
  }

  @Test("What the store does not answer ends at its time, and nothing that is not late with it") func hangs() throws {
    try Self.with { store, calls in
      store.setObject(Self.name, [1])
      store.configure { $0.fault = { $0.target.hasSuffix("/hangs") ? .hang : nil } }
      let begun = Instant.now
      let other = Lock<StoreOutcome?>(nil)
      calls.start(.get(StoreCalls.anyID, "hangs", timeout: 60)) { outcome in other.withLock { $0 = outcome } }
      #expect(calls.get("hangs", timeout: 0.3) == .timedOut)
      #expect(Instant.now.seconds(since: begun) >= 0.3)
      #expect(calls.put("hangs", [1], timeout: 0.3) == .timedOut)
      #expect(calls.get(Self.key).object?.body == [1] && other.withLock { $0 } == nil)
      calls.stop()
      #expect(other.withLock { $0 } == .cancelled)
      #expect(calls.get(Self.key) == .cancelled, "a call after the end waits for ever")
    }
  }

  @Test("A write whose answer is lost may have happened: the next read tells") func lostAnswers() throws {
    try Self.with { store, calls in
      store.configure { $0.fault = { $0.method == "PUT" ? .lose : nil } }
      #expect(calls.put(Self.key, [1]).breakage != nil)
      #expect(calls.get(Self.key).object?.body == [1])
    }
  }

  @Test("A store that expects it may refuse a block before the block is sent") func refusedEarly() throws {
    try Self.with { store, calls in
      store.configure { $0.fault = { $0.method == "PUT" ? .refuseEarly(412, code: "PreconditionFailed") : nil } }
      let block = StoreBody([UInt8](repeating: 1, count: 8 << 20), for: calls.location)
      var request = StoreRequest.putIfAbsent(StoreCalls.anyID, Self.key, block, timeout: 20)
      request.awaitsContinue = true
      #expect(calls.outcome(request) == .conflict)
      #expect(store.seen.count == 1 && calls.get(Self.key) == .absent)
    }
  }

  @Test func aStoreWithoutETags() throws {
    try Self.with { store, calls in
      store.configure { $0.tellsETags = false }
      #expect(calls.put(Self.key, [1]) == .written(etag: nil) && calls.get(Self.key).object?.etag == nil)
      for (field, etag) in [("\"a\"", "\"a\""), ("plain", "plain"), ("W/\"a\"", nil), ("\"a b\"", nil)]
        as [(String, String?)]
      {
        store.configure { $0.fault = { _ in .raw("HTTP/1.1 200 OK\r\nETag: \(field)\r\nContent-Length: 0\r\n\r\n") } }
        #expect(calls.get(Self.key).object?.etag == etag, "\(field)")
      }
    }
  }

  @Test("What waits for its turn loses none of its time") func turns() throws {
    try Self.with({ $0.limits = StoreLimits(small: 1) }) { store, calls in
      store.setObject(Self.name, [1])
      store.configure { $0.fault = { $0.target.hasSuffix("/hangs") ? .hang : nil } }
      calls.start(.get(StoreCalls.anyID, "hangs", timeout: 4)) { _ in }
      #expect(calls.get(Self.key, timeout: 2).object?.body == [1])
    }
  }

  @Test("What nobody waits for leaves leases their lines") func behind() throws {
    try Self.with({ $0.limits = StoreLimits(small: 1, behind: 2) }) { store, calls in
      store.setObject(Self.name, [1])
      store.configure { $0.fault = { $0.method == "PUT" ? .hang : nil } }
      for index in 0..<5 {
        calls.start(.putIfAbsent(StoreCalls.anyID, "mark\(index)", StoreBody([1]), timeout: 60)) { _ in }
      }
      #expect(eventually { store.seen.count == 2 })
      #expect(calls.get(Self.key, timeout: 4).object?.body == [1])
      #expect(store.seen.count { $0.method == "PUT" } == 2, "they took more lines than they have")
    }
  }

  @Test("Uploads that hang leave leases and readers their lines") func lanes() throws {
    try Self.with({ $0.limits = StoreLimits(small: 2, reads: 1, uploads: 1) }) { store, calls in
      store.setObject(Self.name, [1])
      store.configure { $0.fault = { $0.method == "PUT" ? .hang : nil } }
      let block = StoreBody([UInt8](repeating: 1, count: 100_000), for: calls.location)
      let ended = Lock<[StoreOutcome]>([])
      for index in 0..<5 {
        calls.start(.putIfAbsent(StoreCalls.anyID, "up\(index)", block, timeout: 60)) { outcome in
          ended.withLock { $0.append(outcome) }
        }
      }
      #expect(eventually { store.seen.contains { $0.method == "PUT" } })
      #expect(calls.get(Self.key).object?.body == [1])
      let got = Lock<StoreOutcome?>(nil)
      calls.start(.get(StoreCalls.anyID, Self.key, inPieces: true, timeout: 20)) { _, _ in
        true
      } done: { outcome in
        got.withLock { $0 = outcome }
      }
      #expect(eventually { got.withLock { $0 } != nil } && got.withLock { $0 }?.object != nil)
      #expect(store.seen.count { $0.method == "PUT" } == 1, "uploads took more lines than they have")
      calls.stop()
      #expect(ended.withLock { $0 } == [StoreOutcome](repeating: .cancelled, count: 5))
    }
  }

  @Test func aStoreThatIsNotThere() throws {
    let port = try freePort()
    try withCalls("http://127.0.0.1:\(port)") { calls in
      #expect(calls.get("k").breakage?.contains("cannot connect") == true)
    }
  }

  @Test("Header fields, rates and logins of the mount are for origins, and no redirect is followed") func isApart()
    throws
  {
    try withTemporaryFolder { folder in
      var options = TransferOptions()
      options.headers = [HTTPHeader(name: "X-Private", value: "geheim")]
      options.netrcFile = try folder.write("default login user password geheim\n", to: "netrc")
      options.rates = TransferRates(all: 1)
      try withFakeStore { store in
        try withCalls(store.endpoint, options: options) { calls in
          let body = [UInt8](repeating: 3, count: 1 << 20)
          #expect(calls.put("k", body).isWritten && calls.get("k").object?.body == body)
          store.configure {
            $0.fault = { _ in .refuse(307, code: "TemporaryRedirect", fields: ["Location: /elsewhere"]) }
          }
          #expect(calls.get("k").refusal != nil)
          #expect(store.seen.count == 3 && store.signatureFaults == [])
          for seen in store.seen { #expect(seen.header("X-Private") == nil) }
        }
      }
    }
  }

  @Test("Over TLS bodies are not digested; an own authority is trusted by --cacert, and no other") func overTLS() throws
  {
    try withTemporaryFolder { folder in
      let certificate = try TestCertificate(in: folder)
      try withFakeStore { store in
        let backend = "proxy_pass \(store.endpoint); proxy_set_header Host $http_host; proxy_http_version 1.1;"
        var settings = NginxSettings(.folder(folder.path))
        settings.certificate = certificate
        settings.lines = "client_max_body_size 0; location /fleet/ { \(backend) }"
        try withNginx(settings) { nginx in
          try withCalls(nginx.url()) { calls in
            #expect(calls.get("k").refusal?.contains("--cacert") == true)
          }
          var options = TransferOptions()
          options.certificateFile = certificate.authority
          try withCalls(nginx.url(), options: options) { calls in
            let body = [UInt8](repeating: 3, count: 3 << 20)
            #expect(calls.put("k", body).isWritten && calls.get("k").object?.body == body)
            let seen = try #require(store.seen.first { $0.method == "PUT" })
            #expect(seen.header("x-amz-content-sha256") == "UNSIGNED-PAYLOAD")
            #expect(store.signatureFaults == [])
          }
        }
      }
    }
  }
}
