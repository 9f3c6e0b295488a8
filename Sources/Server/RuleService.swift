import Control
import Manifest
import Reading
import Storing

/// Rules over the control socket: what a user says of paths and patterns.
struct RuleService {
  let fileSystem: MediaFileSystem
  let catalog: Catalog

  /// Says `word` of paths and patterns, of all of them or of none. The rules hold also if nobody waits for the answer
  /// any more.
  func rule(_ word: RuleWord, _ paths: [String], isLeft: () -> Bool) throws(ControlFailure) -> RuleReport {
    let (subject, value) = word.rule
    let named = try patterns(paths, orRuled: word)
    do throws(StoreError) {
      try fileSystem.changeRules { (rules) throws(StoreError) in
        try Self.changed(rules, subject, value, named.all)
      }
    } catch {
      throw ControlFailure(.failed, error.message)
    }
    for pattern in named.all {
      fileSystem.happened(Happening(.rule, path: pattern.text, message: word.rawValue))
    }
    return try count(named, word, isLeft)
  }

  /// Ends the background downloads of the files that paths and patterns name.
  func cancel(_ paths: [String]) throws(ControlFailure) -> ClearReport {
    var named = try patterns(paths)
    var report = ClearReport()
    do throws(StoreError) {
      report.files = try fileSystem.cancel({ path in named.meet(path) }) { path, rule in
        report.keptFiles += 1
        if report.kept.count < ControlLimits.shown {
          let reason = "the rule to keep \(rule.pattern.shown) goes on: end it with 'mediafs auto'"
          report.kept.append(.init(path: path, reason: reason))
        }
      }
    } catch {
      throw ControlFailure(.failed, "cannot end downloads: \(error.message)")
    }
    return report
  }

  /// What the texts of a request name. Each name of the mount is compared with each pattern.
  private func patterns(_ texts: [String], orRuled word: RuleWord? = nil) throws(ControlFailure) -> PathPatterns {
    var named = PathPatterns()
    for text in texts { named.add(try pattern(text, orRuled: word)) }
    guard named.wildCount <= Rules.mostPatterns else {
      throw ControlFailure(
        .failed, "a request has at most \(Rules.mostPatterns) patterns with wildcards: name a folder, or ask twice")
    }
    return named
  }

  /// A path that exists is meant, whatever characters it has, or with a backslash before its special ones, as 'status'
  /// prints it. Any other text without a wildcard is more likely a mistake than a wish for what may come: for that
  /// there are patterns.
  private func pattern(_ text: String, orRuled word: RuleWord? = nil) throws(ControlFailure) -> PathPattern {
    let isBound = text.utf8.first == UInt8(ascii: "/")  // a pattern, to the root
    let named = isBound ? String(Substring(text.utf8.dropFirst())) : text
    if let path = try known(named, word) { return PathPattern(path: path) }
    let pattern: PathPattern
    do throws(PathPattern.Problem) {
      pattern = try PathPattern(text)
    } catch {
      switch error {
      case .classes:
        throw ControlFailure(.failed, "\(text): a pattern has no classes as [:alpha:]: give a range as [a-z]")
      case .tooLong: throw ControlFailure(.failed, "a pattern has more than 4095 bytes, which no path has")
      }
    }
    guard let path = pattern.path else { return pattern }
    if let path = try known(path, word) { return PathPattern(path: path) }
    throw ControlFailure(
      .notFound,
      "the mount has no \(named): for what may come later, give a pattern, such as '\(named)/*' or '\(named)*'")
  }

  /// The present path of what the path leads to; or the path itself, if there is a rule for it that the word ends: its
  /// entry may have left the list.
  private func known(_ path: String, _ word: RuleWord?) throws(ControlFailure) -> String? {
    if let present = try reading({ () throws(StoreError) in try catalog.tree.presentPath(path) }) { return present }
    guard let word, word.rule.value == 0 else { return nil }
    return fileSystem.rules.rule(word.rule.subject, of: PathPattern(path: path)) == nil ? nil : path
  }

