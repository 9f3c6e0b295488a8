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
  /// Folders of servers that are still being asked for; nil: none.
  package var asking: Int?
  /// Folders of servers that could not be asked for, and show what they had; nil: none.
  package var failed: Int?

  package init(
    added: Int = 0, removed: Int = 0, changed: Int = 0, problems: Int = 0, asking: Int? = nil, failed: Int? = nil
  ) {
    (self.added, self.removed, self.changed, self.problems) = (added, removed, changed, problems)
    (self.asking, self.failed) = (asking, failed)
  }
}
