import Base
import CSystem
import Glibc

/// The helper, which starts a waker for each packet of orders (mount-helper/PROTOCOL.md, "Watchers").
///
/// ``send(_:password:)`` is called by one thread, ``end()`` by any.
final class WakingHelper: Sendable {
  /// The messages. `mount-helper/link.h` declares them for the helper.
  enum Message: UInt32 { case wake = 35, woken }

  /// How long a waker may live, and its answer may take, in seconds.
  static let patience = 5.0

  /// Nil without a helper: then programs are told nothing.
  private let socket: FileDescriptor?
  private let ending: Event
  private let state = Lock((lastNumber: UInt32(0), hasComplained: false))

  init(_ socket: consuming FileDescriptor?) throws(Errno) {
    self.socket = socket
    ending = try Event()
    _ = csystem_fcntl(number, F_SETFL, O_NONBLOCK)
  }

  private var number: Int32 {
    switch socket {
    case .some(let socket): socket.rawValue
    case .none: -1
    }
  }

  /// Makes ``send(_:password:)`` return.
  func end() { ending.signal() }

  /// Has a waker carry out orders, and waits until it has. False: it could not, or not in time, and the log says so
  /// once.
  func send(_ orders: [UInt8], password: String) -> Bool {
    let mine = state.withLock { state in
      state.lastNumber &+= 1
      return state.lastNumber
    }
    var packet: [UInt8] = []
    withUnsafeBytes(of: (Message.wake.rawValue, mine)) { packet += $0 }
    packet += WakeOrders.order("w", password) + orders
    let sent = Glibc.send(number, packet, packet.count, Int32(MSG_NOSIGNAL))
    guard let error = sent < 0 ? errno : answer(to: mine) else { return false }
    if error == 0 { return true }
    let isFirst = state.withLock { state in
      defer { state.hasComplained = true }
      return !state.hasComplained
    }
    if isFirst && number >= 0 {
      Log.warning("programs that watch the mount are not told of new and removed names: \(Errno(rawValue: error))")
    }
    return false
  }

  /// The errno that the helper answers with, 0 for none; nil once ``end()`` was called.
  private func answer(to mine: UInt32) -> Int32? {
    // The helper gives a waker five seconds, and then answers.
    let deadline = Instant.now.adding(seconds: Self.patience + 1)
    while true {
      let left = deadline.seconds(since: .now)
      if left <= 0 { return ETIMEDOUT }
      var ready = [
        pollfd(fd: number, events: Int16(POLLIN), revents: 0),
        pollfd(fd: ending.rawValue, events: Int16(POLLIN), revents: 0),
      ]
      _ = poll(&ready, 2, Int32(left * 1000) + 1)
      if ready[1].revents != 0 { return nil }
      var packet: (type: UInt32, number: UInt32, result: UInt32) = (0, 0, 0)
      var stray: Int32 = -1
      let count = csystem_receive_descriptor(number, &packet, 12, &stray)
      if stray >= 0 { Glibc.close(stray) }
      if count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR) { return EPIPE }
      if count == 12, packet.type == Message.woken.rawValue, packet.number == mine {
        return Int32(truncatingIfNeeded: packet.result)
      }
    }
  }
}
