import Base
import CSystem
import Glibc
import Synchronization

/// Hands what happens to the clients that listen. Each has a queue of its own, of a bounded length: one that does not
/// read loses events, and holds nobody.
package final class EventHub: Sendable {
  private struct State {
    var queues: [EventQueue] = []
    var isClosed = false
  }
  private let state = Lock(State())
  /// Raised when the last client has left after the end.
  private let isDrained = Signal()
  private let listeners = Atomic<Int>(0)

  package init() {}

  /// Whether a client listens. Any thread may ask before it makes an event.
  package var isHeard: Bool { listeners.load(ordering: .relaxed) > 0 }

  /// Any thread may call it; it waits for nobody.
  package func post(_ event: ControlEvent) {
    for queue in state.withLock({ $0.queues }) { queue.add(event) }
  }

  /// A queue of what happens from now on; nil if ``ControlLimits/listeners`` clients have one, or the server ends.
  func listen() throws(ControlFailure) -> EventQueue {
    let queue: EventQueue
    do throws(Errno) { queue = try EventQueue() } catch {
      throw ControlFailure(.failed, "the server cannot open an eventfd: \(error)")
    }
    let isTaken = state.withLock { state in
      if state.isClosed || state.queues.count >= ControlLimits.listeners { return false }
      state.queues.append(queue)
      listeners.store(state.queues.count, ordering: .relaxed)
      return true
    }
    guard isTaken else {
      throw ControlFailure(.busy, "\(ControlLimits.listeners) clients listen to events already: try again later")
    }
    return queue
  }

  /// The client of `queue` listens no more.
  func leave(_ queue: EventQueue) {
    let isLast = state.withLock { state in
      state.queues.removeAll { $0 === queue }
      listeners.store(state.queues.count, ordering: .relaxed)
      return state.isClosed && state.queues.isEmpty
    }
    if isLast { isDrained.raise() }
  }

  /// The mount ends: every client is told that there is no more to come. Waits for those that read, for a second at
  /// most.
  package func close() {
    let queues = state.withLock { state in
      state.isClosed = true
      return state.queues
    }
    for queue in queues { queue.close() }
    if !queues.isEmpty { _ = isDrained.wait(seconds: 1) }
  }
}

/// The events that one client has still to read. Any thread adds; the client's thread takes.
final class EventQueue: Sendable {
  /// The most events that wait for a client.
  static let most = 1024

  private struct State {
    var events: [ControlEvent] = []
    var lost = 0
    var isClosed = false
  }
  private let state = Lock(State())
  /// Readable while there is something to take.
  let wake: FileDescriptor

  init() throws(Errno) {
    wake = FileDescriptor(owning: try retrying { eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK)) })
  }

  func add(_ event: ControlEvent) {
    state.withLock { state in
      if state.lost > 0 || state.events.count >= Self.most { state.lost += 1 } else { state.events.append(event) }
    }
    raise()
  }

  func close() {
    state.withLock { $0.isClosed = true }
    raise()
  }

  /// What came since the last call, in its order; how many were lost behind that; whether no more will come.
  func take() -> (events: [ControlEvent], lost: Int, isClosed: Bool) {
    var count: UInt64 = 0
    _ = read(wake.rawValue, &count, 8)  // what is added from now on raises it again
    return state.withLock { state in
      defer { (state.events, state.lost) = ([], 0) }
      return (state.events, state.lost, state.isClosed)
    }
  }

  private func raise() {
    var one: UInt64 = 1
    _ = write(wake.rawValue, &one, 8)  // it fails only where it is raised already
  }
}
