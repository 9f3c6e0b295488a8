import Base
import CFuse
import Reading

/// The tickets of the requests that the filesystem was asked and may answer later.
///
/// Loop threads give tickets out; any thread answers one; the notifier's looks after those that were interrupted.
final class Tickets: Sendable {
  let table = Lock(RequestTable())
  private let fileSystem: any Served
  /// Whose thread looks at the callers of interrupted requests.
  private let notifier: Notifier

  init(fileSystem: any Served, notifier: Notifier) {
    self.fileSystem = fileSystem
    self.notifier = notifier
  }

  /// Gives `request` a ticket, and has libfuse say when the kernel interrupts it: before the filesystem is asked, as
  /// another thread may answer, and so free, the request before the call returns.
  @inline(__always)
  func begin(_ request: OpaquePointer) -> (Ticket, Caller) {
    let process = fuse_req_ctx(request)?.pointee.pid ?? 0
    let ticket = table.withLock { $0.begin(request, process: process) }
    // The number travels in a pointer that is never followed.
    fuse_req_interrupt_func(request, onInterrupt, UnsafeMutableRawPointer(bitPattern: ticket.rawValue))
    return (ticket, Caller(process: process))
  }

  /// The filesystem answered at once: the request is ours to answer.
  @inline(__always)
  func settle(_ ticket: Ticket) { _ = table.withLock { $0.settle(ticket, parked: false) } }

  /// The filesystem keeps the ticket: the request is not ours to touch any more.
  func park(_ ticket: Ticket) { deliver(table.withLock { $0.settle(ticket, parked: true) }, ticket) }

  /// The parked request; nil, and a word in the log, when it was answered before: libfuse would free it twice.
  func take(_ ticket: Ticket) -> OpaquePointer? {
    let request = table.withLock { $0.take(ticket) }
    if request == nil { Log.error("a request was answered twice; the second answer is dropped") }
    return request
  }

  /// Answers a parked request with an error.
  func refuse(_ ticket: Ticket, _ error: Errno) {
    guard let request = take(ticket) else { return }
    Mount.refuse(request, error)
  }

  // MARK: Interrupts

  /// The kernel interrupted the request. Not to be called from libfuse's interrupt function, which holds a lock.
  func interrupt(_ ticket: Ticket) { deliver(table.withLock { $0.interrupt(ticket) }, ticket) }

  /// Tells the filesystem of an interrupted request, and keeps looking whether its caller is killed later.
  private func deliver(_ interruption: RequestTable.Interruption, _ ticket: Ticket) {
    guard case .deliver(let process) = interruption else { return }
    let killed = isKilled(process: process)
    if !killed && table.withLock({ $0.watch(ticket) }) { notifier.wake() }
    interrupted(ticket, isKilled: killed)
  }

  /// Looks once whether callers of interrupted requests were killed since. False: there are none to look at.
  func lookAfterInterrupted() -> Bool {
    let watched = table.withLock { $0.watchedProcesses() }
    for entry in watched where isKilled(process: entry.process) { interrupted(entry.ticket, isKilled: true) }
    return !watched.isEmpty
  }

  private func interrupted(_ ticket: Ticket, isKilled: Bool) {
    if fileSystem.interrupt(ticket, isKilled: isKilled) { refuse(ticket, .interrupted) }
  }
}
