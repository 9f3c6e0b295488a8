import TestSupport
import Testing

@testable import Storing

/// What rules match, and which of them applies.
@Suite struct RuleTables {
  @Test(
    "What a path and a pattern match",
    arguments: [
      ("", "a/b", true), ("shows", "shows/s1/a.mkv", true), ("shows", "shows", true), ("shows", "shows2/a.mkv", false),
      ("shows/s1", "shows/s1/a.mkv", true), ("a.mkv", "shows/a.mkv", false),
      // Without a slash, in every folder; with one, from the root.
      ("*.mkv", "a.mkv", true), ("*.mkv", "shows/s1/a.mkv", true), ("*.mkv", "a.mkv.txt", false),
      ("*.mkv", "box.mkv/inside.txt", true), ("shows/*.mkv", "shows/a.mkv", true),
      ("shows/*.mkv", "shows/s1/a.mkv", false), ("shows/*", "shows/s1/a.mkv", true), ("s*/s1", "shows/s1/a.mkv", true),
      ("s*/s1", "movies/s1/a.mkv", false),
      // Folders.
      ("shows/**", "shows/s1/a.mkv", true), ("shows/**", "shows", false), ("shows/**/a.mkv", "shows/a.mkv", true),
      ("shows/**/a.mkv", "shows/s1/x/a.mkv", true), ("shows/**/a.mkv", "shows/s1/b.mkv", false),
      ("**/s1/**/a.mkv", "shows/s1/s1/x/a.mkv", true), ("**/b/c", "a/b/b/c/d", true), ("**/b/c", "a/b/d/c", false),
      // One name.
      ("?.mkv", "é.mkv", true), ("?.mkv", "ab.mkv", false), ("[a-c]x", "bx", true), ("[a-c]x", "dx", false),
      ("[!a-c]x", "dx", true), ("[^a-c]x", "ax", false), ("[]x]a", "]a", true), ("[a-]x", "-x", true),
      ("a*b*c", "aXbYbZc", true), ("a*b*c", "aXbYbZ", false), ("a?*", "a", false), ("*", "x/y", true),
      // A bracket without its end, and characters that stand for themselves.
      ("a[b", "a[b", true), ("\\*x", "*x", true), ("\\*x", "ax", false), ("[\\]]x", "]x", true),
    ])
  func matches(_ text: String, _ path: String, _ isMatch: Bool) throws {
    let pattern = try PathPattern(text)
    #expect(pattern.isFor(path) == isMatch)
    #expect((Rules([rule(try PathPattern(text), 1)]).rule(.storage, for: path) != nil) == isMatch)
    if isMatch { #expect(pattern.folder.isEmpty || path.hasPrefix(pattern.folder), "the walk for it begins elsewhere") }
  }

  @Test("A path with any characters is meant literally", arguments: ["a [1080p].mkv", "*", "a?b/[x]", "back\\slash"])
  func literal(_ path: String) throws {
    let pattern = PathPattern(path: path)
    #expect(pattern.path == path)
    #expect(try PathPattern(pattern.text).path == path, "the catalog's text is another path")
    #expect(pattern.isFor(path) && !pattern.isFor("x" + path))
  }

  @Test("Names that differ only in their normalization are different")
  func normalization() throws {
    let rules = Rules([rule(PathPattern(path: "caf\u{E9}"), 1)])
    #expect(rules.rule(.storage, for: "caf\u{E9}") != nil)
    #expect(rules.rule(.storage, for: "cafe\u{301}") == nil)
  }

  @Test("No pattern takes long, whatever it is")
  func hostile() throws {
    let stars = try PathPattern(String(repeating: "a*", count: 1000) + "b")
    #expect(!stars.isFor(String(repeating: "a", count: 250)))
    let folders = try PathPattern(String(repeating: "**/a/", count: 400) + "b")
    #expect(!folders.isFor(String(repeating: "a/", count: 1500) + "c"))
    #expect(throws: PathPattern.Problem.tooLong) { try PathPattern(String(repeating: "a", count: 4096)) }
    #expect(throws: PathPattern.Problem.classes) { try PathPattern("[[:digit:]]x") }
  }

  /// The rules in the order in which they were given, a path, and the one that applies.
  @Test(
    "The more specific rule applies, then the later one",
    arguments: [
      (["", "shows"], "shows/a.mkv", "shows"), (["shows", ""], "shows/a.mkv", "shows"),
      (["shows/s1", "shows"], "shows/s1/a.mkv", "shows/s1"),
      (["shows/s1/a.mkv", "shows/s1/*"], "shows/s1/a.mkv", "shows/s1/a.mkv"),
      (["shows/*", "shows"], "shows/a.mkv", "shows/*"), (["*.mkv", "shows"], "shows/a.mkv", "shows"),
      (["shows", "*.mkv"], "shows/a.mkv", "shows"), (["*.mkv", ""], "a.mkv", "*.mkv"),
      (["shows/**", "shows/*"], "shows/a.mkv", "shows/*"), (["*.mkv", "a*"], "a.mkv", "a*"),
      (["a*", "*.mkv"], "a.mkv", "*.mkv"), (["shows/s1", "shows/s1/a.mkv"], "shows/s1/b.mkv", "shows/s1"),
    ])
  func precedence(_ texts: [String], _ path: String, _ applies: String) throws {
    var rules = Rules()
    for (number, text) in texts.enumerated() { rules.set(rule(try PathPattern(text), Int64(number))) }
    #expect(rules.rule(.storage, for: path)?.pattern.text == applies)
    #expect(rules.rule(.downloads, for: path) == nil, "a rule about storage pauses a file")
  }

  @Test("A rule for the same pattern replaces the one before, and goes when it is removed")
  func replaces() throws {
    for text in ["shows", "*.mkv"] {
      var rules = Rules([rule(try PathPattern(text), 1, .keep)])
      rules.set(rule(try PathPattern(text), 2, .online))
      #expect(rules.all.map(\.number) == [2])
      #expect(rules.verdict(for: "shows/a.mkv") == FileRules(storage: .online))
      #expect(rules.remove(.storage, try PathPattern(text))?.number == 2)
      #expect(rules.isEmpty && rules.verdict(for: "shows/a.mkv") == FileRules())
    }
  }

  @Test("A resource under several paths is kept if one of them is, and online or paused if all are")
  func severalPaths() throws {
    var rules = Rules([rule(PathPattern(path: "a"), 1, .keep), rule(PathPattern(path: "b"), 2, .online)])
    rules.set(PathRule(subject: .downloads, pattern: PathPattern(path: "a"), value: 1, number: 3))
    #expect(rules.verdict(for: ["a", "b"]) == FileRules(storage: .keep))
    #expect(rules.verdict(for: ["b", "c"]) == FileRules())
    #expect(rules.verdict(for: ["a"]) == FileRules(storage: .keep, isPaused: true))
    #expect(rules.verdict(for: ["b"]) == FileRules(storage: .online))
    #expect(rules.verdict(for: [String]()) == FileRules())
  }

  @Test("Whether another rule is behind one is what a look at all of them says")
  func behind() throws {
    var random = SeededRandom(seed: 12)
    let texts = ["", "a", "b", "a/a", "a/b", "a/a/a", "b/a/b", "*", "a*", "a/*", "*/a", "**/a/*", "a/**"]
    for _ in 0..<2000 {
      var rules = Rules()
      for number in 0..<Int64.random(in: 0...6, using: &random) {
        let pattern = try PathPattern(texts[Int.random(in: texts.indices, using: &random)])
        rules.set(rule(pattern, number, Bool.random(using: &random) ? .keep : .auto))
        if Int.random(in: 0...4, using: &random) == 0 { rules.remove(.storage, pattern) }
      }
      let asked = rule(try PathPattern(texts[Int.random(in: texts.indices, using: &random)]), 9, .auto)
      rules.remove(.storage, asked.pattern)
      let above = rules.all.filter { $0.pattern.path != nil && $0.pattern.isFor(asked.pattern.path ?? "/") }
        .max { $0.pattern.depth < $1.pattern.depth }
      let isException = rules.all.contains { other in
        !other.isDefault && asked.precedes(other) && (asked.pattern.path == nil || other.pattern.path == nil)
      }
      let said = rules.all.map { "\($0.pattern.text) \($0.value)" }
      #expect(
        rules.hasException(behind: asked) == (isException || asked.pattern.path != nil && above?.isDefault == false),
        "\(asked.pattern.text) among \(said)")
      #expect(rules.hasExceptions(.storage) == rules.all.contains { !$0.isDefault }, "\(said)")
    }
  }

