/// A key of an object store. No description, message or log shows the secret.
package struct StoreCredentials: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible {
  package var accessKey: String
  package var secretKey: String
  package var sessionToken: String?
  /// Where they come from, for messages: `the environment`, `the profile “x” of FILE`.
  package var origin: String

  package init(accessKey: String, secretKey: String, sessionToken: String? = nil, origin: String) {
    (self.accessKey, self.secretKey, self.sessionToken) = (accessKey, secretKey, sessionToken)
    self.origin = origin
  }

  package var description: String { "\(accessKey) of \(origin)" }
  package var debugDescription: String { description }
}

/// Why a store cannot be used as it was named: what is wrong, and what to do.
package struct StoreSetupError: Error, Equatable, CustomStringConvertible {
  package var description: String
}
