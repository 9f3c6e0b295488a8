/// What a list that was read again changed.
package struct ReloadReport: Codable, Sendable, Equatable {
  /// Names that came, files and folders.
  package var added: Int
  /// Names that went.
  package var removed: Int
  /// Files that have other URLs or header fields.
  package var changed: Int
  /// Lines that the log tells of: errors, which are left out, and warnings.
  package var problems: Int

  package init(added: Int = 0, removed: Int = 0, changed: Int = 0, problems: Int = 0) {
    (self.added, self.removed, self.changed, self.problems) = (added, removed, changed, problems)
  }
}