  @Test("The folders of the rules that keep hold no other of them")
  func folders() throws {
    var rules = Rules()
    for (number, text) in ["a/b", "a", "ab/c*", "x/y/*.mkv", "x/y/z"].enumerated() {
      rules.set(rule(try PathPattern(text), Int64(number), .keep))
    }
    rules.set(rule(try PathPattern("elsewhere"), 9, .online))
    #expect(rules.folders(.storage, value: 1) == ["a", "ab", "x/y"])
    rules.set(rule(try PathPattern("*.flac"), 10, .keep))
    #expect(rules.folders(.storage, value: 1) == [""])
  }

  private func rule(_ pattern: PathPattern, _ number: Int64, _ value: StorageRule = .keep) -> PathRule {
    PathRule(subject: .storage, pattern: pattern, value: value.rawValue, number: number)
  }

  @Test("The catalog has the rules after it is opened again, and leaves out what it does not know")
  func catalog() throws {
    let folder = CatalogFolder()
    do {
      let catalog = try folder.open()
      try catalog.changes.apply(
        [
          .rule(.set(rule(try PathPattern("*.mkv"), 1))), .rule(.set(rule(PathPattern(path: "a [1]"), 2, .online))),
          .rule(.set(PathRule(subject: .downloads, pattern: PathPattern(path: ""), value: 1, number: 3))),
          .rule(.set(rule(try PathPattern("gone"), 4))), .rule(.remove(.storage, try PathPattern("gone"))),
        ], durably: true)
    }
    let catalog = try folder.open()
    let rules = try catalog.notes.rules()
    #expect(rules.all.map(\.pattern.text) == ["*.mkv", "a \\[1]", ""])
    #expect(rules.verdict(for: "a [1]") == FileRules(storage: .online, isPaused: true))
    // What a newer program may write, or a damaged catalog has.
    for row in ["0, 'x', 7, 5", "9, 'y', 0, 6", "0, '[[:alpha:]]', 1, 7"] {
      try catalog.connections.withWriter { (connection, _) throws(StoreError) in
        try connection.run("INSERT INTO rule VALUES(\(row))")
      }
    }
    #expect(try catalog.notes.rules().all.count == 3)
  }
}
