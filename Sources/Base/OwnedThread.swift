import CSystem
import Glibc

/// A thread with a name, which debuggers and `ps -L` show.
///
/// It is neither a dispatch queue nor a task, because its body waits in syscalls, which must not happen in Swift's
/// cooperative pool.
package final class OwnedThread: Sendable {
  private let handle: pthread_t

  /// Starts `body` on a new thread. `name` is cut to 15 bytes. Signals are blocked in it, but for those that a
  /// thread raises by a fault: the main thread handles them. `record`: where the thread notes what it is busy with.
  ///
  /// For a thread without which the program cannot begin: if the system refuses it, the program says so and ends. A
  /// program that works already takes ``init(ifPossible:record:_:)``.
  ///
  /// `standsBack`: it interrupts no thread that runs (SCHED_BATCH), for work that programs seldom wait for.
  package init(
    name: String, record: ThreadRecord? = nil, standsBack: Bool = false, _ body: @escaping @Sendable () -> Void
  ) {
    let work: @Sendable () -> Void = {
      if standsBack { csystem_stand_back() }
      body()
    }
    do throws(Errno) { handle = try Self.create(name, record, work) } catch {
      Log.error("cannot start the thread \(name): \(error); \(OwnedThread.advice)")
      _exit(1)
    }
  }

  /// The same; throws if the system refuses the thread, which it does at a limit (EAGAIN).
  package init(
    ifPossible name: String, record: ThreadRecord? = nil, _ body: @escaping @Sendable () -> Void
  ) throws(Errno) {
    handle = try Self.create(name, record, body)
  }

  /// What a user can do about a thread that the system refuses.
  package static let advice = "end programs, or raise the limit of threads (ulimit -u, or TasksMax= of a systemd unit)"

  private static let stackSize = 512 << 10

  private static func create(
    _ name: String, _ record: ThreadRecord?, _ body: @escaping @Sendable () -> Void
  ) throws(Errno) -> pthread_t {
    // Released once, in `threadMain`.
    let start = Unmanaged.passRetained(ThreadStart(name: name, record: record, body: body))
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    pthread_attr_setstacksize(&attributes, stackSize)
    var every = sigset_t()
    var before = sigset_t()
    sigfillset(&every)
    // `csystem_report_deaths` handles these. Blocked, they would end the process without a word.
    for number in [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS] { sigdelset(&every, number) }
    pthread_sigmask(SIG_SETMASK, &every, &before)
    var created = pthread_t()
    let result = pthread_create(&created, &attributes, threadMain, start.toOpaque())
    pthread_sigmask(SIG_SETMASK, &before, nil)
    pthread_attr_destroy(&attributes)
    guard result == 0 else {
      start.release()
      throw Errno(rawValue: result)
    }
    return created
  }

  /// Waits until the body returns. Call it once, from another thread, or call ``detach()``.
  package func join() { pthread_join(handle, nil) }

  /// Lets the thread end by itself: nobody waits for it. Call it once, instead of ``join()``.
  package func detach() { pthread_detach(handle) }
}

private final class ThreadStart: Sendable {
  let name: String
  let record: ThreadRecord?
  let body: @Sendable () -> Void
  init(name: String, record: ThreadRecord?, body: @escaping @Sendable () -> Void) {
    self.name = name
    self.record = record
    self.body = body
  }
}

// A plain function: a closure formed in main-actor code would trap when a foreign thread calls it.
private func threadMain(_ argument: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
  guard let argument else { return nil }
  let start = Unmanaged<ThreadStart>.fromOpaque(argument).takeRetainedValue()
  csystem_name_thread(start.name)
  start.record?.begin()
  csystem_give_stack()
  start.body()
  csystem_take_stack()
  start.record?.end()
  return nil
}
