import Base

/// Why mediafs could not set up the transfer loop. An error of one transfer is a ``TransferFailure``.
package enum FetchError: Error, Sendable, CustomStringConvertible {
  /// libcurl did not start, with its reason.
  case library(String)
  /// mediafs cannot read a file that an option names.
  case unreadable(option: String, path: String, reason: String)
  /// The system refuses the loop's thread.
  case noThread(Errno)

  /// What failed, why, and what to do, for the user.
  package var description: String {
    switch self {
    case .library(let reason):
      "libcurl did not start (\(reason)); check that the installed libcurl is 7.87 or newer"
    case .unreadable(let option, let path, let reason):
      "cannot read \(path), named by \(option): \(reason)"
    case .noThread(let error):
      "cannot start a thread for requests: \(error); \(OwnedThread.advice)"
    }
  }
}
