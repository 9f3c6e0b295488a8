/// Starts and ends transfers. The loop makes it on its own thread and passes it to its client there. As it is not
/// Sendable, no other thread can reach it.
package final class TransferCommands {
  private let core: LoopCore

  init(core: LoopCore) { self.core = core }

  /// Starts a transfer. The client is called about it until `ended`, even if it cannot start. Precondition: the id is
  /// new.
  package func start(_ request: TransferRequest) { core.start(request) }

  /// Cancels a transfer: the client gets no head and no byte of it any more, and `ended` with `.cancelled` in a later
  /// turn. Does nothing if it is over. On HTTP/1 this costs the connection.
  package func cancel(_ id: TransferID) { core.cancel(id) }

  /// How many packets came out of order so far over the connection that brings a transfer: they follow lost ones. nil:
  /// unknown.
  package func misorderedPackets(of id: TransferID) -> Int? { core.misorderedPackets(of: id) }

  /// From now on these limits hold, also for whole bodies in flight.
  package func limit(_ rates: TransferRates) { core.limit(rates) }

  /// Closes every connection, also idle ones, and forgets resolved names. For use after a suspend or a change of
  /// network, when kept connections are dead without notice. Transfers in flight end as `.failed`, `.transient`, in a
  /// later turn.
  package func dropConnections() { core.dropConnections() }
}
