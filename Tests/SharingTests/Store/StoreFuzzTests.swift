import Base
import Fetching
import TestSupport
import Testing

@testable import Sharing

/// What strangers write: stores' answers, files of keys. And what we write for any key.
@Suite("The store under random input") struct StoreFuzzTests {
  private static let samples = [
    """
    <?xml version="1.0" encoding="UTF-8"?>
    <ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>fleet</Name><Prefix>p/mfs1/</Prefix>
    <MaxKeys>2</MaxKeys><IsTruncated>true</IsTruncated><Contents><Key>p/mfs1/b/a&amp;b</Key><ETag>&#34;cf&#34;</ETag>
    <Size>4194304</Size></Contents><CommonPrefixes><Prefix>p/mfs1/c/</Prefix></CommonPrefixes>
    <NextContinuationToken>MQ==</NextContinuationToken></ListBucketResult>
    """,
    "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Slow</Message><Region>r</Region></Error>",
  ].map { Array($0.utf8) }

  @Test func answers() {
    #expect(
      (try? StoreXML.listing(Self.samples[0]).get())
        == StoreListing(
          entries: [.init(key: "p/mfs1/b/a&b", size: 4_194_304, etag: "\"cf\"")], folders: ["p/mfs1/c/"],
          continuation: "MQ=="))
    #expect(StoreXML.error(Self.samples[1]).code == "SlowDown")
    let tokens = ["<Contents>", "</Contents>", "<!DOCTYPE a [<!ENTITY b \"c\">]>", "&b;", "<Size>-1</Size>", "\u{0}"]
      .map { Array($0.utf8) }
    var good = 0
    let cases = Fuzzing("answers of stores", cases: 3000).run { random, place in
      let bytes = random.mutated(Self.samples[place.index % 2], tokens: tokens)
      if case .success = StoreXML.listing(bytes) { good += 1 }
      _ = StoreXML.error(bytes)
      if case .success(let listing) = StoreXML.listing(Array(bytes.prefix(bytes.count / 2))) {
        Issue.record("\(place): half of a list is a list: \(listing)")
      }
    }
    #expect(good < cases)
  }

  @Test func filesOfKeys() {
    let sample = Array("[default]\naws_access_key_id = A\naws_secret_access_key=S\n[profile b]\ns3 =\n  x = y\n".utf8)
    let tokens = ["[", "]", "=", "\n", " ", "[profile ", "\u{FEFF}", "#", "\r"].map { Array($0.utf8) }
    Fuzzing("files of keys", cases: 3000).run { random, place in
      let text = String(decoding: random.mutated(sample, tokens: tokens), as: UTF8.self)
      for isConfiguration in [false, true] { _ = ProfileFile(text, isConfiguration: isConfiguration) }
      do throws(StoreSetupError) {
        let account = try StoreAccount.find(["HOME": "/h"]) { (_: String) throws(PlainFileError) -> String? in text }
        let credentials = account.credentials
        for part in [credentials.accessKey, credentials.secretKey] {
          #expect(!part.isEmpty && part.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }, "\(place)")
        }
      } catch {
        #expect(!error.description.isEmpty)
      }
    }
  }

  @Test func names() {
    let sample = Array("s3://fleet-a.b/p/q r http://[::1]:8333/s3".utf8)
    let tokens = ["s3://", "/", "..", ".", ":", "@", "[", "]", "%2F", "ü", "\u{0}"].map { Array($0.utf8) }
    Fuzzing("names of stores", cases: 3000).run { random, place in
      let words = String(decoding: random.mutated(sample, tokens: tokens), as: UTF8.self).split(separator: " ")
      let endpoint = words.count > 2 ? String(words[2]) : nil
      // What is taken is a URL that libcurl takes as it is.
      guard let location = try? StoreLocation(share: words.prefix(2).joined(separator: " "), endpoint: endpoint) else {
        return
      }
      let url = location.url(path: location.path(of: "mfs1/k"), query: "")
      #expect(
        url.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } && !url.contains("/../") && !url.contains("@"),
        "\(place): \(url)")
    }
  }

  @Test("Whatever the key and the metadata are, the judge takes what is signed") func signatures() throws {
    let judge = SignatureJudge(secrets: [StoreKeys.key: StoreKeys.secret])
    let location = try StoreLocation.test("http://store.test:8333")
    let signing = StoreSigning(location: location, credentials: .test)
    let letters = Array("aZ09-_.~ +/=:;@&%$#?!*'(){}[]|\\^`\"<>,ü映\u{301}")
    Fuzzing("signatures", cases: 1500).run { random, place in
      func text() -> String {
        String((0..<Int.random(in: 1...12, using: &random)).map { _ in letters.randomElement(using: &random) ?? "a" })
      }
      let bytes = [UInt8](repeating: 1, count: Int.random(in: 0...99, using: &random))
      let query = StoreListing.Query(continuation: text(), after: text(), isFlat: Bool.random(using: &random))
      let actions: [StoreRequest.Action] = [
        .get(range: ByteRange(1, 9), inPieces: false), .head, .delete(ifMatch: "\"\(place.index)\""), .list(query),
        .put(StoreBody(bytes), meta: ["a": "x  y ", "a-\(place.index)": " z"], .ifAbsent),
      ]
      let action = actions[place.index % actions.count]
      let transfer = signing.transfer(
        StoreRequest(StoreCalls.anyID, "k\(text())", action, timeout: 1), as: TransferID(1), time: 1_700_000_000)
      let object = transfer.object
      var headers = (object?.headers ?? []) + [HTTPHeader(name: "Host", value: "store.test:8333")]
      if object?.body != nil { headers.append(HTTPHeader(name: "Content-Length", value: String(bytes.count))) }
      let seen = SignatureJudge.Seen(
        method: object?.method.rawValue ?? "", target: String(transfer.url.dropFirst("http://store.test:8333".count)),
        headers: headers, body: object?.body == nil ? [] : bytes)
      let fault = judge.fault(seen)
      #expect(fault == nil, "\(place): \(transfer.url): \(String(describing: fault))")
    }
  }

  @Test("Each of many requests at once ends once, whatever befalls them") func manyAtOnce() throws {
    try withFakeStore { store in
      try withCalls(store.endpoint, { $0.limits = StoreLimits(small: 6, reads: 2, uploads: 2) }) { calls in
        store.setObject("\(StoreKeys.bucket)/p/k", [UInt8](repeating: 1, count: 70_000))
        store.configure {
          $0.fault = { seen in
            switch seen.target.last {
            case "1": .lose
            case "2": .refuse(503, code: "SlowDown")
            case "3": .cut(1000)
            case "4": .hang
            default: nil
            }
          }
        }
        let block = StoreBody([UInt8](repeating: 1, count: 70_000), for: calls.location)
        let ends = Lock<[Int: Int]>([:])
        let count = 240
        for index in 0..<count {
          let key = index % 3 == 0 ? "k" : "k\(index % 5)"
          let id = StoreCalls.anyID
          let request: StoreRequest =
            switch index % 4 {
            case 0: .get(id, key, inPieces: true, timeout: 2)
            case 1: .putIfAbsent(id, "up\(index % 10)", block, timeout: 2)
            case 2: .head(id, key, timeout: 2)
            default: .delete(id, key + "x", ifMatch: "\"e\"", timeout: 2)
            }
          calls.start(request, received: { _, _ in true }) { _ in ends.withLock { $0[index, default: 0] += 1 } }
        }
        #expect(eventually(timeout: 60) { ends.withLock { $0.count } == count })
        calls.stop()
        #expect(ends.withLock { $0.values.allSatisfy { $0 == 1 } })
      }
    }
  }
}
