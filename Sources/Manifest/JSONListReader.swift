import Base
import FoundationEssentials

/// What one JSON format makes of objects.
protocol JSONListFormat {
  static func recognizes(_ head: ListHead) -> Bool
  init(_ setup: ListSetup) throws(ManifestError)
  /// Takes the `number`th object, and appends its files.
  mutating func read(_ value: JSONValue, _ number: Int, _ files: inout [ListedFile], _ output: inout ListOutput)
}

/// Reads a format that is JSON, an object at a time.
final class JSONListReader<Format: JSONListFormat>: FileListReader {
  private var input: LineReader
  private let setup: ListSetup
  private var builder: EntryBuilder
  private var format: Format?
  private var splitter = JSONSplitter()
  private var output = ListOutput()
  private var count = 0
  private var isFinished = false

  static func recognizes(_ head: ListHead) -> Bool { Format.recognizes(head) }

  init(_ input: consuming LineReader, _ setup: ListSetup) {
    self.input = input
    self.setup = setup
    builder = EntryBuilder(setup)
  }

  func next() throws(ManifestError) -> ManifestItem? {
    while true {
      if let item = output.takeItem() { return item }
      if isFinished { return nil }
      try readPiece()
    }
  }

  private static func read(_ bytes: Span<UInt8>, _ splitter: inout JSONSplitter) throws(JSONSplitter.Fault) {
    for index in bytes.indices { try splitter.read(bytes[index]) }
  }

  private func readPiece() throws(ManifestError) {
    let piece: Range<Int>?
    do { piece = try input.takePiece() } catch { throw .unreadable(name: setup.name, reason: error) }
    do throws(JSONSplitter.Fault) {
      if let piece {
        try Self.read(input.buffer.span.extracting(piece), &splitter)
      } else {
        isFinished = true
        try splitter.finish()
      }
    } catch {
      throw setup.malformed(error.line, error.reason)
    }
    // A list without a value needs nothing of what its format does.
    if format == nil, !splitter.values.isEmpty { format = try Format(setup) }
    for value in splitter.values {
      count += 1
      if let excess = value.excess {
        output.report(value.line, .error, "item \(count) \(excess.words); it is skipped")
        continue
      }
      if value.bytes.isEmpty {
        output.leaveOut(value.line, "items that are null: what they stood for is not available")
        continue
      }
      var files: [ListedFile] = []
      format?.read(value, count, &files, &output)
      for file in files { builder.add(file, to: &output) }
    }
    splitter.values = []
    if isFinished { output.reportLeftOut() }
  }
}

extension JSONValue {
  /// Decodes the object, or says why that is not possible.
  func decoded<Value: Decodable>(_ number: Int, _ output: inout ListOutput) -> Value? {
    do { return try JSONDecoder().decode(Value.self, from: Data(bytes)) } catch {
      // The decoder's own words would repeat parts of the object.
      let isJSON = if case DecodingError.dataCorrupted = error { false } else { true }
      let reason = isJSON ? "it is not an object of this format" : "it is no valid JSON"
      output.report(line, .error, "item \(number): \(reason); it is skipped")
      return nil
    }
  }
}

/// A value of a list; nil if it is null or of another type.
struct LenientElement<Value: Decodable>: Decodable {
  var value: Value?

  init(from decoder: any Decoder) throws { value = try? Value(from: decoder) }
}

extension KeyedDecodingContainer {
  /// The values of the list `key` that can be read; none if there is no list.
  func lenientList<Value: Decodable>(_ key: Key) -> [Value] {
    let values: [LenientElement<Value>]? = lenient(key)
    return (values ?? []).compactMap(\.value)
  }

  /// The value of `key`; nil if there is none, or one of another type: programs write what they have.
  func lenient<Value: Decodable>(_ key: Key) -> Value? {
    guard let value = try? decodeIfPresent(Value.self, forKey: key) else { return nil }
    return value
  }
}
