import Base
import Glibc

/// A listening socket with the thread that accepts on it.
final class OriginListener: Sendable {
  private let socket: Int32
  private let thread: OwnedThread

  /// Listens on `bound` and hands every accepted socket to `accepted`, which owns it.
  init(_ bound: consuming FileDescriptor, _ accepted: @escaping @Sendable (Int32) -> Void) throws(Errno) {
    _ = try retrying { [descriptor = bound.rawValue] in listen(descriptor, 1024) }
    let socket = dup(bound.rawValue)
    if socket < 0 { throw Errno.current }
    _ = fcntl(socket, F_SETFD, FD_CLOEXEC)
    self.socket = socket
    thread = OwnedThread(name: "origin-accept") {
      while true {
        let connection = GNUCalls.accept4(socket, nil, nil, Int32(SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue))
        if connection >= 0 {
          accepted(connection)
        } else if errno == EINVAL {
          return  // no longer listening
        } else {
          // A connection that broke off in the queue, or no descriptor left: those that close give some back.
          sleep(seconds: 0.001)
        }
      }
    }
  }

  /// Stops listening at once (the queue's connections are reset), ends the thread and closes the socket.
  func close() {
    shutdown(socket, Int32(SHUT_RDWR))
    thread.join()
    Glibc.close(socket)
  }

  /// A socket bound to `address` and `port`, that shares the port with others which do not listen.
  static func boundSocket(_ address: String, port: UInt16) throws(Errno) -> FileDescriptor {
    let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
    let socket = FileDescriptor(owning: try retrying { Glibc.socket(AF_INET, type, 0) })
    var yes: Int32 = 1
    setsockopt(socket.rawValue, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
    var name = sockaddr_in()
    name.sin_family = sa_family_t(AF_INET)
    name.sin_port = port.bigEndian
    guard inet_pton(AF_INET, address, &name.sin_addr) == 1 else { throw Errno.invalid }
    let descriptor = socket.rawValue
    let result = withSocketAddress(&name) { bind(descriptor, $0, $1) }
    if result != 0 { throw Errno.current }
    return socket
  }

  /// The port that a socket is bound to.
  static func port(of socket: Int32) -> UInt16 {
    var name = sockaddr_in()
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    _ = withSocketAddress(&name) { pointer, _ in getsockname(socket, pointer, &length) }
    return UInt16(bigEndian: name.sin_port)
  }
}

/// Lends an Internet address as the general type that the socket calls take.
func withSocketAddress<Result>(
  _ name: inout sockaddr_in, _ body: (UnsafeMutablePointer<sockaddr>, socklen_t) -> Result
) -> Result {
  withUnsafeMutablePointer(to: &name) { pointer in
    // The socket calls are told the real type by its family and length.
    pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
  }
}

/// A TCP port of loopback that was free a moment ago. Another program can take it before you do: try again then.
package func freePort() throws(Errno) -> UInt16 {
  let socket = try OriginListener.boundSocket("127.0.0.1", port: 0)
  return OriginListener.port(of: socket.rawValue)
}
