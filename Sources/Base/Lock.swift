import Glibc

/// A value that only one thread at a time can reach.
///
/// Uses pthread_mutex instead of `Synchronization.Mutex`. The latter uses futexes directly on Linux, which the thread
/// sanitizer cannot see, so that it reports false races. Not recursive. Keep the body short: no syscall, no callback
/// and no reply.
@safe
package final class Lock<Value>: @unchecked Sendable {
  // @unchecked: `value` is reached only in `withLock`, with the mutex held.
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  private var value: Value

  /// Guards `value`.
  package init(_ value: sending Value) {
    self.value = value
    // On the heap: a pthread mutex must not move, and Swift may move a stored property while it is passed inout.
    mutex = .allocate(capacity: 1)
    var attributes = pthread_mutexattr_t()
    pthread_mutexattr_init(&attributes)
    #if DEBUG
      // A thread that takes a lock twice ends the program with a backtrace, instead of waiting for itself.
      pthread_mutexattr_settype(&attributes, CInt(PTHREAD_MUTEX_ERRORCHECK))
    #endif
    let result = pthread_mutex_init(mutex, &attributes)
    precondition(result == 0, "pthread_mutex_init: error \(result)")
    pthread_mutexattr_destroy(&attributes)
  }

  deinit {
    pthread_mutex_destroy(mutex)
    mutex.deallocate()
  }

  /// Runs `body` with the lock held. Returns or throws what `body` does.
  @inline(__always)
  package func withLock<Result, Failure: Error>(
    _ body: (inout Value) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let result = pthread_mutex_lock(mutex)
    assert(result == 0, "pthread_mutex_lock: \(Errno(rawValue: result)): this thread has the lock already")
    defer { pthread_mutex_unlock(mutex) }
    return try body(&value)
  }
}
