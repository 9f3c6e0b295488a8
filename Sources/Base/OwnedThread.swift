import CSystem
import Glibc

/// A thread of our own, with a name that debuggers and `ps -L` show.
///
/// Not a dispatch queue or a task: what runs here waits in syscalls, which Swift's cooperative pool must never do.
package final class OwnedThread: Sendable {
  private let handle: pthread_t

  /// Starts `body` on a new thread. `name` is cut to 15 bytes. All signals are blocked there: the main thread owns
  /// them.
  package init(name: String, stackSize: Int = 512 << 10, _ body: @escaping @Sendable () -> Void) {
    let start = Unmanaged.passRetained(ThreadStart(name: name, body: body))  // released in `threadMain`, once
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    pthread_attr_setstacksize(&attributes, stackSize)
    var every = sigset_t()
    var before = sigset_t()
    sigfillset(&every)
    pthread_sigmask(SIG_SETMASK, &every, &before)
    var created = pthread_t()
    let result = pthread_create(&created, &attributes, threadMain, start.toOpaque())
    pthread_sigmask(SIG_SETMASK, &before, nil)
    pthread_attr_destroy(&attributes)
    precondition(result == 0, "pthread_create: \(Errno(rawValue: result))")
    handle = created
  }

  /// Waits until the body returned. To be called once, from another thread; or ``detach()``.
  package func join() { pthread_join(handle, nil) }

  /// Lets the thread end by itself, whenever that is: nobody waits for it. To be called once, instead of ``join()``.
  package func detach() { pthread_detach(handle) }
}

private final class ThreadStart: Sendable {
  let name: String
  let body: @Sendable () -> Void
  init(name: String, body: @escaping @Sendable () -> Void) {
    self.name = name
    self.body = body
  }
}

// A plain function: a closure formed in main-actor code would trap when a foreign thread calls it.
private func threadMain(_ argument: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
  guard let argument else { return nil }
  let start = Unmanaged<ThreadStart>.fromOpaque(argument).takeRetainedValue()
  csystem_name_thread(start.name)
  start.body()
  return nil
}
