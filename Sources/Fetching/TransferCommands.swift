/// Starts and ends transfers. The loop makes it on its own thread and gives it to its client there: as it is not
/// Sendable, no other thread can reach it.
package final class TransferCommands {
  private let core: LoopCore

  init(core: LoopCore) { self.core = core }

  /// Begins a transfer. Its client hears of it until `ended`, also when it cannot even start. Precondition: the id is
  /// new.
  package func start(_ request: TransferRequest) { core.start(request) }

  /// Ends a transfer: no head and no byte of it come any more, and `ended` with `.cancelled` follows in a later turn.
  /// Nothing happens if it is over. On HTTP/1 this costs the connection.
  package func cancel(_ id: TransferID) { core.cancel(id) }

  /// Closes every connection, the idle ones too, and forgets resolved names: for after a suspend or a change of
  /// network, when kept connections are dead without anyone having said so. Transfers under way end as `.failed`,
  /// `.transient`, in a later turn.
  package func dropConnections() { core.dropConnections() }
}
