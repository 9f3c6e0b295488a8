import Glibc

/// Wakes one waiting thread. Several raises before the wait are one wake-up.
@safe
package final class Signal: @unchecked Sendable {
  // @unchecked: `isRaised` is used only with the mutex held.
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  private let condition: UnsafeMutablePointer<pthread_cond_t>
  private var isRaised = false

  /// A signal that is not raised.
  package init() {
    // On the heap: neither may move.
    mutex = .allocate(capacity: 1)
    condition = .allocate(capacity: 1)
    pthread_mutex_init(mutex, nil)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(condition, &attributes)
    pthread_condattr_destroy(&attributes)
  }

  deinit {
    pthread_cond_destroy(condition)
    pthread_mutex_destroy(mutex)
    condition.deallocate()
    mutex.deallocate()
  }

  /// Wakes the waiting thread, or the next one that waits. From any thread.
  package func raise() {
    pthread_mutex_lock(mutex)
    isRaised = true
    pthread_mutex_unlock(mutex)
    pthread_cond_signal(condition)
  }

  /// Waits until the signal is raised, for at most `seconds` (nil: without limit), and lowers it. True when it was
  /// raised.
  @discardableResult
  package func wait(seconds: Double? = nil) -> Bool {
    var deadline = timespec()
    if let seconds {
      clock_gettime(CLOCK_MONOTONIC, &deadline)
      let nanoseconds = deadline.tv_nsec + Int((seconds - seconds.rounded(.down)) * 1e9)
      deadline.tv_sec += Int(seconds.rounded(.down)) + nanoseconds / 1_000_000_000
      deadline.tv_nsec = nanoseconds % 1_000_000_000
    }
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    while !isRaised {
      if seconds == nil {
        pthread_cond_wait(condition, mutex)
      } else if pthread_cond_timedwait(condition, mutex, &deadline) == ETIMEDOUT {
        break
      }
    }
    defer { isRaised = false }
    return isRaised
  }
}
