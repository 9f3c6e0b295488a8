/// Something that ``StoreVerification`` found wrong.
package struct StoreFinding: Sendable, Equatable {
  /// What kind of thing is wrong.
  package enum Kind: Sendable, Equatable {
    /// The catalog itself: its pages, or a row that cannot be read.
    case catalog
    /// The catalog claims bytes that a partial file does not have.
    case missingBytes
    /// A partial file is there and cannot be used: a folder, a link, a file that cannot be read.
    case unusablePartial
    /// A file among the partial ones that belongs to nothing.
    case orphan
    /// A copy in the library was changed by somebody: theirs now.
    case changedCopy
    /// A copy in the library is gone.
    case missingCopy
    /// A copy looks untouched and has other bytes than the manifest's checksum says: the disk lost them.
    case damagedCopy
    /// The library cannot be looked at: its disk is not mounted, or fails.
    case library
  }

  /// What kind.
  package var kind: Kind
  /// The file that it is about: a path in the mount, or a path of the store when no listed entry shows it.
  package var subject: String
  /// What is wrong with it: one line.
  package var message: String
  /// What was done about it; nil when nothing was.
  package var repair: String?
}

/// What a verification saw.
package struct StoreVerificationReport: Sendable, Equatable {
  /// Partial files with something in them.
  package var partials: Int64 = 0
  /// Copies in the library.
  package var copies: Int64 = 0
  /// Copies whose checksum the manifest gives and that were compared with it.
  package var digests: Int64 = 0
  /// Bytes that were read back.
  package var bytes: Int64 = 0
  /// What was wrong, in the order in which it was found.
  package var findings: [StoreFinding] = []
}
