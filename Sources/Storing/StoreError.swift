import Base
import Glibc

/// Why a store operation failed: its kind, and a message for the user.
package struct StoreError: Error, Sendable, Equatable, CustomStringConvertible {
  /// The kind of a failure.
  package enum Kind: Sendable, Equatable {
    /// Another program holds the store; its name, if known (a process id, a mountpoint).
    case busy(holder: String)
    /// A newer version of this program wrote the store; nothing in it was changed.
    case newer
    /// A file of the store is damaged, or is not what the store needs there.
    case corrupt
    /// A system call failed.
    case io(Errno)
    /// The disk of a list does not answer.
    case silent
    /// No space is left: on the disk, in a quota, or within the store's own limit.
    case full
    /// The request is invalid: a bad argument, or a bad manifest.
    case invalid
  }

  /// The kind of failure.
  package var kind: Kind
  /// What failed, on what, why, and what to do: one line without secrets.
  package var message: String

  /// An error of that kind.
  package init(kind: Kind, message: String) {
    self.kind = kind
    self.message = message
  }

  /// The caller cancelled its own operation.
  static func cancelled(_ what: String) -> StoreError {
    StoreError(kind: .io(Errno(rawValue: ECANCELED)), message: what)
  }

  /// The closest errno.
  package var errno: Errno {
    switch kind {
    case .io(let error): error
    case .full: .noSpace
    case .silent: .timedOut
    case .busy, .newer, .corrupt, .invalid: .invalid
    }
  }

  /// The message.
  package var description: String { message }
}
