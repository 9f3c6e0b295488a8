extension FileStatus {
  /// Appends the same JSON as its `Encodable` form: every key, in alphabetical order. This code is written by hand,
  /// because a mount may have a million files and JSONEncoder takes many times as long for each.
  package func appendJSON(to bytes: inout [UInt8]) {
    bytes += "{\"advice\":".utf8
    appendText(advice, to: &bytes)
    bytes += ",\"downloads\":".utf8
    append(downloads, to: &bytes)
    bytes += ",\"duration\":".utf8
    append(duration, to: &bytes)
    bytes += ",\"error\":".utf8
    appendText(error, to: &bytes)
    bytes += ",\"errorAge\":".utf8
    bytes += (errorAge.map(String.init) ?? "null").utf8
    bytes += ",\"holdsTo\":".utf8
    append(holdsTo, to: &bytes)
    bytes += ",\"opens\":".utf8
    bytes += (opens.map(String.init) ?? "null").utf8
    bytes += ",\"path\":".utf8
    appendText(path, to: &bytes)
    bytes += ",\"playsFrom\":".utf8
    append(playsFrom, to: &bytes)
    bytes += ",\"ranges\":[".utf8
    for (index, range) in ranges.enumerated() {
      bytes += (index == 0 ? "[" : ",[").utf8
      bytes += range.map(String.init).joined(separator: ",").utf8
      bytes.append(UInt8(ascii: "]"))
    }
    bytes += "],\"rate\":".utf8
    // JSON has no infinity; the Codable form has 0 for it too.
    bytes += (rate == 0 || !rate.isFinite ? "0" : "\(rate)").utf8
    bytes += ",\"readers\":".utf8
    append(readers, to: &bytes)
    bytes += ",\"rule\":".utf8
    append(rule, to: &bytes)
    bytes += ",\"size\":".utf8
    bytes += (size.map(String.init) ?? "null").utf8
    bytes += ",\"state\":\"".utf8
    bytes += state.rawValue.utf8
    bytes += "\",\"stored\":".utf8
    bytes += String(stored).utf8
    bytes += ",\"story\":".utf8
    // Few files have one.
    bytes += story.flatMap { try? encodeLine($0).dropLast() } ?? Array("null".utf8)
    bytes += ",\"transfers\":".utf8
    bytes += String(transfers).utf8
    bytes += ",\"waitsFor\":".utf8
    appendText(waitsFor?.rawValue, to: &bytes)
    bytes += ",\"waitsUntil\":".utf8
    bytes += (waitsUntil.map(String.init) ?? "null").utf8
    bytes.append(UInt8(ascii: "}"))
  }
}

/// The readers of a file, or null.
private func append(_ readers: [ReaderStatus]?, to bytes: inout [UInt8]) {
  guard let readers else {
    bytes += "null".utf8
    return
  }
  bytes.append(UInt8(ascii: "["))
  for (index, reader) in readers.enumerated() {
    bytes += (index == 0 ? "{\"pace\":" : ",{\"pace\":").utf8
    append(reader.pace.isFinite ? reader.pace : 0, to: &bytes)
    bytes += ",\"pid\":".utf8
    bytes += (reader.pid.map(String.init) ?? "null").utf8
    bytes += ",\"position\":\(reader.position),\"process\":".utf8
    appendText(reader.process, to: &bytes)
    bytes += ",\"waited\":".utf8
    append(reader.waited, to: &bytes)
    bytes += ",\"waitsFor\":".utf8
    appendText(reader.waitsFor?.rawValue, to: &bytes)
    bytes.append(UInt8(ascii: "}"))
  }
  bytes.append(UInt8(ascii: "]"))
}

/// A rule as an object of JSON, or null.
private func append(_ rule: AppliedRule?, to bytes: inout [UInt8]) {
  guard let rule else {
    bytes += "null".utf8
    return
  }
  bytes += "{\"pattern\":".utf8
  appendText(rule.pattern, to: &bytes)
  bytes += ",\"word\":".utf8
  appendText(rule.word, to: &bytes)
  bytes.append(UInt8(ascii: "}"))
}

/// A number of JSON, or null.
private func append(_ number: Double?, to bytes: inout [UInt8]) {
  bytes += (number.map { $0 == $0.rounded() && abs($0) < 1e15 ? "\(Int64($0))" : "\($0)" } ?? "null").utf8
}

/// A string of JSON, or null.
private func appendText(_ text: String?, to bytes: inout [UInt8]) {
  guard var text else {
    bytes += "null".utf8
    return
  }
  bytes.append(UInt8(ascii: "\""))
  text.withUTF8 { characters in
    var rest = characters[...]
    while let index = rest.firstIndex(where: { $0 < 0x20 || $0 == UInt8(ascii: "\"") || $0 == UInt8(ascii: "\\") }) {
      bytes += rest[..<index]
      let byte = rest[index]
      if byte < 0x20 {
        bytes += (byte < 0x10 ? "\\u000" : "\\u00").utf8
        bytes += String(byte, radix: 16).utf8
      } else {
        bytes += [UInt8(ascii: "\\"), byte]
      }
      rest = rest[(index + 1)...]
    }
    bytes += rest
  }
  bytes.append(UInt8(ascii: "\""))
}
