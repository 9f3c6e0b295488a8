/// Why the transfer loop could not be set up. What goes wrong with one transfer later is a ``TransferFailure``.
package enum FetchError: Error, Sendable, CustomStringConvertible {
  /// libcurl refused to start: its own words.
  case library(String)
  /// A file named by an option cannot be read.
  case unreadable(option: String, path: String, reason: String)

  /// What failed, why, and what to do, for a person.
  package var description: String {
    switch self {
    case .library(let reason):
      "libcurl cannot be started (\(reason)); check that the libcurl that is installed is 7.87 or newer"
    case .unreadable(let option, let path, let reason):
      "cannot read \(path), named by \(option): \(reason)"
    }
  }
}
