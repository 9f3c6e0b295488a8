import Base
import CCurl
import Glibc

/// TCP connections that are made before a request needs them. The loop's thread alone uses them.
///
/// The first answer of a host shows a reader's place, and at once another connection is needed for what it reads next.
/// Its handshake would leave the line idle for a round trip. So it is made beside the first one, and the next request
/// that finds no idle connection takes it.
final class SpareConnections {
  /// For how many seconds one is kept: servers close connections on which no request comes.
  private static let kept = 2.0
  /// The most at once.
  private static let most = 8

  private struct Spare {
    let socket: Int32
    let address: [UInt8]
    let expiry: Instant
  }
  private var spares: [Spare] = []
  /// The last that was taken, until libcurl is told that it is connected.
  private var taken: Int32?

  deinit { close() }

  /// When ``expire(_:)`` has something to do.
  var deadline: Instant { spares.map(\.expiry).min() ?? .never }

  /// Closes those that nobody needed.
  func expire(_ now: Instant) {
    for spare in spares where spare.expiry <= now { Glibc.close(spare.socket) }
    spares.removeAll { $0.expiry <= now }
  }

  /// Closes all.
  func close() {
    for spare in spares { Glibc.close(spare.socket) }
    spares = []
  }

  /// Begins to connect to `address`; nothing happens where that fails.
  func make(_ address: UnsafeMutablePointer<curl_sockaddr>, receiveBuffer: Int32?) {
    let now = Instant.now
    expire(now)
    guard spares.count < Self.most, address.pointee.socktype == Int32(SOCK_STREAM.rawValue),
      let socket = Self.socket(address, Int32(SOCK_NONBLOCK.rawValue))
    else { return }
    Self.limit(socket, receiveBuffer)
    let bytes = Self.bytes(address)
    let status = bytes.withUnsafeBytes { bytes -> Int32 in
      guard let start = bytes.baseAddress else { return -1 }
      return connect(socket, start.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count))
    }
    guard status == 0 || errno == EINPROGRESS else {
      Glibc.close(socket)
      return
    }
    spares.append(Spare(socket: socket, address: bytes, expiry: now.adding(seconds: Self.kept)))
  }

  /// One that is connected to `address`, and that the other side has not closed.
  func take(_ address: UnsafeMutablePointer<curl_sockaddr>) -> Int32? {
    if spares.isEmpty { return nil }
    expire(.now)
    let wanted = Self.bytes(address)
    while let index = spares.firstIndex(where: { $0.address == wanted }) {
      let socket = spares[index].socket
      var state = pollfd(fd: socket, events: Int16(POLLIN | POLLOUT), revents: 0)
      // It has no answer yet: a new one would come no sooner, but libcurl cannot wait for this one.
      if poll(&state, 1, 0) == 0 { return nil }
      spares.remove(at: index)
      if state.revents == Int16(POLLOUT) {
        taken = socket
        return socket
      }
      Glibc.close(socket)
    }
    return nil
  }

  /// Whether `socket` was taken: libcurl asks once, right after it got it.
  func wasTaken(_ socket: Int32) -> Bool {
    defer { taken = nil }
    return taken == socket
  }

  /// socket(2) for `address`, close-on-exec; nil when there is none.
  static func socket(_ address: UnsafeMutablePointer<curl_sockaddr>, _ flags: Int32 = 0) -> Int32? {
    let to = address.pointee
    let socket = Glibc.socket(to.family, to.socktype | Int32(SOCK_CLOEXEC.rawValue) | flags, to.protocol)
    return socket < 0 ? nil : socket
  }

  /// Sets the receive buffer in bytes, before the socket connects: then it still decides the window scale. If the
  /// kernel refuses the size, its default stays: that only costs throughput or memory.
  static func limit(_ socket: Int32, _ receiveBuffer: Int32?) {
    guard var size = receiveBuffer else { return }
    _ = setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, socklen_t(MemoryLayout<Int32>.size))
  }

  /// The `addrlen` bytes of the address, which may be more than a `sockaddr` has: libcurl has room for any family's.
  private static func bytes(_ address: UnsafeMutablePointer<curl_sockaddr>) -> [UInt8] {
    let start = UnsafeRawPointer(address) + (MemoryLayout<curl_sockaddr>.offset(of: \.addr) ?? 16)
    return Array(UnsafeRawBufferPointer(start: start, count: Int(address.pointee.addrlen)))
  }
}
