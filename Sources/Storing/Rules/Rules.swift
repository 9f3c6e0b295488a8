import Base

/// What a user wants for a path, a folder or a pattern. Each subject has rules of its own.
package enum RuleSubject: Int64, Sendable, CaseIterable {
  /// What is stored: a ``StorageRule``.
  case storage = 0
  /// Whether what no reader waits for is downloaded: a ``DownloadRule``.
  case downloads = 1
}

/// What of a file is stored.
package enum StorageRule: Int64, Sendable {
  /// What programs read, and the rest as the mount's policy says.
  case auto = 0
  /// All of it, now, and nothing of it is evicted.
  case keep = 1
  /// Nothing: bytes go to readers through memory.
  case online = 2
}

/// Whether a file's background downloads run.
package enum DownloadRule: Int64, Sendable {
  case run = 0
  case paused = 1
}

/// One rule.
package struct PathRule: Sendable {
  /// What it is about.
  package var subject: RuleSubject
  /// For which entries it is.
  package var pattern: PathPattern
  /// The raw value of a ``StorageRule`` or ``DownloadRule``.
  package var value: Int64
  /// A later rule has a greater number.
  package var number: Int64

  /// A rule with these values.
  package init(subject: RuleSubject, pattern: PathPattern, value: Int64, number: Int64) {
    self.subject = subject
    self.pattern = pattern
    self.value = value
    self.number = number
  }

  /// Whether it goes before `other` where both match: it gives more names, or as many and all of them whole, or it is
  /// the later one.
  package func precedes(_ other: PathRule) -> Bool {
    let (mine, theirs) = (pattern.path == nil ? 0 : 1, other.pattern.path == nil ? 0 : 1)
    return (pattern.depth, mine, number) > (other.pattern.depth, theirs, other.number)
  }

  /// Whether it says what holds without any rule.
  package var isDefault: Bool { value == 0 }
}

/// What the rules say of one file.
package struct FileRules: Sendable, Equatable {
  /// What of it is stored.
  package var storage = StorageRule.auto
  /// Whether a user paused its downloads.
  package var isPaused = false

  /// Those of a file without a rule, unless values are given.
  package init(storage: StorageRule = .auto, isPaused: Bool = false) {
    self.storage = storage
    self.isPaused = isPaused
  }
}

