import Base
import CFuse
import Reading

/// The tickets of the requests that the filesystem may answer later.
///
/// Loop threads give out tickets; any thread answers one; the notifier's thread watches the interrupted ones.
final class Tickets: Sendable {
  let table: Lock<RequestTable>
  private let fileSystem: any Served
  /// Its thread checks the callers of interrupted requests.
  private let notifier: Notifier
  private let passthrough: Passthrough

  init(fileSystem: any Served, notifier: Notifier, passthrough: Passthrough, memory: SessionMemory) {
    table = Lock(RequestTable(memory))
    self.fileSystem = fileSystem
    self.notifier = notifier
    self.passthrough = passthrough
  }

  /// Gives `request` a ticket, and makes libfuse report when the kernel interrupts it. This is done before the call to
  /// the filesystem: another thread may answer, and so free, the request before the call returns.
  @inline(__always)
  func begin(_ request: OpaquePointer) -> (Ticket, Caller) {
    let process = fuse_req_ctx(request)?.pointee.pid ?? 0
    let (unique, again, isLeft) = LoopThread.current?._withUnsafeGuaranteedRef { $0.beginTicket() } ?? (0, nil, false)
    let ticket = table.withLock {
      $0.begin(request, unique: unique, process: process, again: again, isLeft: isLeft)
    }
    // The pointer carries the number. Nothing follows it.
    fuse_req_interrupt_func(request, onInterrupt, UnsafeMutableRawPointer(bitPattern: ticket.rawValue))
    return (ticket, Caller(process: process))
  }

  /// The filesystem answered at once, and the caller has replied.
  @inline(__always)
  func settle(_ ticket: Ticket) { table.withLock { $0.settle(ticket) } }

  /// The filesystem keeps the ticket: the caller must not touch the request any more.
  func park(_ ticket: Ticket) {
    let bytes =
      LoopThread.current?._withUnsafeGuaranteedRef { $0.current } ?? UnsafeRawBufferPointer(start: nil, count: 0)
    deliver(table.withLock { $0.park(ticket, bytes) }, ticket)
  }

  /// Calls `body` to reply to a request, unless it was answered before: then there is an error in the log, as libfuse
  /// would free it twice. Returns what `body` does, else false.
  func answer(_ ticket: Ticket, _ body: (OpaquePointer, _ unique: UInt64) -> Bool) -> Bool {
    guard let taken = table.withLock({ $0.take(ticket) }) else {
      Log.error("mediafs answered a request twice and drops the second reply")
      return false
    }
    defer { table.withLock { $0.done(ticket) } }
    return body(taken.request, taken.unique)
  }

  /// Answers a parked request with an error.
  func refuse(_ ticket: Ticket, _ error: Errno) {
    _ = answer(ticket) { request, unique in
      refuse(request, unique: unique, error)
      return true
    }
  }

  /// Replies with an error. If the request is an OPEN that an earlier server had counted, and the kernel took the
  /// error, it is open no more.
  func refuse(_ request: OpaquePointer, unique: UInt64, _ error: Errno) {
    if isTaken(request, error), let inode = passthrough.refused(unique) { fileSystem.release(inode) }
  }

  /// From now on no reply reaches the kernel.
  func end() { table.withLock { $0.end() } }

  // MARK: Interrupts

  /// Delivers an interrupt. libfuse's interrupt function must not call it, as libfuse holds a lock there.
  func interrupt(_ ticket: Ticket) { deliver(table.withLock { $0.interrupt(ticket) }, ticket) }

  /// Tells the filesystem of an interrupted request, and has its caller watched for a later kill.
  private func deliver(_ interruption: RequestTable.Interruption, _ ticket: Ticket) {
    if interruption == .unkept, fileSystem.interrupt(ticket, isKilled: true) { refuse(ticket, .noMemory) }
    if interruption == .look { notifier.wake() }
    guard case .deliver(let process) = interruption else { return }
    let killed = isKilled(process: process)
    if !killed && table.withLock({ $0.watch(ticket) }) { notifier.wake() }
    interrupted(ticket, isKilled: killed)
  }

  /// Checks once whether callers of interrupted requests were killed since. False: there are none to check.
  func lookAfterInterrupted() -> Bool {
    let watched = table.withLock { $0.watched }
    // Thousands of requests may have a few callers.
    let killed = Set(Set(watched.values).filter { isKilled(process: $0) })
    for (ticket, process) in watched where killed.contains(process) { interrupted(ticket, isKilled: true) }
    return !watched.isEmpty
  }

  private func interrupted(_ ticket: Ticket, isKilled: Bool) {
    if fileSystem.interrupt(ticket, isKilled: isKilled) { refuse(ticket, .interrupted) }
  }
}
