import Base
import CCurl
import Glibc
import Synchronization

/// What other threads may do to the loop: wake it, and tell it to stop.
///
/// An eventfd of our own among the descriptors of curl_multi_poll, rather than curl_multi_wakeup: it outlives the multi
/// handle (which is replaced when connections are dropped), and wakes that come close together cost one write.
final class LoopWaker: Sendable {
  private let event: FileDescriptor
  /// Whether a wake is on its way that the loop has not seen: then nobody needs to write.
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

  /// Makes the loop turn. From any thread.
  func wake() {
    if isPending.exchange(true, ordering: .acquiringAndReleasing) { return }
    // A full counter (EAGAIN) is a wake already; an eventfd has no other failure.
    _ = eventfd_write(event.rawValue, 1)
  }

  /// Makes the loop end. From any thread.
  func stop() {
    stopping.store(true, ordering: .releasing)
    wake()
  }

  /// Takes the wake that poll reported. From the loop, before it asks the client: what is put down after this wakes
  /// again.
  func clear() {
    var count: eventfd_t = 0
    _ = eventfd_read(event.rawValue, &count)
    // An exchange rather than a store: it sees what whoever found a wake pending had put down before.
    _ = isPending.exchange(false, ordering: .acquiringAndReleasing)
  }
}
