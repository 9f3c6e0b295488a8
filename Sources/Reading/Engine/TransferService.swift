import Base
import Fetching

/// What the reading room needs of whoever brings bytes: declared here, fulfilled by the fetching room, faked by tests.
///
/// Implementations call their ``TransferClient`` on one thread of their own; `start` and `cancel` are only called
/// there, from within such a call.
public protocol TransferService: AnyObject, Sendable {
  /// Begins a transfer. Its client hears of it until `ended`, also when it cannot even start.
  func start(_ request: TransferRequest)
  /// Ends a transfer; `ended` with `.cancelled` follows in a later turn. Nothing happens if it is over.
  func cancel(_ id: TransferID)
  /// Drops every connection; running transfers fail as transient. On the transfer thread.
  func dropConnections()
  /// Makes the loop turn soon. From any thread.
  func wake()
}

extension TransferLoop: TransferService {}
