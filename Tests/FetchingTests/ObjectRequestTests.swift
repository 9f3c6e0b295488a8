import Base
import Glibc
import TestSupport
import Testing

@testable import Fetching

/// Requests to an object store: what is sent, and that every answer counts.
@Suite("Requests to an object store")
struct ObjectRequestTests {
  private static func ok(_ request: SeenRequest, _ connection: ServerConnection) -> Bool {
    connection.send(["HTTP/1.1 200 OK", "Content-Length: 0"])
  }

  @Test("A request that is none for a store is sent as ever, with these fields and no other") func othersAreAsEver()
    throws
  {
    var options = TransferOptions()
    options.headers = [HTTPHeader(name: "X-Mine", value: "1")]
    try withServer(Self.ok, options: options) { client, server in
      _ = client.get(server.url("/a"))
      _ = client.get(server.url("/b"), 3..<9) { $0.ifRange = "\"e\"" }
      let common = ["host": "127.0.0.1:\(server.port)", "accept": "*/*", "user-agent": "mediafs", "x-mine": "1"]
      let seen = server.seen
      #expect(seen.map(\.line) == ["GET /a HTTP/1.1", "GET /b HTTP/1.1"])
      #expect(seen[0].fields == common.merging(["accept-encoding": "identity"]) { $1 })
      #expect(
        seen[1].fields
          == common.merging(["accept-encoding": "identity", "range": "bytes=3-8", "if-range": "\"e\""]) { $1 })
    }
  }

  @Test("It sends the fields that it names, and no field or login of the options") func whatIsSent() throws {
    let folder = try TemporaryFolder()
    defer { #expect(throws: Never.self) { try folder.remove() } }
    var options = TransferOptions()
    options.headers = [HTTPHeader(name: "X-Mine", value: "1")]
    options.netrcFile = try folder.write("default login user password geheim\n", to: "netrc")
    try withServer(Self.ok, options: options) { client, server in
      let field = HTTPHeader(name: "If-Match", value: "\"e\"")
      for method in [ObjectRequest.Method.get, .head, .delete] {
        let object = ObjectRequest(method, headers: [field])
        let record = client.get(server.url("/k")) { $0.object = object }
        #expect(record.isFinished)
      }
      let common = ["host": "127.0.0.1:\(server.port)", "accept": "*/*", "user-agent": "mediafs", "if-match": "\"e\""]
      #expect(server.seen.map(\.line) == ["GET /k HTTP/1.1", "HEAD /k HTTP/1.1", "DELETE /k HTTP/1.1"])
      for seen in server.seen { #expect(seen.fields == common) }
      #expect(server.connections == 1)
      let bad = client.get(server.url("/k")) {
        $0.object = ObjectRequest(.get, headers: [HTTPHeader(name: "A", value: "1\r\nB: 2")])
      }
      #expect(bad.failure?.kind == .permanent && server.seen.count == 3)
    }
  }

  @Test("A PUT sends its body and its length, and neither a type nor Expect") func puts() throws {
    let body = pattern(0..<50)
    try withServer({ request, connection in Self.ok(request, connection) && false }) { client, server in
      let record = client.get(server.url("/k")) {
        $0.object = ObjectRequest(
          .put, headers: [HTTPHeader(name: "X-Amz-Meta-A", value: "")], body: TransferBody(body))
      }
      #expect(record.head?.status == 200)
      let seen = try #require(server.seen.first)
      #expect(seen.line == "PUT /k HTTP/1.1")
      #expect(
        seen.fields == [
          "host": "127.0.0.1:\(server.port)", "accept": "*/*", "user-agent": "mediafs", "x-amz-meta-a": "",
          "content-length": "50",
        ])
    }
  }

  @Test(arguments: [200, 204, 301, 307, 304, 400, 403, 404, 409, 412, 416, 429, 500, 503])
  func everyStatusIsAnAnswer(status: Int) throws {
    let isEmpty = status == 204 || status == 304
    let head = [
      "HTTP/1.1 \(status) X", "Date: Fri, 24 May 2013 00:00:00 GMT", "Retry-After: 7", "X-Amz-Meta-A: 1",
      "x-amz-meta-a: 2", "X-Amz-Request-Id: r", "ETag: \"e\"", "Location: /elsewhere", "X-Other: 1",
    ]
    try withServer({ _, connection in
      connection.send(head + (isEmpty ? [] : ["Content-Length: 5"]), body: isEmpty ? [] : Array("<a/>\n".utf8))
    }) { client, server in
      let record = client.get(server.url("/k")) { $0.object = ObjectRequest(.get) }
      #expect(record.isFinished && record.head?.status == status && record.misplaced == 0)
      #expect(record.bytes == (isEmpty ? [] : Array("<a/>\n".utf8)))
      let answer = try #require(record.head?.object)
      #expect(answer.fields == ["x-amz-meta-a": "1,2", "x-amz-request-id": "r"] && answer.retryAfter == 7)
      #expect(answer.length == (isEmpty ? nil : 5) && record.head?.date == 1_369_353_600)
      #expect(record.head?.validators.etag == "\"e\"" && server.seen.count == 1)
      // Of every other answer these fields are not kept.
      #expect(client.get(server.url("/k")) { $0.document = DocumentRequest() }.head?.object == nil)
    }
  }

  @Test func aHeadTellsTheLength() throws {
    try withServer({ _, connection in connection.send(["HTTP/1.1 200 OK", "Content-Length: 4194304"]) }) {
      client, server in
      for _ in 0..<2 {
        let record = client.get(server.url("/k")) { $0.object = ObjectRequest(.head) }
        #expect(record.isFinished && record.bytes.isEmpty && record.head?.object?.length == 4_194_304)
      }
      #expect(server.connections == 1)
    }
  }

  @Test("A part is checked against what was asked for, also with status 200") func parts() throws {
    for status in ["206 Partial Content", "200 OK"] {
      for (field, isGood) in [("bytes 3-5/10", true), ("bytes 4-6/10", false), ("bytes 3-7/10", false)] {
        try withServer({ _, connection in
          connection.send(["HTTP/1.1 \(status)", "Content-Length: 3", "Content-Range: \(field)"], body: [1, 2, 3])
        }) { client, server in
          let record = client.get(server.url("/k"), 3..<6) { $0.object = ObjectRequest(.get) }
          #expect(record.isFinished == isGood, "\(status), \(field)")
          if isGood { #expect(record.head?.body == .part(ByteRange(3, 6), total: 10)) }
        }
      }
    }
  }

  @Test("A body that ends early is a failure; the limits of rates are not its own") func cutAndUnlimited() throws {
    var options = TransferOptions()
    options.rates = TransferRates(all: 1)
    try withServer(
      { request, connection in
        connection.send(["HTTP/1.1 200 OK", "Content-Length: 1000000"])
        connection.send(pattern(0..<500_000))
        usleep(200_000)  // libcurl limits no rate of what comes at once
        connection.send(pattern(500_000..<(request.path == "/cut" ? 999_999 : 1_000_000)))
        return false
      }, options: options
    ) { client, server in
      let cut = client.get(server.url("/cut")) { $0.object = ObjectRequest(.get) }
      #expect(cut.failure?.kind == .transient && cut.bytes.count == 999_999)
      #expect(client.get(server.url("/whole")) { $0.object = ObjectRequest(.get) }.bytes == pattern(0..<1_000_000))
    }
  }
}
