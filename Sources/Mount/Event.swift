import Base
import CFuse
import Glibc

/// An eventfd(2) that wakes one waiting thread. Any thread may signal it. Signals before a wait count as one.
struct Event: ~Copyable, Sendable {
  private let descriptor: FileDescriptor

  init() throws(Errno) { descriptor = FileDescriptor(owning: try retrying { cfuse_event() }) }

  /// For poll(2) beside other descriptors.
  var rawValue: Int32 { descriptor.rawValue }

  /// Wakes the waiting thread, or the next one that waits.
  func signal() {
    var one: UInt64 = 1
    _ = Glibc.write(descriptor.rawValue, &one, 8)  // fails only after 2^64 - 2 signals; the event is signalled then
  }

  /// Waits for a signal and clears it. Returns without one after `milliseconds` (-1: never), or when a signal handler
  /// ran.
  func wait(milliseconds: Int32 = -1) {
    var waiting = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    _ = poll(&waiting, 1, milliseconds)  // the caller's loop checks why it returned
    var count: UInt64 = 0
    _ = Glibc.read(descriptor.rawValue, &count, 8)  // non-blocking: EAGAIN without a signal
  }
}
