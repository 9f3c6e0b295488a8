/// Why something asked over the control socket did not happen.
package struct ControlFailure: Error, Sendable, Equatable, CustomStringConvertible {
  /// What to make of it. The raw values are on the wire (docs/CONTROL.md).
  package enum Kind: String, Codable, Sendable {
    /// The request is no valid one: not JSON, too long, a field missing or out of bounds.
    case malformed
    /// The peer speaks another version of the protocol.
    case version
    /// A path that is not in the mount.
    case notFound = "not-found"
    /// The peer is not the owner.
    case refused
    /// Too many clients at once, or a server that is about to end: try again.
    case busy
    /// It was tried and failed.
    case failed
    /// No server runs on this store. Only a client's own.
    case notRunning = "not-running"
    /// The peer did not answer, or did not take the answer, in time.
    case silent
    /// The peer closed the connection in the middle.
    case gone
  }

  /// What to make of it.
  package var kind: Kind
  /// What failed, why, and what to do: for a person, without secrets.
  package var message: String

  /// A failure of that kind.
  package init(_ kind: Kind, _ message: String) {
    self.kind = kind
    self.message = message
  }

  /// The message.
  package var description: String { message }
}
