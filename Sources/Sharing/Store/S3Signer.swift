import Base
import Glibc

/// Signs requests by AWS Signature Version 4, as S3 wants it: each part of the path is encoded once, and no path is
/// simplified. Pure.
///
/// mediafs signs instead of libcurl, because libcurl 7.88 can neither follow a store's clock nor leave Expect unsigned,
/// and orders some fields wrong.
struct S3Signer {
  /// In the place of the body's digest where TLS keeps the body from changes.
  static let unsignedPayload = "UNSIGNED-PAYLOAD"

  var credentials: StoreCredentials
  var region: String
  var service = "s3"

  /// What is signed of a request.
  struct Request {
    var method: String
    /// Encoded, with its first slash.
    var path: String
    /// Not encoded, in any order.
    var query: [(name: String, value: String)] = []
    /// Every field to be signed, Host and X-Amz-Date among them.
    var headers: [HTTPHeader]
    /// The digest of the body in hexadecimal, or ``unsignedPayload``.
    var payload: String
  }

  /// The value of the field Authorization. `time`: that of the field X-Amz-Date, in the form of ``timestamp(_:)``.
  func authorization(_ request: Request, time: String) -> String {
    let (canonical, names) = Self.canonical(request)
    let scope = "\(time.prefix(8))/\(region)/\(service)/aws4_request"
    let text = "AWS4-HMAC-SHA256\n\(time)\n\(scope)\n\(hexadecimal(SHA256.digest(canonical)))"
    var key = Array("AWS4\(credentials.secretKey)".utf8)
    for part in [String(time.prefix(8)), region, service, "aws4_request"] { key = SHA256.code(part, key: key) }
    return "AWS4-HMAC-SHA256 Credential=\(credentials.accessKey)/\(scope), SignedHeaders=\(names), "
      + "Signature=\(hexadecimal(SHA256.code(text, key: key)))"
  }

  /// The canonical request, and the names of the signed fields.
  static func canonical(_ request: Request) -> (text: String, names: String) {
    // By name, and those of one name in their order, as one list.
    var fields: [(name: String, value: String)] = []
    for header in request.headers {
      let name = header.name.lowercased()
      let value = single(header.value)
      if let index = fields.firstIndex(where: { $0.name == name }) {
        fields[index].value += ",\(value)"
      } else {
        fields.append((name, value))
      }
    }
    fields.sort { isBefore($0.name, $1.name) }
    let names = fields.map(\.name).joined(separator: ";")
    let lines = fields.map { "\($0.name):\($0.value)\n" }.joined()
    return (
      "\(request.method)\n\(request.path)\n\(query(request.query))\n\(lines)\n\(names)\n\(request.payload)", names
    )
  }

  /// The query in the one form that is signed, and sent: encoded, then sorted by bytes; `name=` without a value.
  static func query(_ items: [(name: String, value: String)]) -> String {
    items.map { (encoded($0.name), encoded($0.value)) }
      .sorted { $0.0 == $1.0 ? isBefore($0.1, $1.1) : isBefore($0.0, $1.0) }
      .map { "\($0.0)=\($0.1)" }.joined(separator: "&")
  }

  /// The text with every byte as `%XX` but letters, digits and `-._~`. `keepsSlashes`: and slashes, as in paths.
  static func encoded(_ text: String, keepsSlashes: Bool = false) -> String {
    var result: [UInt8] = []
    for byte in text.utf8 {
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E: result.append(byte)
      case 0x2F where keepsSlashes: result.append(byte)
      default: result += Array("%\(hexadecimal([byte]).uppercased())".utf8)
      }
    }
    return String(decoding: result, as: UTF8.self)
  }

  /// `20260131T235959Z`, of seconds since 1970.
  static func timestamp(_ seconds: Int64) -> String {
    var seconds = time_t(seconds)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    func digits(_ number: Int32, _ count: Int) -> String {
      let text = String(number)
      return String(repeating: "0", count: max(0, count - text.utf8.count)) + text
    }
    return digits(parts.tm_year + 1900, 4) + digits(parts.tm_mon + 1, 2) + digits(parts.tm_mday, 2) + "T"
      + digits(parts.tm_hour, 2) + digits(parts.tm_min, 2) + digits(parts.tm_sec, 2) + "Z"
  }

  /// Without spaces at both ends, and with one in the place of several.
  private static func single(_ value: String) -> String {
    value.split(whereSeparator: { $0 == " " || $0 == "\t" }).joined(separator: " ")
  }

  /// By bytes, not by the rules of a language.
  private static func isBefore(_ left: String, _ right: String) -> Bool {
    left.utf8.lexicographicallyPrecedes(right.utf8)
  }
}
