import Base
import TestSupport

/// A text of the sources that a user can meet: of an error, a warning, the log, or what a command answers.
struct SourceMessage {
  var file: String
  /// In one line, with `…` for what the program puts in.
  var text: String
}

/// Finds the messages in the sources. Nothing marks them there: a literal of three words or more is one, unless the
/// code before it, or where it stands, says that no user reads it as a message.
enum SourceMessages {
  /// Files whose sentences are no messages.
  private static let silent: [String: String] = [
    "Sources/Server/MetricsText.swift": "the help of Prometheus' metrics",
    "Sources/Server/MountOptionTable.swift": "the help of mount's options",
    "Sources/Server/KernelFeatures.swift": "what --version says of the kernel",
    "Sources/mediafs/VersionText.swift": "what --version says",
    "Sources/mediafs/ShareText.swift": "what `share` counts: its errors are elsewhere",
    "Sources/mediafs/Completion/BashCompletion.swift": "a script of bash",
    "Sources/mediafs/Completion/FishCompletion.swift": "a script of fish",
    "Sources/mediafs/Completion/ZshCompletion.swift": "a script of zsh",
    "Sources/Manifest/FileTypeNames.swift": "names of file types",
    "Sources/Storing/Catalog/Schema.swift": "SQL",
  ]
  /// Folders in which only the errors are messages. `top` labels its screen, and quotes what the server says. `doctor`
  /// needs no rows: a note or a problem cannot be made without what to do (`Finding`).
  private static let screens = ["Sources/mediafs/Top/", "Sources/mediafs/Doctor/"]
  /// Literals that are no messages, where nothing but their words shows it.
  private static let silentTexts: Set<String> = [
    "the folders are not as they were shown",  // an import of the whole list follows
    "Directory listing for /", "Plex Media Scan",  // what other programs write
    "the fleet's store",  // a key that no origin has
    // The summaries of keep, auto, online, pause and resume, and a line of mount's help.
    "Download files whole and never evict them", "Store what programs read (the default)", "Store nothing of files",
    "Pause background downloads", "Let paused downloads go on",
    "The options above, under their long names. Write a comma in a value as \\,",
  ]

  /// The messages of the program, the mount helper, the resolver and the package; in `other`, all other literals.
  static func read() throws -> (messages: [SourceMessage], other: [SourceMessage]) {
    let root = DocumentTests.root
    let found = try Command.succeed([
      "find", "\(root)/Sources", "\(root)/mount-helper", "\(root)/Resolvers", "\(root)/debian", "-name", "*.swift",
      "-o", "-name", "*.c", "-o", "-path", "*/Resolvers/*", "-type", "f", "-o", "-path", "*/debian/mediafs.p*",
    ])
    var messages: [SourceMessage] = []
    var other: [SourceMessage] = []
    for path in found.split(separator: "\n") {
      let file = String(path.dropFirst(root.count + 1))
      let isSilent = silent[file] != nil
      for (text, isMessage) in texts(of: file, try DocumentTests.text(file)) {
        let message = SourceMessage(file: file, text: text)
        if isMessage && !isSilent { messages.append(message) } else { other.append(message) }
      }
    }
    return (messages, other)
  }

  private static func texts(of file: String, _ source: String) -> [(text: String, isMessage: Bool)] {
    if file.hasPrefix("debian/") {
      return source.matches(of: #/\becho (?:'([^']*)'|"((?:[^"\\]|\\.)*)")/#).map { match in
        words(plain(String(match.1 ?? match.2 ?? "")).replacing(#/\$(?:\{[^}]*\}|\w+)/#, with: "…"))
      }
    }
    if file.hasPrefix("Resolvers/") {
      return Literals.read(source, quotes: "\"'", comment: "#").filter { !$0.isBlock }.map { literal in
        words(plain(literal.text).replacing(#/\{[^{}]*\}/#, with: "…"))
      }
    }
    let isScreen = screens.contains { file.hasPrefix($0) }
    var found: [(code: Substring, text: String, isHelp: Bool)] = []
    var depth = 0  // of the parentheses of a CommandHelp; 0 outside of one
    for literal in Literals.read(source, quotes: "\"", comment: "//") {
      // A text goes on in the next literal: with `+` in Swift, without anything in C.
      let between = literal.code.filter { !$0.isWhitespace }
      if !found.isEmpty, between.isEmpty || between == "+" {
        found[found.count - 1].text += plain(literal.text)
        continue
      }
      var code = literal.code
      if depth == 0, let start = code.firstRange(of: "CommandHelp(") {
        depth = 1
        code = code[start.upperBound...]
      }
      for character in code.utf8 where depth > 0 {
        if character == UInt8(ascii: "(") { depth += 1 }
        if character == UInt8(ascii: ")") { depth -= 1 }
      }
      found.append((literal.code, plain(literal.text), depth > 0))
    }
    return found.map { code, text, isHelp in
      var text = text.split(whereSeparator: \.isWhitespace).joined(separator: " ")
      if file.hasSuffix(".c") { text = text.replacing(#/%[-0-9.]*(?:ll|l|z)?[a-z]/#, with: "…") }
      let isShown = isScreen && ![".failed(", ".usage("].contains { code.hasSuffix($0) }
      return (text, !isHelp && !isShown && isMessage(text, after: code))
    }
  }

  /// A text, which is a message if it has words enough.
  private static func words(_ text: String) -> (text: String, isMessage: Bool) {
    (text, text.matches(of: #/\b[A-Za-z][a-z']+\b/#).count >= 3 && text.count(where: { $0 == " " }) >= 2)
  }

  private static func isMessage(_ text: String, after code: Substring) -> Bool {
    if !words(text).isMessage { return false }
    if silentTexts.contains(text) { return false }
    // For developers: what -v -v logs, and what must not be.
    let line = code.split(separator: "\n").last ?? ""
    if line.contains(#/(?:Log\.debug|\b\w*[aA]ssert(?:ionFailure)?|precondition(?:Failure)?|fatalError)\(/#) {
      return false
    }
    // SQL, XML, fields of HTTP, and sentences of the help, which begin with a capital letter and end with a full stop.
    let isSQL = text.prefixMatch(of: #/(?:[A-Z]{4,}|… WHERE|…, … FROM|e\.id,) .*(?:\(|=|SET |INTO |FROM )/#) != nil
    let isHelp = text.wholeMatch(of: #/[A-Z][a-z].*[.:]/#) != nil
    return !isSQL && !isHelp && !text.hasPrefix("<?xml") && !text.contains(";q=")
  }

  /// A literal with its escapes resolved, and `…` for each interpolation.
  private static func plain(_ literal: String) -> String {
    var text: [UInt8] = []
    let bytes = Array(literal.utf8)
    var index = 0
    while index < bytes.count {
      guard bytes[index] == UInt8(ascii: "\\"), index + 1 < bytes.count else {
        text.append(bytes[index])
        index += 1
        continue
      }
      index += 2
      switch bytes[index - 1] {
      case UInt8(ascii: "("):
        var depth = 1
        while index < bytes.count, depth > 0 {
          if bytes[index] == UInt8(ascii: "(") { depth += 1 }
          if bytes[index] == UInt8(ascii: ")") { depth -= 1 }
          index += 1
        }
        text += "…".utf8
      case UInt8(ascii: "n"), UInt8(ascii: "t"), UInt8(ascii: "0"), UInt8(ascii: "\n"): text.append(UInt8(ascii: " "))
      default: text.append(bytes[index - 1])
      }
    }
    return String(decoding: text, as: UTF8.self)
  }
}
