import Base

/// Parses one format that consists of lines. Reads no files.
protocol LineParser: ~Copyable {
  /// Whether a list that begins so is of this format.
  static func recognizes(_ head: ListHead) -> Bool
  init(_ setup: ListSetup)
  /// Reads a line. The caller takes all items before the next line.
  mutating func read(_ line: Span<UInt8>, number: Int, isTooLong: Bool) throws(ManifestError)
  /// Ends the last entry: no line follows.
  mutating func finish()
  /// Removes and returns one item that the lines so far gave; nil when there is none left.
  mutating func takeItem() -> ManifestItem?
}

/// Reads a format of lines.
final class LineListReader<Parser: LineParser & ~Copyable>: FileListReader {
  private var core: Core

  static func recognizes(_ head: ListHead) -> Bool { Parser.recognizes(head) }

  init(_ input: consuming LineReader, _ setup: ListSetup) {
    core = Core(lines: input, parser: Parser(setup), name: setup.name)
  }

  func next() throws(ManifestError) -> ManifestItem? { try core.next() }

  // A value, so that exclusive access is checked once an item and not for each property.
  private struct Core: ~Copyable {
    private var lines: LineReader
    private var parser: Parser
    private let name: String
    private var isFinished = false

    init(lines: consuming LineReader, parser: consuming Parser, name: String) {
      self.lines = lines
      self.parser = parser
      self.name = name
    }

    mutating func next() throws(ManifestError) -> ManifestItem? {
      while true {
        if let item = parser.takeItem() { return item }
        if isFinished { return nil }
        if try advance() {
          try Self.read(lines, &parser)
        } else {
          isFinished = true
          parser.finish()
        }
      }
    }

    // Takes two arguments, because a span of one property would keep the other from being changed.
    private static func read(_ lines: borrowing LineReader, _ parser: inout Parser) throws(ManifestError) {
      try parser.read(
        lines.buffer.span.extracting(lines.range), number: lines.number, isTooLong: lines.isTooLong)
    }

    private mutating func advance() throws(ManifestError) -> Bool {
      do { return try lines.advance() } catch { throw .unreadable(name: name, reason: error) }
    }
  }
}
