/// Why the server cannot start or go on.
package enum ServerError: Error, Equatable, CustomStringConvertible {
  /// The mount helper is gone: there is nobody to serve for.
  case helperGone
  /// The mount helper and the server do not understand each other.
  case protocolBroken(String)
  /// The options that the server was started with cannot be used.
  case badRequest(String)
  /// What was asked for cannot be done.
  case failed(String)

  /// For the reader of a log.
  package var description: String {
    switch self {
    case .helperGone: "the mount helper has ended"
    case .protocolBroken(let what):
      "\(what): the mount helper and mediafs must come from the same installation"
    case .badRequest(let what), .failed(let what): what
    }
  }
}
