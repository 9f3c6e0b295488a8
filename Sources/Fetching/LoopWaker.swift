import Base
import CCurl
import Glibc
import Synchronization

/// What other threads may do to the loop: wake it and stop it.
///
/// An eventfd of its own among the descriptors of curl_multi_poll, rather than curl_multi_wakeup. The eventfd outlives
/// the multi handle (which the loop replaces to drop connections), and wakes in quick succession cost one write.
final class LoopWaker: Sendable {
  private let event: FileDescriptor
  /// Whether the loop has not seen the last wake yet: then no thread needs to write.
  private let isPending = Atomic<Bool>(false)
  private let stopping = Atomic<Bool>(false)

  init() throws(FetchError) {
    let descriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
    guard descriptor >= 0 else { throw .library("eventfd: \(Errno.current)") }
    event = FileDescriptor(owning: descriptor)
  }

  /// The descriptor to poll.
  var descriptor: Int32 { event.rawValue }
  /// Whether `stop` was called.
  var isStopping: Bool { stopping.load(ordering: .acquiring) }

  /// Makes the loop turn. Any thread may call it.
  func wake() {
    if isPending.exchange(true, ordering: .acquiringAndReleasing) { return }
    // A full counter (EAGAIN) is a wake already; an eventfd has no other failure.
    _ = eventfd_write(event.rawValue, 1)
  }

  /// Makes the loop end. Any thread may call it.
  func stop() {
    stopping.store(true, ordering: .releasing)
    wake()
  }

  /// Clears the wake that poll reported. The loop calls it before it asks the client: anything posted after that wakes
  /// the loop again.
  func clear() {
    var count: eventfd_t = 0
    _ = eventfd_read(event.rawValue, &count)
    // An exchange rather than a store: the loop then sees what a thread posted before it found a wake pending.
    _ = isPending.exchange(false, ordering: .acquiringAndReleasing)
  }
}
