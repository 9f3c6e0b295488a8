import Base
import TestSupport
import Testing

/// What the sources declare, for documents that name it.
private struct SourceTree {
  /// Every file and folder of the project, from its root.
  var paths: Set<String> = []
  /// Every type that a Swift file declares, and every target.
  var types: Set<String> = []
  /// What the files that declare or extend a type declare. More than its members: enough to find a name that is gone.
  var members: [String: Set<String>] = [:]

  /// `reading`: what the Swift files declare, too.
  init(reading: Bool) throws {
    let root = DocumentTests.root
    let found = try Command.succeed([
      "find", root, "-mindepth", "1", "-not", "-path", "*/.build*", "-not", "-path", "*/.git/*",
    ])
    paths = Set(found.split(separator: "\n").map { String($0.dropFirst(root.count + 1)) })
    if !reading { return }
    for folder in paths where folder.hasPrefix("Sources/") || folder.hasPrefix("Tests/") {
      let parts = folder.split(separator: "/")
      if parts.count == 2 { types.insert(String(parts[1])) }
    }
    for path in paths where path.hasSuffix(".swift") { read(try DocumentTests.text(path)) }
  }

  private mutating func read(_ text: String) {
    var here: Set<String> = []
    var declared: Set<String> = []
    // By bytes: by characters it takes ten times as long.
    for line in text.utf8.split(separator: UInt8(ascii: "\n")) {
      let words = line.split { !isOfName($0) }.map(Substring.init)
      for (word, name) in zip(words, words.dropFirst()) {
        switch word {
        case "struct", "class", "enum", "protocol", "actor", "typealias":
          types.insert(String(name))
          here.insert(String(name))
        case "extension": here.insert(name.split(separator: ".").last.map(String.init) ?? "")
        case "func", "var", "let": declared.insert(String(name))
        default: break
        }
      }
      if let initializer = words.first(where: { $0 == "init" }) { declared.insert(String(initializer)) }
      if words.first == "case" { declared.formUnion(words.dropFirst().map(String.init)) }
    }
    for type in here { members[type, default: []].formUnion(declared.union(here)) }
  }

  /// Why `name`, which looks like a type or a member of one, is not found; nil when it is.
  func objection(to name: Substring, _ member: Substring?) -> String? {
    guard types.contains(String(name)) else { return "there is no type \(name)" }
    guard let member, let known = members[String(name)], !known.contains(String(member)) else { return nil }
    return "\(name) has no \(member)"
  }

  /// Whether there is a file of that path, or of that end of a path; a Swift file also without its extension.
  func has(_ path: some StringProtocol) -> Bool {
    let path = String(path.last == "/" ? path.dropLast() : path[...])
    return [path, path + ".swift"].contains { path in
      paths.contains(path) || paths.contains { $0.hasSuffix("/" + path) }
    }
  }
}

/// Whether a byte may stand in a name, or between a type and its member.
private func isOfName(_ byte: UInt8) -> Bool {
  switch byte {
  case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
  case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "."): true
  default: false
  }
}

/// The documents name types and files that exist, link to files that exist, and keep to a line's width.
extension DocumentTests {
  private static let width = 120
  /// Words in backticks that look like a type of ours: fields of HTTP, Swift's own types.
  private static let foreign: Set<String> = [
    "Range", "Referer", "Location", "String", "Sendable", "Mutex", "Synchronization",
  ]
  /// Not written by hand.
  private static let ofAnyWidth: Set<String> = ["docs/BENCHMARKS.md", "docs/BENCHMARKS-FLEET.md"]

  private static func documents(_ places: [String]) throws -> [String] {
    let found = try Command.succeed(
      ["find"] + places.map { "\(root)/\($0)" } + ["-name", "*.md", "-not", "-path", "*/.build/*"])
    return found.split(separator: "\n").map { String($0.dropFirst(root.count + 1)) }.sorted()
  }

