import Base
import CSystem
import TestSupport
import Testing

@testable import Sharing

/// The signatures that AWS published: its test suite for Signature Version 4, and the examples of S3's documentation.
@Suite("The signer") struct SignerTests {
  struct Published: CustomTestStringConvertible, Sendable {
    var name: String
    var method = "GET"
    /// Encoded.
    var path = "/"
    var query: [[String]] = []
    var fields: [(String, String)] = []
    var body = ""
    var signature: String
    var testDescription: String { name }
  }

  private static let unreserved = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
  private static let token =
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwth"
    + "Ax7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVX"
    + "AkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="

  private static let suite: [Published] = [
    Published(name: "get-vanilla", signature: "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    Published(
      name: "get-vanilla-query-order-key-case", query: [["Param2", "value2"], ["Param1", "value1"]],
      signature: "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
    Published(
      name: "get-vanilla-empty-query-key", query: [["Param1", "value1"]],
      signature: "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"),
    Published(
      name: "get-vanilla-query-unreserved", query: [[unreserved, unreserved]],
      signature: "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"),
    Published(
      name: "get-unreserved", path: "/\(unreserved)",
      signature: "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"),
    Published(
      name: "get-utf8", path: S3Signer.encoded("/ሴ", keepsSlashes: true),
      signature: "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
    Published(
      name: "get-vanilla-utf8-query", query: [["ሴ", "bar"]],
      signature: "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"),
    Published(
      name: "get-header-key-duplicate",
      fields: [("My-Header1", "value2"), ("My-Header1", "value2"), ("My-Header1", "value1")],
      signature: "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"),
    Published(
      name: "get-header-value-order",
      fields: [("My-Header1", "value4"), ("My-Header1", "value1"), ("My-Header1", "value3"), ("My-Header1", "value2")],
      signature: "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"),
    Published(
      name: "get-header-value-trim", fields: [("My-Header1", " value1"), ("My-Header2", " \"a   b   c\"")],
      signature: "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"),
    Published(
      name: "post-vanilla", method: "POST",
      signature: "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    Published(
      name: "post-header-key-sort", method: "POST", fields: [("My-Header1", "value1")],
      signature: "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"),
    Published(
      name: "post-header-value-case", method: "POST", fields: [("My-Header1", "VALUE1")],
      signature: "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"),
    Published(
      name: "post-sts-header-before", method: "POST", fields: [("X-Amz-Security-Token", token)],
      signature: "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"),
    Published(
      name: "post-x-www-form-urlencoded", method: "POST",
      fields: [("Content-Type", "application/x-www-form-urlencoded")], body: "Param1=value1",
      signature: "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"),
  ]

  @Test(arguments: suite) func ofTheTestSuite(published: Published) {
    let time = "20150830T123600Z"
    let fields = [("Host", "example.amazonaws.com"), ("X-Amz-Date", time)] + published.fields
    #expect(
      Self.sign(
        published, fields, service: "service",
        StoreCredentials(
          accessKey: "AKIDEXAMPLE", secretKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", origin: "a test"), time)
        == published.signature)
  }

  private static let documented: [Published] = [
    Published(
      name: "GET object with Range", path: "/test.txt", fields: [("Range", "bytes=0-9")],
      signature: "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
    Published(
      name: "PUT object", method: "PUT", path: S3Signer.encoded("/test$file.text", keepsSlashes: true),
      fields: [("Date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")],
      body: "Welcome to Amazon S3.", signature: "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
    Published(
      name: "GET bucket lifecycle", query: [["lifecycle", ""]],
      signature: "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
    Published(
      name: "GET bucket (list objects)", query: [["max-keys", "2"], ["prefix", "J"]],
      signature: "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
  ]

  @Test(arguments: documented) func ofTheDocumentationOfS3(published: Published) {
    let time = "20130524T000000Z"
    let digest = hexadecimal(SHA256.digest(published.body))
    let fields =
      [("Host", "examplebucket.s3.amazonaws.com"), ("x-amz-content-sha256", digest), ("x-amz-date", time)]
      + published.fields
    #expect(
      Self.sign(
        published, fields, service: "s3",
        StoreCredentials(
          accessKey: "AKIAIOSFODNN7EXAMPLE", secretKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", origin: "a test"),
        time) == published.signature)
  }

  private static func sign(
    _ published: Published, _ fields: [(String, String)], service: String, _ credentials: StoreCredentials,
    _ time: String
  ) -> String {
    let signer = S3Signer(credentials: credentials, region: "us-east-1", service: service)
    let value = signer.authorization(
      S3Signer.Request(
        method: published.method, path: published.path, query: published.query.map { ($0[0], $0[1]) },
        headers: fields.map { HTTPHeader(name: $0.0, value: $0.1) },
        payload: hexadecimal(SHA256.digest(published.body))), time: time)
    let start =
      "AWS4-HMAC-SHA256 Credential=\(credentials.accessKey)/\(time.prefix(8))/us-east-1/\(service)/aws4_request"
    return value.hasPrefix(start) ? String(value.suffix(64)) : value
  }

  @Test func timesAreUTC() {
    #expect(S3Signer.timestamp(1_440_938_160) == "20150830T123600Z")
    #expect(S3Signer.timestamp(0) == "19700101T000000Z")
    #expect(S3Signer.timestamp(1_709_208_001) == "20240229T120001Z")
  }

  @Test func theQueryIsSortedByItsEncodedBytes() {
    #expect(
      S3Signer.query([("b", "2"), ("a b", "x/y"), ("a", "2"), ("a", "1"), ("A", "")]) == "A=&a=1&a=2&a%20b=x%2Fy&b=2")
    #expect(S3Signer.encoded("a/b+c%d ü~", keepsSlashes: true) == "a/b%2Bc%25d%20%C3%BC~")
  }

  @Test("The clock of the store is followed when it is off, and again when it is set right") func clock() {
    var clock = ServerClock()
    clock.heard(1_000_050, at: 1_000_000)
    #expect(clock.offset == 0)
    clock.heard(1_000_000 - 3 * 86_400, at: 1_000_000)
    #expect(clock.time(1_000_100) == 1_000_100 - 3 * 86_400)
    #expect(clock.isOff(1_000_000, at: 1_000_001) && !clock.isOff(1_000_000 - 3 * 86_400, at: 1_000_030))
    // This machine's clock was set to the store's time.
    clock.heard(1_000_200 - 3 * 86_400, at: 1_000_200 - 3 * 86_400)
    #expect(clock.offset == 0)
  }

  @Test("CRC-32C, by the instruction and in pieces") func checksums() {
    var sum = CRC32C()
    for piece in ["1234", "", "56789"] { Array(piece.utf8).withUnsafeBytes { sum.add($0) } }
    #expect(sum.text == "e3069283")
    var bytes = (0..<4099).map { UInt8(truncatingIfNeeded: $0 &* 7919 >> 3) }
    for start in 0..<9 {
      bytes.withUnsafeBytes { all in
        let part = UnsafeRawBufferPointer(rebasing: all[start...])
        #expect(CRC32C(part).value == csystem_crc32c_by_tables(0, part.baseAddress, part.count))
      }
    }
    let before = bytes.withUnsafeBytes { CRC32C($0) }
    bytes[77] ^= 0x10
    #expect(bytes.withUnsafeBytes { CRC32C($0) } != before)
    #expect(StoreBody([]).checksum.text == "00000000")
  }
}
