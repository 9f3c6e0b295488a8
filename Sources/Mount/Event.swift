import Base
import CFuse
import Glibc

/// Something one thread waits for and any thread signals: eventfd(2). Signals before a wait are kept, as one.
struct Event: ~Copyable, Sendable {
  private let descriptor: FileDescriptor

  init() throws(Errno) { descriptor = FileDescriptor(owning: try retrying { cfuse_event() }) }

  /// To poll(2) it beside others.
  var rawValue: Int32 { descriptor.rawValue }

  /// Wakes the waiter, or the next one.
  func signal() {
    var one: UInt64 = 1
    _ = Glibc.write(descriptor.rawValue, &one, 8)  // fails only after 2^64 - 2 signals, and is signalled then
  }

  /// Waits until it is signalled, and clears it; or until `milliseconds` are over (-1: never), or a signal handler ran.
  func wait(milliseconds: Int32 = -1) {
    var waiting = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    _ = poll(&waiting, 1, milliseconds)  // why it returned is for the caller's loop to see
    var count: UInt64 = 0
    _ = Glibc.read(descriptor.rawValue, &count, 8)  // non-blocking: EAGAIN when it was not signalled
  }
}