  @Test func everyTypeAndFileThatIsNamedExists() throws {
    let tree = try SourceTree(reading: true)
    let documents = try Self.documents(["docs/ARCHITECTURE.md", "docs/DEVELOPMENT.md", "docs/decisions"])
    #expect(documents.count > 12 && tree.types.count > 300, "the documents or the sources were not found")
    var types = 0
    var files = 0
    for document in documents {
      for line in try Self.text(document).split(separator: "\n") {
        // In a drawing or an example nothing is in backticks: there, names of two words and members count.
        let isCode = line.hasPrefix("    ")
        let spans = isCode ? line.matches(of: #/[\w\/.+-]+/#).map(\.0) : line.matches(of: #/`([^`]+)`/#).map(\.1)
        let name =
          isCode
          ? #/([A-Z][a-z0-9]+[A-Z]\w+|[A-Z][a-z]\w*(?=\.[a-z]))(?:\.([a-z]\w*))?.*/#
          : #/([A-Z]\w*[a-z]\w*)(?:\.([a-z]\w*))?(?:[(<:].*)?/#
        for span in spans {
          if let path = span.wholeMatch(of: #/(?:(\.?\w[\w.-]*)\/)?[\w.\/+-]*?(\.swift|\.md|\.py)?/#)?.output {
            let isOurs = path.1.map { tree.paths.contains(String($0)) && !$0.isEmpty } ?? false
            if path.2 != nil || isOurs, Self.tests(in: span).isEmpty {
              files += 1
              let exists = tree.has(span)
              #expect(exists, "\(document) names \(span), and there is no such file")
              continue
            }
          }
          guard let match = span.wholeMatch(of: name), !Self.foreign.contains(String(match.1)) else { continue }
          types += 1
          let objection = tree.objection(to: match.1, match.2)
          #expect(objection == nil, "\(document) names \(span)")
        }
      }
    }
    #expect(types > 100 && files > 20, "only \(types) types and \(files) files were found in the documents")
  }

  @Test func everyLinkLeadsToAFile() throws {
    let tree = try SourceTree(reading: false)
    var links = 0
    for document in try Self.documents([""]) {
      for match in try Self.text(document).matches(of: #/\]\(([^)\s]+)\)/#) where !match.1.contains("://") {
        var parts = document.split(separator: "/").dropLast().map(String.init)
        for part in match.1.prefix(while: { $0 != "#" }).split(separator: "/") {
          if part == ".." { parts.removeLast() } else { parts.append(String(part)) }
        }
        links += 1
        let path = parts.joined(separator: "/")
        let target = match.1.hasPrefix("#") ? document : path
        let exists = tree.paths.contains(target)
        #expect(exists, "\(document) links to \(match.1)")
        guard exists, let mark = match.1.firstIndex(of: "#") else { continue }
        let heading = String(match.1[match.1.index(after: mark)...])
        #expect(try Self.headings(of: target).contains(heading), "\(document) links to \(match.1)")
      }
    }
    #expect(links > 20, "only \(links) links were found")
  }

  /// The headings of a document as links name them.
  private static func headings(of document: String) throws -> [String] {
    try text(document).split(separator: "\n").filter { $0.hasPrefix("#") }.map { line in
      line.drop { $0 == "#" || $0 == " " }.lowercased().filter { $0.isLetter || $0.isNumber || " -_".contains($0) }
        .replacing(" ", with: "-")
    }
  }

  @Test func everyLineKeepsToTheWidth() throws {
    for document in try Self.documents([""]) where !Self.ofAnyWidth.contains(document) {
      let lines = try Self.text(document).split(separator: "\n", omittingEmptySubsequences: false)
      for (index, line) in lines.enumerated() where line.count > Self.width && !line.hasPrefix("|") {
        // A link or a word that is wider than a line has nowhere to be broken.
        let rest = line.replacing(#/^ *([-*] +)?/#, with: "").replacing(#/\[[^\]]*\]\([^)]*\)|`[^`]*`/#, with: "x")
        #expect(!rest.contains(" "), "\(document):\(index + 1) has \(line.count) columns, more than \(Self.width)")
      }
    }
  }

  /// The tests that a span names: `FaultTests/MirrorTests.secrets` is no path.
  private static func tests(in span: Substring) -> [Substring] {
    span.wholeMatch(of: #/(\w+Tests)\/\w+\.\w+/#).map { [$0.1] } ?? []
  }
}
