import Base
import Fetching
import TestSupport
import Testing

@testable import Sharing

/// Every form of request, as libcurl sends it, before a judge that shares no code with the signer.
@Suite("Forms of requests") struct FormTests {
  struct Form: CustomTestStringConvertible, Sendable {
    var name: String
    var key = "mfs1/b/0a1b/00000007"
    var action: StoreRequest.Action
    var prefix = "p"
    var token: String?
    var awaitsContinue = false
    var testDescription: String { name }

    init(
      _ name: String, _ action: StoreRequest.Action, key: String? = nil, prefix: String = "p", token: String? = nil,
      awaitsContinue: Bool = false
    ) {
      (self.name, self.action, self.prefix, self.token) = (name, action, prefix, token)
      self.awaitsContinue = awaitsContinue
      if let key { self.key = key }
    }
  }

  private static func put(
    _ body: [UInt8], _ condition: StoreRequest.WriteCondition = .always, meta: [String: String] = [:]
  ) -> StoreRequest.Action { .put(StoreBody(body), meta: meta, condition) }

  private static let whole = StoreRequest.Action.get(range: nil, inPieces: false)

  /// What a key may have, each in a form of its own.
  private static let odd: [(String, String)] = [
    ("a space", "a b"), ("a plus", "a+b"), ("parentheses", "(a)"), ("an exclamation mark", "a!"), ("a star", "a*b"),
    ("a quote", "a'b"), ("an equals sign", "a=b"), ("a colon", "a:b"), ("an at sign", "a@b"), ("a comma", "a,b"),
    ("a percent sign", "a%2bb"), ("a question mark", "a?b"), ("a number sign", "a#b"), ("an ampersand", "a&b"),
    ("UTF-8", "süß/映画"), ("a dollar sign", "test$file.text"), ("a tilde", "a~b-c._d"), ("brackets", "[a]{b}"),
    ("a backslash", "a\\b|c^`"),
  ]

  static let forms: [Form] =
    [
      Form("GET", whole), Form("HEAD", .head), Form("DELETE", .delete(ifMatch: nil)),
      Form("GET of a range", .get(range: ByteRange(3, 9), inPieces: false)),
      Form("GET to the end", .get(range: ByteRange(3, .max), inPieces: true)),
      Form("DELETE with If-Match", .delete(ifMatch: "\"0123\"")), Form("PUT", put([1, 2, 3])),
      Form("PUT of nothing", put([])),
      Form("PUT with If-None-Match", put([1], .ifAbsent)), Form("PUT with If-Match", put([1], .ifMatch("\"0123\""))),
      Form("PUT of 3 MiB", put([UInt8](repeating: 7, count: 3 << 20))),
      Form("PUT of 2 MiB with Expect", put([UInt8](repeating: 7, count: 2 << 20)), awaitsContinue: true),
      Form("PUT with metadata", put([1], meta: ["a": "1", "a-b": "2", "b": "x  y", "gid": "00ff"])),
      Form("GET with a token", whole, token: "FwoGZXIvYXdzEPT//w=="),
      Form("PUT with a token", put([1], .ifAbsent), token: "FwoGZXIvYXdzEPT//w=="),
      Form("a list", .list(.init())), Form("a flat list", .list(.init(isFlat: true)), key: "mfs1/s/"),
      Form("a list that goes on", .list(.init(continuation: "1/a+b=c d&e", limit: 7))),
      Form("a list behind a key", .list(.init(after: "mfs1/b/ü +/1"))), Form("a list of all", .list(.init()), key: ""),
      Form("a list of an odd beginning", .list(.init()), key: "a b/ü+=%"),
      Form("no prefix", whole, prefix: ""), Form("a long prefix", whole, prefix: "a b/c+d/ü"),
    ] + odd.map { Form("a key with \($0.0)", whole, key: $0.1) }

  @Test(arguments: [StoreLocation.Style.path, .virtualHost])
  func theJudgeTakesEveryForm(style: StoreLocation.Style) throws {
    #expect(Self.forms.count >= 41)
    try withFakeStore { store in
      // The name of a bucket before `localhost` leads to loopback as well.
      let endpoint = style == .path ? store.endpoint : "http://localhost:\(store.port)"
      for form in Self.forms {
        try withCalls(endpoint, prefix: form.prefix, style: style, { $0.credentials.sessionToken = form.token }) {
          calls in
          let before = store.seen.count
          var request = StoreRequest(StoreCalls.anyID, form.key, form.action, timeout: 20)
          request.awaitsContinue = form.awaitsContinue
          let outcome = calls.outcome(request)
          #expect(outcome.refusal == nil && outcome.breakage == nil, "\(form.name): \(outcome)")
          #expect(store.seen.count == before + 1, "\(form.name) came \(store.seen.count - before) times")
          let seen = try #require(store.seen.last)
          #expect(seen.header("x-amz-security-token") == form.token)
          #expect(seen.header("Content-Type") == nil && seen.header("Transfer-Encoding") == nil)
          #expect((seen.header("Expect") != nil) == form.awaitsContinue, "\(form.name)")
          if seen.method == "PUT" { #expect(seen.header("Content-Length") == String(seen.body.count)) }
        }
      }
      #expect(store.signatureFaults == [])
    }
  }

  @Test("A signature of another key, secret, region or body is none") func theJudgeIsStrict() throws {
    try withFakeStore { store in
      let changes: [(String, @Sendable (inout StoreSetup) -> Void)] = [
        ("InvalidAccessKeyId", { $0.credentials.accessKey = "AKOTHER" }),
        ("SignatureDoesNotMatch", { $0.credentials.secretKey += "x" }),
      ]
      for (code, change) in changes {
        try withCalls(store.endpoint, change) { calls in
          #expect(calls.get("k").refusal?.contains(code) == true)
        }
      }
      let elsewhere = try StoreLocation.test(store.endpoint, region: "eu-west-1")
      try withCalls(store.endpoint, { $0.location = elsewhere }) { calls in
        #expect(calls.get("k").refusal?.contains("AuthorizationHeaderMalformed") == true)
      }
      // A digest that is not the body's.
      try withCalls(store.endpoint) { calls in
        let other = StoreBody([9], for: calls.location)
        let request = StoreSigning(location: calls.location, credentials: .test)
          .transfer(
            StoreRequest(StoreCalls.anyID, "k", .put(other, meta: [:], .always), timeout: 1), as: TransferID(1), time: 0
          )
        let headers = request.object?.headers ?? []
        let judge = SignatureJudge(secrets: [StoreKeys.key: StoreKeys.secret])
        let host = HTTPHeader(name: "Host", value: "127.0.0.1:\(store.port)")
        var seen = SignatureJudge.Seen(
          method: "PUT", target: calls.location.path(of: "k"),
          headers: headers + [host, HTTPHeader(name: "Content-Length", value: "1")], body: [9])
        #expect(judge.fault(seen) == nil)
        seen.body = [8]
        #expect(judge.fault(seen)?.code == "XAmzContentSHA256Mismatch")
        seen.body = [9]
        seen.headers.append(HTTPHeader(name: "If-Match", value: "\"x\""))
        #expect(judge.fault(seen)?.code == "SignatureDoesNotMatch")
      }
    }
  }
}
