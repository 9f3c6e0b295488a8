/// A problem that ``StoreVerification`` found.
package struct StoreFinding: Sendable, Equatable {
  /// The kind of problem.
  package enum Kind: Sendable, Equatable {
    /// The catalog itself: its pages, or a row that cannot be read.
    case catalog
    /// The catalog claims bytes that a partial file does not have.
    case missingBytes
    /// A partial file is unusable: a folder, a link, or a file that cannot be read.
    case unusablePartial
    /// A file in the folder of the partial files that belongs to no generation.
    case orphan
    /// A user changed a copy in the library: it now belongs to the user.
    case changedCopy
    /// A copy in the library is missing.
    case missingCopy
    /// A copy looks unchanged but does not have the manifest's checksum: the disk damaged it.
    case damagedCopy
    /// The library cannot be read: its disk is not mounted, or fails.
    case library
  }

  /// The kind of problem.
  package var kind: Kind
  /// The file: a path in the mount, or a path of the store if no listed entry shows the file.
  package var subject: String
  /// The problem, in one line.
  package var message: String
  /// What the repair did; nil if it did nothing.
  package var repair: String?
}

/// The results of a verification.
package struct StoreVerificationReport: Sendable, Equatable {
  /// Partial files with stored bytes.
  package var partials: Int64 = 0
  /// Copies in the library.
  package var copies: Int64 = 0
  /// Copies that were compared with the manifest's checksum.
  package var digests: Int64 = 0
  /// Bytes that were read back.
  package var bytes: Int64 = 0
  /// The problems, in the order in which the verification found them.
  package var findings: [StoreFinding] = []
}
