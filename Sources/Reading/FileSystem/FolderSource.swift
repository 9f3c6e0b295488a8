import Base

/// Knows the folders whose names come from elsewhere, and may not have come yet. Any thread calls it.
package protocol FolderSource: Sendable {
  /// A program looks at the folder: what is old, or was never asked for, is asked for in the background.
  func met(_ folder: Inode)
  /// A program opens the folder. `.parked`: its names have never come; the ticket is answered when they have.
  func opened(_ folder: Inode, ticket: Ticket) -> Answer<Void>
  /// Whether the ticket was parked; now it is not.
  func interrupt(_ ticket: Ticket) -> Bool
}

extension MediaFileSystem {
  /// From now on `source` is told which folders programs look at. Called before the first request.
  package func watchFolders(_ source: any FolderSource) { folders.withLock { $0 = source } }

  /// A program looks at a folder.
  package func met(_ folder: Inode) { folders.withLock { $0 }?.met(folder) }

  /// Opens a folder, whose names may come first.
  package func openFolder(_ folder: Inode, ticket: Ticket) -> Answer<Void> {
    folders.withLock { $0 }?.opened(folder, ticket: ticket) ?? .now(())
  }
}
