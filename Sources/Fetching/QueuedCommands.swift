/// What the client commanded in its calls, until the loop carries it out; and the ends that came of that, until the
/// loop tells them.
struct QueuedCommands {
  enum Command {
    case start(TransferRequest)
    case cancel(TransferID)
    case dropConnections
  }

  private var commands: [Command] = []
  /// Told at the next turn's beginning.
  private var ends: [(TransferID, TransferEnd)] = []
  /// Whether the loop ends: then nothing more starts.
  private var isRefusing = false

  mutating func start(_ request: TransferRequest) {
    if !isRefusing { commands.append(.start(request)) }
  }

  mutating func cancel(_ id: TransferID) { commands.append(.cancel(id)) }

  mutating func dropConnections() { commands.append(.dropConnections) }

  /// The commands to carry out, in their order.
  mutating func take() -> [Command] {
    defer { commands = [] }
    return commands
  }

  /// A command ended the transfer.
  mutating func ended(_ id: TransferID, _ end: TransferEnd) { ends.append((id, end)) }

  /// The ends to tell, in their order.
  mutating func takeEnds() -> [(TransferID, TransferEnd)] {
    defer { ends = [] }
    return ends
  }

  /// Ends what was to start as cancelled. What a client starts in answer to these ends is not heard of again.
  mutating func refuse() {
    isRefusing = true
    for command in take() {
      if case .start(let request) = command { ended(request.id, .cancelled) }
    }
  }
}
