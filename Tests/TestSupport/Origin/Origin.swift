import Base
import Glibc

/// How an origin's line behaves.
package struct OriginSettings: Sendable {
  /// What happens to a connection above the maximum.
  package enum AboveMaximum: Sendable {
    /// It is reset.
    case reset
    /// Its first request gets 503 and the connection is closed.
    case serviceUnavailable
  }

  /// The address to listen at.
  package var address = "127.0.0.1"
  /// The port, 0 for a free one. Read at the start only, as the address is.
  package var port: UInt16 = 0
  /// Seconds from a request's last byte to the first byte of its answer: the round trip and the server's thought.
  package var latency = 0.0
  /// Seconds until a new connection is looked at: what its handshake would take.
  package var acceptDelay = 0.0
  /// Bytes a second for each connection, nil for no bound.
  package var connectionRate: Double?
  /// Bytes a second for all connections together, shared evenly by those that want to send; nil for no bound.
  package var lineRate: Double?
  /// How many connections are served at once, nil for any number.
  package var maxConnections: Int?
  /// What happens to the others.
  package var aboveMaximum = AboveMaximum.reset
  /// SO_SNDBUF; nil leaves it to the system where nothing is shaped, and else takes 20 ms of the rate (4 to 64 KiB):
  /// what is sent and not read must not hide the rate.
  package var sendBuffer: Int32?
  /// Seconds that an idle connection is kept.
  package var idleTimeout = 75.0
  /// While it is set nothing is sent or answered and nothing is closed: the network is away.
  package var isFrozen = false

  /// A fast line without limits.
  package init() {}
}

