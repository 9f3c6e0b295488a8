import Glibc
import Testing

/// docs/TROUBLESHOOTING.md explains every message that a user can meet.
@Suite("Messages")
struct MessageTests {
  /// What stands in the column "message" of a table: a message, or the part of some that never varies, with `…` for
  /// what does.
  private struct Explained {
    var text: String
    /// Without what varies.
    var pieces: [[CChar]]
    var letters: Int

    init(_ text: String) {
      self.text = text
      pieces = text.split(separator: "…").map { Array(String($0).utf8CString) }
      letters = Self.letters(of: text)
    }

    static func letters(of text: String) -> Int { text.utf8.count { $0 < 0x80 && $0 != UInt8(ascii: " ") } }

    /// Whether the pieces stand in the message in this order.
    func stands(in message: Message) -> Bool {
      // Most do not begin to.
      guard let first = pieces.first, strstr(message.bytes, first) != nil else { return false }
      var rest = message.text[...]
      for piece in text.split(separator: "…") {
        guard let range = rest.firstRange(of: piece) else { return false }
        rest = rest[range.upperBound...]
      }
      return true
    }
  }

  private struct Message {
    var text: String
    var bytes: [CChar]
    init(_ text: String) {
      self.text = text
      bytes = Array(text.utf8CString)
    }
  }

  private static let document = "docs/TROUBLESHOOTING.md"

  private static func explained() throws -> [Explained] {
    var found: [Explained] = []
    var isTable = false
    for line in try DocumentTests.text(document).split(separator: "\n", omittingEmptySubsequences: false) {
      guard line.hasPrefix("|") else {
        isTable = false
        continue
      }
      let cell = line.dropFirst().prefix { $0 != "|" }
      if cell == " message " {
        isTable = true
      } else if isTable {
        found += cell.matches(of: #/``\s?(.+?)\s?``|`([^`]+)`/#).map { Explained(String($0.1 ?? $0.2 ?? "")) }
      }
    }
    return found
  }

  @Test("Every message is explained in docs/TROUBLESHOOTING.md")
  func everyMessageIsExplained() throws {
    let explained = try Self.explained()
    let messages = try SourceMessages.read().messages
    #expect(explained.count > 500 && messages.count > 900, "the messages were not found")
    for message in messages {
      let read = Message(message.text)
      let half = Explained.letters(of: message.text) / 2
      // Part of a message explains it if it is no common word: nine letters, or half of it.
      let isExplained = explained.contains { $0.letters >= min(9, half) && $0.stands(in: read) }
      #expect(
        isExplained,
        """
        \(message.file) has the message "\(message.text)", and \(Self.document) does not explain it. Put the words of \
        it that never vary into the table of its symptom, with what it means and what to do. If no user can meet it, \
        say so in SourceMessages.
        """)
    }
  }

  @Test("docs/TROUBLESHOOTING.md explains no message that is gone")
  func everyExplanationIsOfAMessage() throws {
    let sources = try SourceMessages.read()
    let all = (sources.messages + sources.other).map { Message($0.text) }
    for explained in try Self.explained() {
      let isThere = all.contains { explained.stands(in: $0) }
      #expect(isThere, "no message has \"\(explained.text)\", which \(Self.document) explains")
    }
  }
}