  /// The rules once `value` is said of the patterns. A rule for what holds anyway is stored only where a weaker one
  /// says something else.
  static func changed(
    _ rules: Rules, _ subject: RuleSubject, _ value: Int64, _ patterns: [PathPattern]
  ) throws(StoreError) -> (rules: Rules, changes: [RuleChange]) {
    var rules = rules
    var changes: [RuleChange] = []
    var number = rules.all.last?.number ?? 0
    for pattern in patterns {
      number = .clampedSum(number, 1)
      let rule = PathRule(subject: subject, pattern: pattern, value: value, number: number)
      // The catalog finds a rule by its text, which may be another one for the same path.
      if let former = rules.remove(subject, pattern), value == 0 || !former.pattern.hasText(of: pattern) {
        changes.append(.remove(subject, former.pattern))
      }
      if value == 0 {
        // "Resume everything" leaves nothing paused.
        if subject == .downloads, pattern.path == "" { removeAll(subject, &rules, &changes) }
        guard rules.hasException(behind: rule) else { continue }
      }
      rules.set(rule)
      changes.append(.set(rule))
    }
    if !rules.hasExceptions(subject) { removeAll(subject, &rules, &changes) }
    if value != 0, rules.count > Rules.most || rules.patternCount > Rules.mostPatterns {
      throw StoreError(
        kind: .invalid,
        message:
          "a mount has at most \(Rules.most) rules, \(Rules.mostPatterns) of them with wildcards: name a folder, or "
          + "end some of the rules that 'mediafs status' lists with 'mediafs auto' and 'mediafs resume'")
    }
    return (rules, changes)
  }

  private static func removeAll(_ subject: RuleSubject, _ rules: inout Rules, _ changes: inout [RuleChange]) {
    for rule in rules.all(subject) {
      rules.remove(subject, rule.pattern)
      changes.append(.remove(subject, rule.pattern))
    }
  }

  /// Names gained extensions: the rules for their old names follow them. A later rule for the new name stays.
  static func followNames(in catalog: Catalog) throws(StoreError) {
    let rules = try catalog.notes.rules()
    var changes: [CatalogChange] = []
    for rule in rules.all {
      guard let old = rule.pattern.path, let path = try catalog.tree.presentPath(old),
        !path.utf8.elementsEqual(old.utf8)
      else { continue }
      changes.append(.rule(.remove(rule.subject, rule.pattern)))
      var moved = rule
      moved.pattern = PathPattern(path: path)
      if rules.rule(rule.subject, of: moved.pattern)?.precedes(moved) ?? false { continue }
      changes.append(.rule(.set(moved)))
    }
    if !changes.isEmpty { try catalog.changes.apply(changes, durably: true) }
  }

  /// Counts the files that the request is for, in one walk, for as long as the client waits for it.
  private func count(
    _ named: PathPatterns, _ word: RuleWord, _ isLeft: () -> Bool
  ) throws(ControlFailure) -> RuleReport {
    let (subject, value) = word.rule
    let rules = fileSystem.rules
    var named = named
    var walk = TreeWalk(named.folders)
    var report = RuleReport()
    while let page = try reading({ () throws(StoreError) in try walk.next(in: catalog.tree, limit: 512) }) {
      if isLeft() { throw ControlFailure(.gone, "the client left, or the server ends") }
      for (_, path) in page where named.meet(path) {
        report.files += 1
        let rule = rules.rule(subject, for: path)
        guard rule?.value ?? 0 != value, let rule else { continue }
        report.exceptions += 1
        let shown = AppliedRule(rule)
        if report.stronger.count < ControlLimits.shown, !report.stronger.contains(shown) {
          report.stronger.append(shown)
        }
      }
    }
    report.unmatched = named.unmet.prefix(ControlLimits.shown).map(\.text)
    return report
  }

  private func reading<Value>(_ body: () throws(StoreError) -> Value) throws(ControlFailure) -> Value {
    do throws(StoreError) { return try body() } catch { throw ControlFailure(.failed, error.message) }
  }
}

extension RuleWord {
  /// What the word says, in the terms of the catalog.
  var rule: (subject: RuleSubject, value: Int64) {
    switch self {
    case .auto: (.storage, StorageRule.auto.rawValue)
    case .keep: (.storage, StorageRule.keep.rawValue)
    case .online: (.storage, StorageRule.online.rawValue)
    case .resume: (.downloads, DownloadRule.run.rawValue)
    case .pause: (.downloads, DownloadRule.paused.rawValue)
    }
  }
}

extension AppliedRule {
  /// A rule of the catalog.
  init(_ rule: PathRule) {
    let word = RuleWord.allCases.first { $0.rule == (rule.subject, rule.value) }
    self.init(word ?? .auto, pattern: rule.pattern.text)
  }
}

extension FileStatus {
  /// The same file with the rules that apply to it, which may be those for another name of its resource.
  func ruled(by rules: Rules, in tree: CatalogTree) throws(StoreError) -> FileStatus {
    guard !rules.isEmpty, let node = try tree.find(path: path) else { return self }
    let names = try tree.names(of: node.key, first: path)
    var file = self
    file.rule = rules.rule(.storage, for: names).map { AppliedRule($0) }
    file.downloads = rules.rule(.downloads, for: names).map { AppliedRule($0) }
    return file
  }
}
