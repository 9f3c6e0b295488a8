/// Why a request over the control socket failed.
package struct ControlFailure: Error, Sendable, Equatable, CustomStringConvertible {
  /// The kind of failure. The raw values are on the wire (docs/CONTROL.md).
  package enum Kind: String, Codable, Sendable {
    /// The request is not valid: it is not JSON, it is too long, or a field is missing or out of bounds.
    case malformed
    /// The peer speaks another version of the protocol.
    case version
    /// The mount has no such path.
    case notFound = "not-found"
    /// The client is not the owner of the mount.
    case refused
    /// The server has too many clients, or is about to end. The client may try again.
    case busy
    /// The server tried and failed.
    case failed
    /// No server runs on the store. Only the client makes this kind.
    case notRunning = "not-running"
    /// The peer did not answer, or did not read the answer, in time.
    case silent
    /// The peer closed the connection in the middle of an exchange.
    case gone
  }

  /// The kind of failure.
  package var kind: Kind
  /// What failed, why, and what the user can do. It contains no secrets.
  package var message: String

  package init(_ kind: Kind, _ message: String) {
    self.kind = kind
    self.message = message
  }

  package var description: String { message }
}
