import Base
import Glibc

/// Why a connection's thread has nothing more to do on it.
enum OriginGone: Error {
  /// The client closed or reset it.
  case client
  /// The origin stops, or dropped the connection.
  case stopped
  /// A fault ends it: by a reset, or in order.
  case fault(reset: Bool)
}

/// A connection's socket: non-blocking, used by its one thread, every wait of which ends when the client leaves or the
/// origin stops.
struct OriginSocket {
  let descriptor: Int32
  let stopSignal: Int32
  /// Bytes that came behind the last head.
  private var unread: [UInt8] = []

  init(_ descriptor: Int32, stopSignal: Int32) {
    self.descriptor = descriptor
    self.stopSignal = stopSignal
    var yes: Int32 = 1
    setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, socklen_t(MemoryLayout<Int32>.size))
  }

  /// SO_SNDBUF, of which the kernel makes twice as much for its own bookkeeping.
  func setSendBuffer(_ bytes: Int32) {
    var bytes = bytes
    setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &bytes, socklen_t(MemoryLayout<Int32>.size))
  }

  /// Makes the coming close(2) send a reset.
  static func resetAtClose(_ descriptor: Int32) {
    var linger = linger(l_onoff: 1, l_linger: 0)
    setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<linger>.size))
  }

  /// Waits until what was sent has arrived, at most a second: a reset would throw away what has not.
  func waitUntilDelivered() throws(OriginGone) {
    let deadline = Instant.now.adding(seconds: 1)
    var waiting: Int32 = 0
    while ioctl(descriptor, UInt(TIOCOUTQ), &waiting) == 0, waiting > 0, Instant.now < deadline {
      try wait(until: Instant.now.adding(seconds: 0.002))
    }
  }

  /// Waits until `time`; throws as soon as the client is gone or the origin stops.
  func wait(until time: Instant) throws(OriginGone) {
    while true {
      let rest = time.nanoseconds - Instant.now.nanoseconds
      if rest <= 0 { return }
      _ = try poll(0, nanoseconds: rest)
    }
  }

  /// Waits for `events`, the client's leaving or the stop: whether one of `events` came (not at the end of the time).
  private func poll(_ events: Int16, nanoseconds: Int64) throws(OriginGone) -> Bool {
    let happened = pollUntil(
      [(descriptor, events | pollPeerClosed), (stopSignal, Int16(POLLIN))], nanoseconds: nanoseconds)
    if happened[1] != 0 { throw .stopped }
    // What the client sent before it left may still be read; nothing needs to be sent to it.
    if happened[0] & Int16(POLLIN) & events != 0 { return true }
    if happened[0] & (pollPeerClosed | Int16(POLLHUP) | Int16(POLLERR)) != 0 { throw .client }
    return happened[0] & events != 0
  }

  /// Sends all of `bytes`; tells `progress` after each part that the kernel took.
  func send(_ bytes: UnsafeRawBufferPointer, progress: (Int) -> Void = { _ in }) throws(OriginGone) {
    var sent = 0
    while sent < bytes.count, let base = bytes.baseAddress {
      let count = Glibc.send(descriptor, base + sent, bytes.count - sent, Int32(MSG_NOSIGNAL))
      if count > 0 {
        sent += count
        progress(count)
      } else if errno == EAGAIN {
        _ = try poll(Int16(POLLOUT), nanoseconds: 60_000_000_000)
      } else if errno != EINTR {
        throw .client
      }
    }
  }

  /// The next request's head with its last empty line, nil when none came within `timeout` seconds.
  mutating func readHead(timeout: Double) throws(OriginGone) -> [UInt8]? {
    let deadline = Instant.now.adding(seconds: timeout)
    var searched = 0
    while true {
      if let end = Self.endOfHead(unread, from: searched) {
        let head = Array(unread[..<end])
        unread.removeFirst(end)
        return head
      }
      if unread.count > 64 << 10 { return nil }
      searched = max(0, unread.count - 3)
      guard try readMore(until: deadline) else { return nil }
    }
  }

  /// Takes `count` bytes of a request's body, or as many as come within `timeout` seconds.
  mutating func readBody(_ count: Int, timeout: Double) throws(OriginGone) -> [UInt8] {
    let deadline = Instant.now.adding(seconds: timeout)
    while unread.count < count, try readMore(until: deadline) {}
    let body = Array(unread.prefix(count))
    unread.removeFirst(body.count)
    return body
  }

  private mutating func readMore(until deadline: Instant) throws(OriginGone) -> Bool {
    var buffer = [UInt8](repeating: 0, count: 16 << 10)
    while true {
      let count = recv(descriptor, &buffer, buffer.count, 0)
      if count > 0 {
        unread += buffer[..<count]
        return true
      }
      if count == 0 { throw .client }
      if errno == EINTR { continue }
      if errno != EAGAIN { throw .client }
      let rest = deadline.nanoseconds - Instant.now.nanoseconds
      if rest <= 0 { return false }
      _ = try poll(Int16(POLLIN), nanoseconds: rest)
    }
  }

  private static func endOfHead(_ bytes: [UInt8], from start: Int) -> Int? {
    guard bytes.count >= 4 else { return nil }
    for index in start..<(bytes.count - 3)
    where bytes[index] == 13 && bytes[index + 1] == 10 && bytes[index + 2] == 13 && bytes[index + 3] == 10 {
      return index + 4
    }
    return nil
  }
}
