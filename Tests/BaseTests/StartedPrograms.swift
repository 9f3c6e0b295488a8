import Base

/// The words of a source that name a program to start: the first of a list of arguments, what is looked for in PATH,
/// and in shell text each word that stands where a command does. Words that are no program's name may be among them.
enum StartedPrograms {
  static func words(in text: String, of file: String) -> Set<String> {
    let words =
      if file.hasSuffix(".swift") {
        words(in: Literals.read(text, quotes: "\"", comment: "//"), shells: ["sh(", "shell(", "start(", "run("])
      } else if file.hasSuffix(".py") {
        words(in: Literals.read(text, quotes: "\"'", comment: "#"))
      } else {
        commands(inShell: text)
      }
    return words.filter { $0.wholeMatch(of: #/[A-Za-z][\w.+-]*/#) != nil }
  }

  /// - Parameter shells: what is given shell text.
  private static func words(in literals: [Literals.Literal], shells: [String] = []) -> Set<String> {
    var found: Set<String> = []
    var head = ""
    var previous = ""
    for literal in literals {
      if literal.isHead {
        head = String(literal.text.split(separator: "/").last ?? "")
        found.insert(head)
      } else if literal.follows(["exists(", "which(", "path(of:"]) {
        found.insert(literal.text)
      } else if literal.follows(shells) || previous == "-c" && head.hasSuffix("sh") {
        found.formUnion(commands(inShell: literal.text))
      } else if literal.isBlock {
        let isPython = literal.text.contains("import ")
        found.formUnion(
          isPython
            ? words(in: Literals.read(literal.text, quotes: "\"'", comment: "#")) : commands(inShell: literal.text))
      }
      previous = literal.text
    }
    return found
  }

  /// Here-documents, comments and what is in single quotes are left out.
  private static func commands(inShell text: String) -> Set<String> {
    let bare = text.replacing("\\n", with: "\n").replacing("\\\n", with: " ")
      .replacing(#/<<-?(\w+)\n(?s:.*?)\n\s*\1\b/#, with: "").replacing(#/(?m:(^|\s)#.*$)/#, with: "")
      .replacing(#/'[^']*'/#, with: "''")
    var found: Set<String> = []
    for line in bare.split(whereSeparator: { "\n|;&({`".contains($0) }) {
      var words = line.split(whereSeparator: { $0 == " " || $0 == "\t" })[...]
      // What stands before a command: another that starts it, a word of the shell's, a variable that is set for it.
      while let word = words.first {
        let isVariable = word.prefixMatch(of: #/[A-Za-z_]\w*=/#) != nil || word.hasSuffix("[@]}\"")
        guard isVariable || before.contains(word) || word.hasPrefix("-") || word.allSatisfy(\.isNumber) else { break }
        found.insert(String(word))
        words = words.dropFirst()
      }
      if let word = words.first { found.insert(String(word.split(separator: "/").last ?? "").filter { $0 != ")" }) }
    }
    return found
  }

  private static let before: Set<Substring> = [
    "then", "do", "else", "elif", "if", "while", "until", "!", "@", "exec", "xargs", "env", "sudo", "timeout", "run",
  ]
}

/// The string literals of a Swift or Python source.
enum Literals {
  struct Literal {
    /// The code since the literal before, without spaces at its end.
    var code: Substring
    var text: String
    /// In triple quotes.
    var isBlock: Bool

    func follows(_ ends: [String]) -> Bool { ends.contains { code.hasSuffix($0) } }

    /// Whether it is the first of a list that may be arguments: not a subscript, a test's cases, or what is compared.
    var isHead: Bool {
      guard code.last == "[" else { return false }
      let rest = code.dropLast()
      if let last = rest.last, last.isLetter || last.isNumber || "_])?!".contains(last) { return false }
      return !rest.hasSuffix("arguments: ") && !rest.hasSuffix("== ")
    }
  }

  static func read(_ text: String, quotes: String, comment: String) -> [Literal] {
    let bytes = Array(text.utf8)
    let marks = Array(comment.utf8)
    var literals: [Literal] = []
    var code: [UInt8] = []
    var index = 0
    while index < bytes.count {
      if bytes[index...].starts(with: marks) {
        while index < bytes.count, bytes[index] != UInt8(ascii: "\n") { index += 1 }
      } else if quotes.utf8.contains(bytes[index]) {
        let hashes = code.reversed().prefix { $0 == UInt8(ascii: "#") }.count
        let isBlock = bytes[index...].starts(with: [bytes[index], bytes[index], bytes[index]])
        let quote = [UInt8](repeating: bytes[index], count: isBlock ? 3 : 1)
        let start = index + quote.count
        let end = self.end(in: bytes, from: start, at: quote + [UInt8](repeating: UInt8(ascii: "#"), count: hashes))
        let before = String(decoding: code.dropLast(hashes), as: UTF8.self)
        literals.append(
          Literal(
            code: before[..<(before.lastIndex { !$0.isWhitespace }.map(before.index(after:)) ?? before.startIndex)],
            text: String(decoding: bytes[start..<end], as: UTF8.self), isBlock: isBlock))
        code = []
        index = min(bytes.count, end + quote.count + hashes)
      } else {
        code.append(bytes[index])
        index += 1
      }
    }
    return literals
  }

  /// Where the literal that begins at `start` ends: at `close`, or with its line, but not within an interpolation.
  private static func end(in bytes: [UInt8], from start: Int, at close: [UInt8]) -> Int {
    var index = start
    var depth = 0
    let isRaw = close.last == UInt8(ascii: "#")
    while index < bytes.count {
      let byte = bytes[index]
      if depth == 0, bytes[index...].starts(with: close) { return index }
      if byte == UInt8(ascii: "\n"), close[0] != close.dropFirst().first { return index }
      if byte == UInt8(ascii: "\\"), !isRaw, depth == 0 {
        index += 1
        if index < bytes.count, bytes[index] == UInt8(ascii: "(") { depth = 1 }
      } else if depth > 0 {
        if byte == UInt8(ascii: "(") { depth += 1 }
        if byte == UInt8(ascii: ")") { depth -= 1 }
      }
      index += 1
    }
    return bytes.count
  }
}
