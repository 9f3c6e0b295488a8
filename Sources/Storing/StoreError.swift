import Base
import Glibc

/// Why the store could not do what was asked: what to make of it, and a message for a person.
package struct StoreError: Error, Sendable, Equatable, CustomStringConvertible {
  /// What a caller can make of an error.
  package enum Kind: Sendable, Equatable {
    /// Another program holds the store; who, as far as it is known (a process id, a mountpoint).
    case busy(holder: String)
    /// The store was written by a newer version of this program; nothing in it was touched.
    case newer
    /// What is there cannot be a store's file, or is damaged.
    case corrupt
    /// The operating system refused.
    case io(Errno)
    /// No space is left: on the disk, in a quota, or within the store's own limit.
    case full
    /// What was asked makes no sense: a bad argument, or a bad manifest.
    case invalid
  }

  /// What to make of it.
  package var kind: Kind
  /// What failed, on what, why, and what to do: one line without secrets.
  package var message: String

  /// An error of that kind.
  package init(kind: Kind, message: String) {
    self.kind = kind
    self.message = message
  }

  /// The caller itself ended what it had asked for.
  static func cancelled(_ what: String) -> StoreError {
    StoreError(kind: .io(Errno(rawValue: ECANCELED)), message: what)
  }

  /// The nearest errno.
  package var errno: Errno {
    switch kind {
    case .io(let error): error
    case .full: .noSpace
    case .busy, .newer, .corrupt, .invalid: .invalid
    }
  }

  /// The message.
  package var description: String { message }
}
