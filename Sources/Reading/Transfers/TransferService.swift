import Base
import Fetching

/// The source of missing bytes. Declared here, implemented by Fetching, faked by tests.
///
/// A service belongs to the transfer thread, on which it also calls its ``TransferClient``.
package protocol TransferService: AnyObject {
  /// Starts a transfer. The client always gets its `ended`, even when the transfer cannot start.
  func start(_ request: TransferRequest)
  /// Cancels a transfer: `ended` with `.cancelled` follows in a later turn. Does nothing if the transfer has ended.
  func cancel(_ id: TransferID)
  /// How many packets came out of order so far over the connection that brings a transfer: they follow lost ones. nil:
  /// unknown.
  func misorderedPackets(of id: TransferID) -> Int?
  /// Limits the rates of whole bodies, also of those in flight.
  func limit(_ rates: TransferRates)
  /// Drops every connection; transfers in flight fail as transient.
  func dropConnections()
}

extension TransferCommands: TransferService {}
