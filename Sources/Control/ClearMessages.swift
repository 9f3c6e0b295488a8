/// Which stored data a client wants deleted, and how.
package struct ClearOrder: Sendable, Equatable {
  /// Which files.
  package enum Files: Sendable, Equatable {
    /// Those at and below these paths in the mount.
    case at([String])
    /// All of the mount.
    case all
    /// Those that the list does not name any more: their partial data alone.
    case unlisted
  }

  /// Which files.
  package var files: Files
  /// Whether complete copies go without asking their origins.
  package var isForced = false
  /// Whether the server only tells what it would delete.
  package var isDryRun = false

  package init(_ files: Files, isForced: Bool = false, isDryRun: Bool = false) {
    self.files = files
    self.isForced = isForced
    self.isDryRun = isDryRun
  }
}
