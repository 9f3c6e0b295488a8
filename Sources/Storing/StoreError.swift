import Base

/// Why something about the store failed.
public struct StoreError: Error, Sendable {
  /// What to make of it.
  public enum Kind: Sendable, Equatable {
    /// Another server holds the store; `holder` says which.
    case busy(holder: String)
    /// A newer mediafs wrote it: left untouched.
    case newer
    /// What is stored contradicts itself.
    case corrupt
    /// A call of the operating system failed.
    case io(Errno)
    /// No space is left, on the disk or in the user's quota.
    case full
    /// What was asked for cannot be done as it stands.
    case invalid
  }

  /// What to make of it.
  public var kind: Kind
  /// What failed, on what, why and what to do, for a person.
  public var message: String

  /// A failure of that kind.
  public init(kind: Kind, message: String) {
    self.kind = kind
    self.message = message
  }
}
