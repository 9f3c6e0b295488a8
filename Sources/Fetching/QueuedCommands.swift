/// Commands of the client until the loop executes them, and their ends until the loop reports them.
struct QueuedCommands {
  enum Command {
    case start(TransferRequest)
    case cancel(TransferID)
    case dropConnections
  }

  private var commands: [Command] = []
  /// The loop reports them at the beginning of its next turn.
  private var ends: [(TransferID, TransferEnd)] = []
  /// Whether the loop is ending: then no transfer starts.
  private var isRefusing = false

  mutating func start(_ request: TransferRequest) {
    if !isRefusing { commands.append(.start(request)) }
  }

  mutating func cancel(_ id: TransferID) { commands.append(.cancel(id)) }

  mutating func dropConnections() { commands.append(.dropConnections) }

  /// Removes and returns the commands, in order.
  mutating func take() -> [Command] {
    defer { commands = [] }
    return commands
  }

  /// Notes that a command ended the transfer.
  mutating func ended(_ id: TransferID, _ end: TransferEnd) { ends.append((id, end)) }

  /// Removes and returns the ends to report, in order.
  mutating func takeEnds() -> [(TransferID, TransferEnd)] {
    defer { ends = [] }
    return ends
  }

  /// Ends queued starts as cancelled. The client hears nothing of what it starts in response to these ends.
  mutating func refuse() {
    isRefusing = true
    for command in take() {
      if case .start(let request) = command { ended(request.id, .cancelled) }
    }
  }
}