/// The rules of a mount. Pure.
package struct Rules: Sendable {
  /// The most rules of all kinds: each is in memory.
  package static let most = 10_000
  /// The most patterns: each is compared with each path that is asked for.
  package static let mostPatterns = 256

  private struct Book: Sendable {
    /// By the bytes of the path: to a String, names that differ only in their normalization are equal.
    private(set) var paths: [[UInt8]: PathRule] = [:]
    /// Of the rules in `paths` that say something else than the default, how many have paths of so many names.
    private(set) var exceptions: [Int: Int] = [:]
    /// The first goes before the others.
    var patterns: [PathRule] = []

    var all: [PathRule] { paths.values + patterns }
    var hasExceptions: Bool { !exceptions.isEmpty || patterns.contains { !$0.isDefault } }

    /// Puts a rule in the place of the one for that path; nil: none. Returns the former one.
    mutating func replace(at path: String, _ rule: PathRule?) -> PathRule? {
      let former = paths[Array(path.utf8)]
      paths[Array(path.utf8)] = rule
      count(former, -1)
      count(rule, 1)
      return former
    }

    private mutating func count(_ rule: PathRule?, _ change: Int) {
      guard let rule, !rule.isDefault else { return }
      let depth = rule.pattern.depth
      let count = exceptions[depth, default: 0] + change
      exceptions[depth] = count == 0 ? nil : count
    }

    /// The rule for the longest path that is the one of `names` or of a folder above: it gives the most names.
    func pathRule(for names: some Sequence<Substring.UTF8View>) -> PathRule? {
      if paths.isEmpty { return nil }
      var found: PathRule?
      forEachPath(to: names) { found = paths[$0] ?? found }
      return found
    }

    func rule(for path: String) -> PathRule? {
      let names = path.utf8.split(separator: UInt8(ascii: "/"))
      let found = pathRule(for: names)
      if patterns.isEmpty { return found }
      let parts = names.map { Substring($0) }
      for rule in patterns {
        if let found, found.precedes(rule) { return found }
        if rule.pattern.matches(parts) { return rule }
      }
      return found
    }
  }

  private var books: [RuleSubject: Book] = [:]

  /// No rule.
  package init() {}

  /// These rules.
  package init(_ rules: some Sequence<PathRule>) { for rule in rules { set(rule) } }

  /// Whether there is none.
  package var isEmpty: Bool { books.values.allSatisfy { $0.paths.isEmpty && $0.patterns.isEmpty } }
  /// How many patterns there are.
  package var patternCount: Int { books.values.reduce(0) { $0 + $1.patterns.count } }
  /// How many there are.
  package var count: Int { books.values.reduce(0) { $0 + $1.paths.count + $1.patterns.count } }
  /// All of them, the earliest first.
  package var all: [PathRule] { books.values.flatMap(\.all).sorted { $0.number < $1.number } }
  /// Those about `subject`, the earliest first.
  package func all(_ subject: RuleSubject) -> [PathRule] {
    (books[subject]?.all ?? []).sorted { $0.number < $1.number }
  }
  /// Whether one about `subject` says something else than what holds without any.
  package func hasExceptions(_ subject: RuleSubject) -> Bool { books[subject]?.hasExceptions ?? false }
  /// Whether a rule that goes behind `rule` may say something else than the default of what `rule` is for. Of paths
  /// only those above may. It looks at no others: a request may change thousands of rules.
  package func hasException(behind rule: PathRule) -> Bool {
    guard let book = books[rule.subject] else { return false }
    if book.patterns.contains(where: { !$0.isDefault && rule.precedes($0) }) { return true }
    guard let path = rule.pattern.path else { return book.exceptions.keys.contains { $0 < rule.pattern.depth } }
    if path.isEmpty { return false }
    return book.pathRule(for: path.utf8.split(separator: UInt8(ascii: "/")).dropLast())?.isDefault == false
  }

  /// The rule that applies to the file at `path`; nil if none does.
  package func rule(_ subject: RuleSubject, for path: String) -> PathRule? { books[subject]?.rule(for: path) }

  /// The rule for that very pattern; of a path, whatever text it was given as.
  package func rule(_ subject: RuleSubject, of pattern: PathPattern) -> PathRule? {
    if let path = pattern.path { return books[subject]?.paths[Array(path.utf8)] }
    return books[subject]?.patterns.first { $0.pattern.hasText(of: pattern) }
  }

  /// What applies to the file at `path`.
  package func verdict(for path: String) -> FileRules {
    FileRules(
      storage: rule(.storage, for: path).flatMap { StorageRule(rawValue: $0.value) } ?? .auto,
      isPaused: rule(.downloads, for: path)?.value == DownloadRule.paused.rawValue)
  }

  /// What applies to a resource that is listed at all of `paths`: it is kept if one of them is, and online or paused if
  /// all of them are.
  package func verdict(for paths: [String]) -> FileRules {
    var all = paths.map { verdict(for: $0) }[...]
    guard var sum = all.popFirst() else { return FileRules() }
    for one in all {
      if sum.storage != one.storage { sum.storage = [sum.storage, one.storage].contains(.keep) ? .keep : .auto }
      sum.isPaused = sum.isPaused && one.isPaused
    }
    return sum
  }

  /// Adds a rule, or puts it in the place of the one for the same pattern.
  package mutating func set(_ rule: PathRule) {
    if let path = rule.pattern.path {
      _ = books[rule.subject, default: Book()].replace(at: path, rule)
    } else {
      remove(rule.subject, rule.pattern)
      var patterns = books[rule.subject]?.patterns ?? []
      patterns.insert(rule, at: patterns.firstIndex { rule.precedes($0) } ?? patterns.endIndex)
      books[rule.subject, default: Book()].patterns = patterns
    }
  }

  /// Removes the rule for that pattern. Returns it; nil if there was none.
  @discardableResult
  package mutating func remove(_ subject: RuleSubject, _ pattern: PathPattern) -> PathRule? {
    if let path = pattern.path { return books[subject]?.replace(at: path, nil) }
    guard let index = books[subject]?.patterns.firstIndex(where: { $0.pattern.hasText(of: pattern) }) else {
      return nil
    }
    return books[subject]?.patterns.remove(at: index)
  }

  /// The folders below which all files lie that a rule with that value may apply to: none lies in another.
  package func folders(_ subject: RuleSubject, value: Int64) -> [String] {
    PathPatterns.folders(of: all(subject).filter { $0.value == value }.map(\.pattern))
  }
}

extension PathPattern {
  /// Whether both have the same bytes: to a String, other texts may be equal too.
  package func hasText(of other: PathPattern) -> Bool { text.utf8.elementsEqual(other.text.utf8) }
}
