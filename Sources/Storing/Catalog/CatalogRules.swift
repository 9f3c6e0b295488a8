import Base

/// A change of the rules.
package enum RuleChange: Sendable {
  /// Adds the rule, or puts it in the place of the one for the same pattern.
  case set(PathRule)
  /// Removes the rule for that pattern.
  case remove(RuleSubject, PathPattern)
}

private enum Queries {
  static let rules = SQL("SELECT subject, pattern, value, number FROM rule ORDER BY number")
  static let set = SQL("INSERT OR REPLACE INTO rule(subject, pattern, value, number) VALUES(?, ?, ?, ?)")
  static let remove = SQL("DELETE FROM rule WHERE subject = ? AND pattern = ?")
}

/// The rules, which a catalog of a format before 3 does not have.
extension CatalogNotes {
  /// All rules. A row of which this program does not know the subject or the value is left out.
  package func rules() throws(StoreError) -> Rules {
    try connections.read { (connection) throws(StoreError) in
      guard try connection.integer("PRAGMA user_version") ?? 0 >= 3 else { return Rules() }
      let statement = try connection.statement(Queries.rules)
      defer { statement.reset() }
      var rules = Rules()
      while try statement.step() {
        let value = statement.integer(2)
        guard let subject = RuleSubject(rawValue: statement.integer(0)), subject.knows(value),
          let pattern = try? PathPattern(statement.text(1))  // the catalog may be damaged, or a newer program's
        else { continue }
        rules.set(PathRule(subject: subject, pattern: pattern, value: value, number: statement.integer(3)))
      }
      return rules
    }
  }

  static func change(_ change: RuleChange, on connection: SQLiteConnection) throws(StoreError) {
    switch change {
    case .set(let rule):
      let statement = try connection.statement(Queries.set)
      statement.bind(1, rule.subject.rawValue)
      statement.bind(2, rule.pattern.text)
      statement.bind(3, rule.value)
      statement.bind(4, rule.number)
      try statement.run()
    case .remove(let subject, let pattern):
      let statement = try connection.statement(Queries.remove)
      statement.bind(1, subject.rawValue)
      statement.bind(2, pattern.text)
      try statement.run()
    }
  }
}

extension RuleSubject {
  /// Whether a rule about it may have that value.
  fileprivate func knows(_ value: Int64) -> Bool {
    switch self {
    case .storage: StorageRule(rawValue: value) != nil
    case .downloads: DownloadRule(rawValue: value) != nil
    }
  }
}
