import Base
import Glibc

/// A connection to 127.0.0.1 that sends and shows exactly what went over it. For one thread.
package struct RawClient: ~Copyable {
  private let socket: FileDescriptor

  /// How reading from the connection ended.
  package enum End: Sendable, Equatable {
    /// As many bytes came as were asked for.
    case filled
    /// It was closed in order.
    case closed
    /// It was reset.
    case reset
    /// Nothing more came in time.
    case timedOut
  }

  /// Connects to `port`.
  package init(port: UInt16) throws(Errno) { socket = FileDescriptor(owning: try Self.openSocket(port: port)) }

  /// Sends `text`; `Errno` when the connection is gone.
  package func send(_ text: String) throws(Errno) {
    var rest = Array(text.utf8)[...]
    while !rest.isEmpty {
      let count = try retrying {
        rest.withUnsafeBytes { Glibc.send(socket.rawValue, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      }
      rest = rest.dropFirst(count)
    }
  }

  /// Receives until `count` bytes came, the connection ended, or `timeout` seconds passed.
  package func receive(_ count: Int = .max, timeout: Double = 10) -> (bytes: [UInt8], end: End) {
    let deadline = Instant.now.adding(seconds: timeout)
    var all: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while all.count < count {
      let rest = deadline.nanoseconds - Instant.now.nanoseconds
      if rest <= 0 { return (all, .timedOut) }
      if pollUntil([(socket.rawValue, Int16(POLLIN))], nanoseconds: rest)[0] == 0 { continue }
      let received = recv(socket.rawValue, &buffer, min(buffer.count, count - all.count), 0)
      if received > 0 {
        all += buffer[..<received]
      } else if received == 0 {
        return (all, .closed)
      } else if errno != EINTR {
        return (all, .reset)
      }
    }
    return (all, .filled)
  }

  /// Receives up to the empty line that ends a response's head: its lines, the status line first.
  package func receiveHead(timeout: Double = 10) -> (lines: [String], end: End) {
    var all: [UInt8] = []
    while !all.suffix(4).elementsEqual([13, 10, 13, 10]) {
      let (bytes, end) = receive(1, timeout: timeout)
      all += bytes
      if end != .filled { return (Self.lines(all), end) }
    }
    return (Self.lines(all), .filled)
  }

  private static func lines(_ bytes: [UInt8]) -> [String] {
    String(decoding: bytes, as: UTF8.self).split(separator: "\r\n").map(String.init)
  }

  /// Whether a connection to `port` can be made; it is closed at once.
  package static func isAccepted(port: UInt16) -> Bool {
    do throws(Errno) { close(try openSocket(port: port)) } catch { return false }
    return true
  }

  private static func openSocket(port: UInt16) throws(Errno) -> Int32 {
    let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    if socket < 0 { throw Errno.current }
    var name = sockaddr_in()
    name.sin_family = sa_family_t(AF_INET)
    name.sin_port = port.bigEndian
    name.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    if withSocketAddress(&name, { connect(socket, $0, $1) }) != 0 {
      let error = Errno.current
      close(socket)
      throw error
    }
    return socket
  }
}