/// An HTTP/1.1 origin that does what it is told, also wrong.
///
/// It serves resources whose bytes are a function of their name, generation and offset (``Pattern``), bytes, files and
/// folders; shapes latency and rates; makes faults; and logs what it sent. One thread a connection: good for some
/// hundreds. Any thread may call any method, at any time. It runs until ``stop()``, which must be called
/// (``withOrigin(_:_:)`` does). TLS and HTTP/2 come from an ``Nginx`` in front.
package final class Origin: Sendable {
  /// Decides the faults of one request: nil leaves the decision to what was set with `fault`, an empty list makes none.
  package typealias Rule = @Sendable (OriginRequest) -> [OriginFault]?

  /// What was asked and sent.
  package let log = OriginLog()
  /// The port it listens at; it stays the same when the origin is down for a while.
  package let port: UInt16

  struct State {
    var settings: OriginSettings
    var resources: [String: OriginResource] = [:]
    /// Folders of the disk by the prefix that they are served under (which ends with a slash).
    var folders: [String: String] = [:]
    var rule: Rule?
    /// Faults by path; those under nil are for every path.
    var faults: [String?: [OriginFault]] = [:]
    /// Faults for the next requests, each with how many are left.
    var queues: [String?: [(faults: [OriginFault], left: Int)]] = [:]
    var listener: OriginListener?
    /// The sockets of the open connections, each owned by its thread: shut down here, never closed.
    var connections: [Int: Int32] = [:]
    var lastConnection = 0
    var isStopped = false
  }

  let state: Lock<State>
  /// The line that all connections share.
  let line = OriginLine()
  /// Bound to the port and never listening: keeps the port ours while we refuse connections.
  private let reservation: FileDescriptor
  /// Hangs up when the origin stops; every wait of every thread has an eye on it.
  let stopSignal: FileDescriptor
  private let stopEnd: Int32

  /// Starts an origin. `isUp`: false refuses connections until ``setUp(_:)``.
  package init(_ settings: OriginSettings = OriginSettings(), isUp: Bool = true) throws(Errno) {
    raiseDescriptorLimit()
    reservation = try OriginListener.boundSocket(settings.address, port: settings.port)
    port = OriginListener.port(of: reservation.rawValue)
    let pipe = try Spawn.makePipe()
    stopSignal = FileDescriptor(owning: pipe.read)
    stopEnd = pipe.write
    state = Lock(State(settings: settings))
    try setUp(isUp)
  }

  /// `http://address:port` and `path`, which begins with a slash.
  package func url(_ path: String = "") -> String { "http://\(settings.address):\(port)\(path)" }

  /// Ends every connection and thread, and frees the port. Waits for the threads. Does nothing the second time.
  package func stop() {
    let (listener, first) = state.withLock { state in
      let listener = state.listener
      state.listener = nil
      defer { state.isStopped = true }
      return (listener, !state.isStopped)
    }
    guard first else { return }
    listener?.close()
    close(stopEnd)
    _ = eventually(timeout: 30, interval: 0.001) { state.withLock { $0.connections.isEmpty } }
  }

  // MARK: The line

  /// How the line behaves now.
  package var settings: OriginSettings { state.withLock { $0.settings } }

  /// Changes how the line behaves, from the next few milliseconds of every connection on.
  package func configure(_ change: (inout OriginSettings) -> Void) { state.withLock { change(&$0.settings) } }

  /// Refuses connections from now on (false), or accepts them again (true). Open connections stay: see
  /// ``dropConnections(reset:)``.
  package func setUp(_ isUp: Bool) throws(Errno) {
    if isUp {
      let (address, needed) = state.withLock { ($0.settings.address, $0.listener == nil && !$0.isStopped) }
      guard needed else { return }
      let socket = try OriginListener.boundSocket(address, port: port)
      let listener = try OriginListener(socket) { [self] in accepted($0) }
      let superfluous = state.withLock { state in
        if state.listener != nil || state.isStopped { return true }
        state.listener = listener
        return false
      }
      if superfluous { listener.close() }
    } else {
      let listener = state.withLock { state in
        defer { state.listener = nil }
        return state.listener
      }
      listener?.close()
    }
  }

  /// Ends every open connection, by a reset or in order.
  package func dropConnections(reset: Bool = true) {
    state.withLock { state in
      for descriptor in state.connections.values {
        // Under the lock that the owner takes before it closes the socket; neither call waits.
        if reset { OriginSocket.reset(descriptor) } else { shutdown(descriptor, Int32(SHUT_RDWR)) }
      }
    }
  }

  // MARK: Resources

  /// Serves `resource` at `path` (decoded, without a query) from now on.
  package func set(_ path: String, _ resource: OriginResource) { state.withLock { $0.resources[path] = resource } }

  /// Serves `size` bytes of ``Pattern`` at `path`, named by the path, with the media type of its extension.
  package func add(_ path: String, size: Int64) {
    set(path, OriginResource(size: size, pattern: path, type: mediaType(ofPath: path)))
  }

  /// Changes the resource at `path`; does nothing when there is none.
  package func change(_ path: String, _ change: (inout OriginResource) -> Void) {
    state.withLock { state in
      guard var resource = state.resources[path] else { return }
      change(&resource)
      state.resources[path] = resource
    }
  }

  /// Gives the resource at `path` its next generation, with another size if one is given.
  package func nextGeneration(_ path: String, size: Int64? = nil) {
    change(path) { resource in
      resource.generation += 1
      if let size { resource.size = size }
    }
  }

  /// The resource at `path`, nil when there is none (files of folders are none).
  package func resource(_ path: String) -> OriginResource? { state.withLock { $0.resources[path] } }

  /// Serves nothing at `path` any more.
  package func remove(_ path: String) { state.withLock { $0.resources[path] = nil } }

  /// Serves the files of `folder` under `prefix`, which begins and ends with a slash.
  package func serve(folder: String, at prefix: String = "/") { state.withLock { $0.folders[prefix] = folder } }

  // MARK: Faults

  /// Makes those faults: for `path` or (nil) every path; for the next `next` requests or (nil) until they are cleared.
  /// For each request the first of these that exists decides alone: the rule, the next-requests faults of the path,
  /// those of every path, the lasting ones of the path, those of every path.
  package func fault(_ faults: OriginFault..., path: String? = nil, next: Int? = nil) {
    fault(faults, path: path, next: next)
  }

  /// As the one above, of a list.
  package func fault(_ faults: [OriginFault], path: String? = nil, next: Int? = nil) {
    state.withLock { state in
      if let next {
        if next > 0 { state.queues[path, default: []].append((faults, next)) }
      } else {
        state.faults[path] = faults
      }
    }
  }

  /// Sets the rule that decides first, called on the connections' threads, side by side; nil takes it away.
  package func decide(_ rule: Rule?) { state.withLock { $0.rule = rule } }

  /// Takes the faults of `path`, or (nil) all faults and the rule, away.
  package func clearFaults(path: String? = nil) {
    state.withLock { state in
      if let path {
        state.faults[path] = nil
        state.queues[path] = nil
      } else {
        state.faults = [:]
        state.queues = [:]
        state.rule = nil
      }
    }
  }

  /// The faults of one request; takes them from the queue they stand in.
  func faults(for request: OriginRequest) -> [OriginFault] {
    // Called without the lock: a rule may ask or change the origin.
    if let decided = state.withLock({ $0.rule })?(request) { return decided }
    return state.withLock { state in
      for key in [request.path, nil] as [String?] {
        guard var queue = state.queues[key], let first = queue.first else { continue }
        if first.left > 1 { queue[0].left -= 1 } else { queue.removeFirst() }
        state.queues[key] = queue
        return first.faults
      }
      return state.faults[request.path] ?? state.faults[nil] ?? []
    }
  }
}

/// Lends an origin and stops it afterwards.
package func withOrigin<Result>(
  _ settings: OriginSettings = OriginSettings(), _ body: (Origin) throws -> Result
) throws -> Result {
  let origin = try Origin(settings)
  defer { origin.stop() }
  return try body(origin)
}

/// As the one above, for a body that suspends.
package func withOrigin<Result>(
  _ settings: OriginSettings = OriginSettings(), isolation: isolated (any Actor)? = #isolation,
  _ body: (Origin) async throws -> Result
) async throws -> Result {
  let origin = try Origin(settings)
  defer { origin.stop() }
  return try await body(origin)
}

/// Lets this process open as many descriptors as it may: the soft limit of 1024 is soon reached by an origin and its
/// clients.
package func raiseDescriptorLimit() {
  var limit = rlimit()
  guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
  limit.rlim_cur = limit.rlim_max
  setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
}
