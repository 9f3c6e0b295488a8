/// What a user says of a path, a folder or a pattern.
package enum RuleWord: String, Codable, Sendable, CaseIterable {
  /// Fetch it now, all of it, and evict nothing of it.
  case keep
  /// Store what programs read, and the rest as the mount's options say.
  case auto
  /// Store nothing of it.
  case online
  /// Download nothing of it for which no reader waits.
  case pause
  /// Download it again.
  case resume
}

/// A rule, as `status` tells it.
package struct AppliedRule: Codable, Sendable, Equatable {
  /// A ``RuleWord``; a newer server may have others.
  package var word: String
  /// The path or the pattern that it is for; empty for the whole mount.
  package var pattern: String

  package init(_ word: RuleWord, pattern: String) {
    self.word = word.rawValue
    self.pattern = pattern
  }
}

/// What came of a request for rules.
package struct RuleReport: Codable, Sendable, Equatable {
  /// The files that the paths and patterns are for.
  package var files: Int64 = 0
  /// Those of them to which the word does not apply, because a more specific rule does.
  package var exceptions: Int64 = 0
  /// The first ``ControlLimits/shown`` of these rules.
  package var stronger: [AppliedRule] = []
  /// The first ``ControlLimits/shown`` patterns that are for no file now.
  package var unmatched: [String] = []

  /// An empty report.
  package init() {}
}
