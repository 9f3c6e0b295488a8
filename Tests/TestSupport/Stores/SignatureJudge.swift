import Base
import Glibc

/// Judges the signature of a request as it came over the line, by the rules of AWS Signature Version 4 for S3. It is
/// strict: it takes no form but the one that every server takes.
package struct SignatureJudge: Sendable {
  /// The secrets, by their access keys.
  package var secrets: [String: String]
  package var region: String
  package var service = "s3"

  package init(secrets: [String: String], region: String = "us-east-1", service: String = "s3") {
    (self.secrets, self.region, self.service) = (secrets, region, service)
  }

  /// A request as it came.
  package struct Seen: Sendable {
    package var method: String
    package var target: String
    package var headers: [HTTPHeader]
    package var body: [UInt8]

    package init(method: String, target: String, headers: [HTTPHeader], body: [UInt8]) {
      (self.method, self.target, self.headers, self.body) = (method, target, headers, body)
    }

    package func header(_ name: String) -> String? {
      headers.first { $0.name.lowercased() == name.lowercased() }?.value
    }
  }

  /// What is wrong with it: a code of S3 and why; nil if nothing is.
  package func fault(_ request: Seen) -> (code: String, reason: String)? {
    guard let field = request.header("authorization") else { return ("AccessDenied", "it is not signed") }
    guard let given = parts(field) else { return ("AuthorizationHeaderMalformed", field) }
    guard let secret = secrets[given.key] else { return ("InvalidAccessKeyId", given.key) }
    guard let stamp = request.header("x-amz-date"), request.headers.count(where: { same($0.name, "x-amz-date") }) == 1
    else { return ("AccessDenied", "not one X-Amz-Date") }
    guard given.scope == "\(stamp.prefix(8))/\(region)/\(service)/aws4_request" else {
      return ("AuthorizationHeaderMalformed", "the scope \(given.scope)")
    }
    if let reason = unsigned(request, given.names) { return ("SignatureDoesNotMatch", reason) }
    if let reason = looseForm(request.target) { return ("SignatureDoesNotMatch", reason) }
    guard let payload = request.header("x-amz-content-sha256") else { return ("InvalidRequest", "no digest") }
    if payload != "UNSIGNED-PAYLOAD", payload != PlainSHA256.text(PlainSHA256.digest(request.body)) {
      return ("XAmzContentSHA256Mismatch", "the digest is not the body's")
    }
    if ["PUT", "POST"].contains(request.method), request.header("content-length") != String(request.body.count) {
      return ("MissingContentLength", request.header("content-length") ?? "none")
    }
    let signature = signature(request, given.names, payload, stamp, secret)
    return signature == given.signature ? nil : ("SignatureDoesNotMatch", "not \(signature)")
  }

  /// Signs a request in the same strict form, now.
  package func sign(_ request: inout Seen, key: String) {
    var seconds = time(nil)
    var parts = tm()
    gmtime_r(&seconds, &parts)
    var text = [CChar](repeating: 0, count: 32)
    let count = strftime(&text, text.count, "%Y%m%dT%H%M%SZ", &parts)
    let stamp = String(decoding: text[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    let payload = PlainSHA256.text(PlainSHA256.digest(request.body))
    request.headers.append(HTTPHeader(name: "X-Amz-Date", value: stamp))
    request.headers.append(HTTPHeader(name: "X-Amz-Content-Sha256", value: payload))
    let names = request.headers.map { $0.name.lowercased() }.filter { $0 != "content-length" }.sorted()
    let signature = signature(request, names, payload, stamp, secrets[key] ?? "")
    let value =
      "AWS4-HMAC-SHA256 Credential=\(key)/\(stamp.prefix(8))/\(region)/\(service)/aws4_request, "
      + "SignedHeaders=\(names.joined(separator: ";")), Signature=\(signature)"
    request.headers.append(HTTPHeader(name: "Authorization", value: value))
  }

  private func signature(
    _ request: Seen, _ names: [String], _ payload: String, _ stamp: String, _ secret: String
  ) -> String {
    let mark = request.target.firstIndex(of: "?") ?? request.target.endIndex
    var lines = "\(request.method)\n\(request.target[..<mark])\n\(request.target[mark...].dropFirst())\n"
    for name in names {
      let values = request.headers.filter { same($0.name, name) }.map { header in
        header.value.split(separator: " ").joined(separator: " ")
      }
      lines += "\(name):\(values.joined(separator: ","))\n"
    }
    lines += "\n\(names.joined(separator: ";"))\n\(payload)"
    var key = Array("AWS4\(secret)".utf8)
    for part in [String(stamp.prefix(8)), region, service, "aws4_request"] {
      key = PlainSHA256.code(Array(part.utf8), key: key)
    }
    let digest = PlainSHA256.text(PlainSHA256.digest(Array(lines.utf8)))
    let text = "AWS4-HMAC-SHA256\n\(stamp)\n\(stamp.prefix(8))/\(region)/\(service)/aws4_request\n\(digest)"
    return PlainSHA256.text(PlainSHA256.code(Array(text.utf8), key: key))
  }

  /// The parts of the field Authorization.
  private func parts(_ field: String) -> (key: String, scope: String, names: [String], signature: String)? {
    guard field.hasPrefix("AWS4-HMAC-SHA256 ") else { return nil }
    var values: [Substring: Substring] = [:]
    for part in field.dropFirst(17).split(separator: ", ") {
      guard let equals = part.firstIndex(of: "=") else { return nil }
      values[part[..<equals]] = part[part.index(after: equals)...]
    }
    guard values.count == 3, let credential = values["Credential"], let names = values["SignedHeaders"],
      let signature = values["Signature"], let slash = credential.firstIndex(of: "/")
    else { return nil }
    return (
      String(credential[..<slash]), String(credential[credential.index(after: slash)...]),
      names.split(separator: ";", omittingEmptySubsequences: false).map(String.init), String(signature)
    )
  }

  /// A field that had to be signed and is not, or one that is signed and must not be.
  private func unsigned(_ request: Seen, _ names: [String]) -> String? {
    if names != names.sorted(by: { $0.utf8.lexicographicallyPrecedes($1.utf8) }) || Set(names).count != names.count {
      return "the names of the signed fields are not in order"
    }
    for name in names where name != name.lowercased() || request.header(name) == nil {
      return "\(name) is signed and was not sent"
    }
    for header in request.headers {
      let name = header.name.lowercased()
      let must =
        name == "host" || name == "range" || name == "content-type" || name.hasPrefix("x-amz-")
        || name.hasPrefix("if-")
      if must, !names.contains(name) { return "\(name) is not signed" }
      if ["expect", "transfer-encoding", "content-length", "user-agent", "connection"].contains(name),
        names.contains(name)
      {
        return "\(name) is signed, which a proxy may change"
      }
    }
    return nil
  }

  /// Why a path or query is not in the one form: encoded in upper case, no more and no less, and sorted.
  private func looseForm(_ target: String) -> String? {
    let sides = target.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    guard target.hasPrefix("/"), isStrict(sides[0], and: "/") else { return "the path is \(sides[0])" }
    guard sides.count == 2 else { return nil }
    let pairs = sides[1].split(separator: "&", omittingEmptySubsequences: false)
    for pair in pairs {
      let equals = pair.split(separator: "=", omittingEmptySubsequences: false)
      guard equals.count == 2, equals.allSatisfy({ isStrict($0, and: "") }) else { return "the query has \(pair)" }
    }
    let keys = pairs.map { $0.split(separator: "=", omittingEmptySubsequences: false).map { Array($0.utf8) } }
    let isSorted = zip(keys, keys.dropFirst()).allSatisfy { left, right in
      left[0] == right[0]
        ? !right[1].lexicographicallyPrecedes(left[1]) : left[0].lexicographicallyPrecedes(right[0])
    }
    return isSorted ? nil : "the query is not sorted"
  }

  private func isStrict(_ text: Substring, and more: String) -> Bool {
    var rest = Array(text.utf8)[...]
    while let byte = rest.popFirst() {
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E: continue
      case 0x25:
        let digits = String(decoding: rest.prefix(2), as: UTF8.self)
        guard let value = UInt8(digits, radix: 16), digits == digits.uppercased() else { return false }
        // What needs no encoding must not be encoded.
        if isStrict(Substring(String(decoding: [value], as: UTF8.self)), and: more), value != 0x25 { return false }
        rest = rest.dropFirst(2)
      default: if !more.utf8.contains(byte) { return false }
      }
    }
    return true
  }

  private func same(_ left: String, _ right: String) -> Bool { left.lowercased() == right.lowercased() }
}
