/// Why the server cannot start or continue.
package enum ServerError: Error, Equatable, CustomStringConvertible {
  /// The mount helper has ended.
  case helperGone
  /// The mount helper and the server do not understand each other.
  case protocolBroken(String)
  /// The server cannot use the options that it got.
  case badRequest(String)
  /// An operation failed.
  case failed(String)

  /// The message for the log.
  package var description: String {
    switch self {
    case .helperGone: "the mount helper has ended"
    case .protocolBroken(let what):
      "\(what): the mount helper and mediafs must come from the same installation"
    case .badRequest(let what), .failed(let what): what
    }
  }
}
