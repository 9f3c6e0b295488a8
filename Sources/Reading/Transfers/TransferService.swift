import Base
import Fetching

/// Where missing bytes come from: declared here, fulfilled by the fetching room, faked by tests.
///
/// A service belongs to the transfer thread, on which it also calls its ``TransferClient``.
package protocol TransferService: AnyObject {
  /// Begins a transfer. Its client hears of it until `ended`, also when it cannot even start.
  func start(_ request: TransferRequest)
  /// Ends a transfer; `ended` with `.cancelled` follows in a later turn. Nothing happens if it is over.
  func cancel(_ id: TransferID)
  /// Drops every connection; running transfers fail as transient.
  func dropConnections()
}

extension TransferCommands: TransferService {}
