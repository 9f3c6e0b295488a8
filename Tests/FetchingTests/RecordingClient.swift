import Base
import Fetching
import Glibc
import Testing

/// What came of one transfer.
struct TransferRecord: Sendable {
  /// Bytes that came in one call, at most.
  var largestPiece = 0
  var head: ResponseHead?
  var bytes: [UInt8] = []
  var end: TransferEnd?
  /// Calls that came although the transfer was over, or in the wrong order.
  var misplaced = 0

  var failure: TransferFailure? {
    if case .failed(let failure)? = end { failure } else { nil }
  }
  var isFinished: Bool {
    if case .finished? = end { true } else { false }
  }
  var isCancelled: Bool {
    if case .cancelled? = end { true } else { false }
  }
}

/// Runs what the test wants on the loop's thread, and writes down what it hears.
final class RecordingClient: Sendable {
  private struct State {
    var jobs: [@Sendable (TransferCommands) -> Void] = []
    var records: [TransferID: TransferRecord] = [:]
    var turns = 0
    var onHead: (@Sendable (TransferCommands, TransferID) -> Bool)?
    var onBytes: (@Sendable (TransferCommands, TransferID) -> Bool)?
    var onEnd: (@Sendable (TransferCommands, TransferID) -> Void)?
    var deadline = Instant.never
  }

  let loop: TransferLoop
  private let state = Lock(State())
  private let nextID = Lock(UInt64(1))

  init(_ options: TransferOptions = TransferOptions()) throws {
    loop = try TransferLoop(options: options)
    try loop.run { [self] commands in Recorder(self, commands) }
  }

  var turns: Int { state.withLock { $0.turns } }
  func record(_ id: TransferID) -> TransferRecord { state.withLock { $0.records[id] ?? TransferRecord() } }
  func onHead(_ body: @escaping @Sendable (TransferCommands, TransferID) -> Bool) {
    state.withLock { $0.onHead = body }
  }
  func onBytes(_ body: @escaping @Sendable (TransferCommands, TransferID) -> Bool) {
    state.withLock { $0.onBytes = body }
  }
  func onEnd(_ body: @escaping @Sendable (TransferCommands, TransferID) -> Void) { state.withLock { $0.onEnd = body } }
  func setDeadline(_ deadline: Instant) { state.withLock { $0.deadline = deadline } }

  /// Runs `job` on the loop's thread.
  func perform(_ job: @escaping @Sendable (TransferCommands) -> Void) {
    state.withLock { $0.jobs.append(job) }
    loop.wake()
  }

  func newID() -> TransferID {
    TransferID(
      nextID.withLock { next in
        next += 1
        return next
      })
  }

  /// Starts a transfer of `range` of `url`; `change` may adjust the request.
  func start(
    _ url: String, _ range: Range<Int64>? = nil, home: String? = nil, change: (inout TransferRequest) -> Void = { _ in }
  ) -> TransferID {
    var request = TransferRequest(
      id: newID(), url: url, homeURL: home, range: range.map { ByteRange($0.lowerBound, $0.upperBound) })
    change(&request)
    let id = request.id
    perform { [request] commands in commands.start(request) }
    return id
  }

  /// Waits until the transfer is over (20 s, then the test fails).
  func wait(_ id: TransferID, _ location: SourceLocation = #_sourceLocation) -> TransferRecord {
    eventually(location) { self.record(id).end != nil }
    return record(id)
  }

  /// Starts and waits.
  func get(
    _ url: String, _ range: Range<Int64>? = nil, home: String? = nil, _ location: SourceLocation = #_sourceLocation,
    change: (inout TransferRequest) -> Void = { _ in }
  ) -> TransferRecord {
    wait(start(url, range, home: home, change: change), location)
  }

  /// The client on the loop's thread.
  private final class Recorder: TransferClient {
    private let client: RecordingClient
    private let commands: TransferCommands
    private var state: Lock<State> { client.state }

    init(_ client: RecordingClient, _ commands: TransferCommands) {
      self.client = client
      self.commands = commands
    }

    func turn(now: Instant) -> Instant {
      let (jobs, deadline) = state.withLock { state in
        state.turns += 1
        defer { state.jobs = [] }
        return (state.jobs, state.deadline)
      }
      for job in jobs { job(commands) }
      return deadline
    }

    func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool {
      let hook = state.withLock { state in
        var record = state.records[id] ?? TransferRecord()
        if record.head != nil || record.end != nil { record.misplaced += 1 }
        record.head = head
        state.records[id] = record
        return state.onHead
      }
      return hook?(commands, id) ?? true
    }

    func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool {
      let hook = state.withLock { state in
        if state.records[id]?.head == nil || state.records[id]?.end != nil { state.records[id]?.misplaced += 1 }
        state.records[id]?.bytes.append(contentsOf: bytes)
        let largest = state.records[id]?.largestPiece ?? 0
        state.records[id]?.largestPiece = max(largest, bytes.count)
        return state.onBytes
      }
      return hook?(commands, id) ?? true
    }

    func transfer(_ id: TransferID, ended end: TransferEnd) {
      let hook = state.withLock { state in
        var record = state.records[id] ?? TransferRecord()
        if record.end != nil { record.misplaced += 1 }
        record.end = end
        state.records[id] = record
        return state.onEnd
      }
      hook?(commands, id)
    }
  }
}

/// Waits for a condition, 60 s at most; a machine that is slower fails the test, it never passes by time.
func eventually(_ location: SourceLocation = #_sourceLocation, _ condition: () -> Bool) {
  let limit = Instant.now.adding(seconds: 60)
  while !condition() {
    if Instant.now > limit {
      Issue.record("it did not happen within 60 s", sourceLocation: location)
      return
    }
    usleep(2000)
  }
}

/// Lends a client and the server that it asks.
func withServer(
  _ script: @escaping ScriptedServer.Script, options: TransferOptions = TransferOptions(), isSerial: Bool = false,
  _ body: (RecordingClient, ScriptedServer) throws -> Void
) throws {
  let server = ScriptedServer(isSerial: isSerial, script)
  defer { server.stop() }
  let client = try RecordingClient(options)
  defer { client.loop.stop() }
  try body(client, server)
}
