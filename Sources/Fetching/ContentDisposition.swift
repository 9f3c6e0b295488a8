/// The file name in a Content-Disposition (RFC 6266): `filename*` is preferred to `filename`; nil if there is neither.
///
/// The name is decoded but not made safe: it may contain slashes or dots.
func suggestedName(disposition text: String) -> String? {
  var plain: String?
  var extended: String?
  for (name, value) in parameters(of: text) where !value.isEmpty {
    switch name {
    case "filename*": extended = extended ?? extendedValue(value)
    case "filename": plain = plain ?? value
    default: break
    }
  }
  return extended ?? plain
}

/// The `name=value` parameters after the disposition type; names in lower case, quoted strings unquoted.
private func parameters(of text: String) -> [(name: String, value: String)] {
  var result: [(String, String)] = []
  var rest = text[...]
  // The text before the first semicolon is the type; some origins omit it.
  let type = rest.prefix { $0 != ";" }
  if !type.contains("=") { rest = rest.dropFirst(type.count) }
  while !rest.isEmpty {
    rest = rest.drop { $0 == ";" || $0 == " " || $0 == "\t" }
    let name = trimmed(rest.prefix { $0 != "=" && $0 != ";" }).lowercased()
    rest = rest.drop { $0 != "=" && $0 != ";" }
    guard rest.first == "=" else { continue }
    rest = rest.dropFirst().drop { $0 == " " || $0 == "\t" }
    if rest.first == "\"" {
      result.append((name, takeQuoted(&rest)))
      rest = rest.drop { $0 != ";" }
    } else {
      result.append((name, trimmed(rest.prefix { $0 != ";" })))
      rest = rest.drop { $0 != ";" }
    }
  }
  return result
}

/// Removes a quoted string from the front of `rest` and returns it. A backslash escapes the next character. A string
/// without its closing quote extends to the end.
private func takeQuoted(_ rest: inout Substring) -> String {
  var value = ""
  rest = rest.dropFirst()
  while let character = rest.popFirst() {
    if character == "\"" { break }
    if character == "\\", let escaped = rest.popFirst() {
      value.append(escaped)
    } else {
      value.append(character)
    }
  }
  return value
}

/// Decodes an extended value (RFC 8187): `charset'language'percent-encoded`. The charset is UTF-8 or ISO-8859-1. nil
/// for other charsets, invalid percent-encoding and invalid UTF-8.
private func extendedValue(_ text: String) -> String? {
  let parts = text.split(separator: "'", maxSplits: 2, omittingEmptySubsequences: false)
  guard parts.count == 3, let bytes = percentDecoded(parts[2]) else { return nil }
  switch parts[0].lowercased() {
  case "utf-8": return String(validating: bytes, as: UTF8.self)
  case "iso-8859-1": return String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
  default: return nil
  }
}

private func percentDecoded(_ text: Substring) -> [UInt8]? {
  var bytes: [UInt8] = []
  var rest = text.utf8[...]
  while let byte = rest.popFirst() {
    guard byte == UInt8(ascii: "%") else {
      bytes.append(byte)
      continue
    }
    guard let high = rest.popFirst().flatMap(hexDigit), let low = rest.popFirst().flatMap(hexDigit) else { return nil }
    bytes.append(high << 4 | low)
  }
  return bytes
}

private func hexDigit(_ byte: UInt8) -> UInt8? {
  switch byte {
  case 0x30...0x39: byte - 0x30
  case 0x41...0x46: byte - 0x41 + 10
  case 0x61...0x66: byte - 0x61 + 10
  default: nil
  }
}
