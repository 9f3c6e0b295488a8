import Base
import CCurl
import Glibc

/// TCP connections that are made before a request needs them. The loop's thread alone uses them.
///
/// The first answer of a host shows a reader's place, and at once another connection is needed for what it reads next.
/// Its handshake would leave the line idle for a round trip. So it is made beside the first one, and the next request
/// that finds no idle connection takes it.
final class SpareConnections {
  /// Where a connection leads, and how its socket was made.
  struct Place: Equatable {
    let family: Int32
    let type: Int32
    let transport: Int32
    /// The `addrlen` bytes, which may be more than a `sockaddr` has: libcurl has room for any family's.
    let address: [UInt8]
    let receiveBuffer: Int32?

    init(_ address: UnsafeMutablePointer<curl_sockaddr>, receiveBuffer: Int32?) {
      let to = address.pointee
      (family, type, transport) = (to.family, to.socktype, to.protocol)
      let start = UnsafeRawPointer(address) + (MemoryLayout<curl_sockaddr>.offset(of: \.addr) ?? 16)
      self.address = Array(UnsafeRawBufferPointer(start: start, count: Int(to.addrlen)))
      self.receiveBuffer = receiveBuffer
    }

    /// socket(2), close-on-exec; -1 when there is none.
    func socket(_ flags: Int32 = 0) -> Int32 {
      let socket = Glibc.socket(family, type | Int32(SOCK_CLOEXEC.rawValue) | flags, transport)
      guard socket >= 0, var size = receiveBuffer else { return socket }
      // Before it connects, the buffer still decides the window scale. If the kernel refuses the size, its default
      // stays: that only costs throughput or memory.
      _ = setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, socklen_t(MemoryLayout<Int32>.size))
      return socket
    }
  }

  /// For how many seconds one is kept: servers close connections on which no request comes.
  private let kept: Double
  /// The most at once.
  private static let most = 8

  private var planned: [Place] = []
  private var spares: [(place: Place, socket: Int32, expiry: Instant)] = []
  /// The last that was taken, until libcurl is told that it is connected.
  private var taken: Int32?

  /// Each is kept for so many seconds.
  init(seconds: Double) { kept = seconds }

  deinit { close() }

  /// When ``expire(_:)`` has something to do.
  var deadline: Instant { spares.map(\.expiry).min() ?? .never }

  /// One is to be made to `place`, by ``connect()``.
  func plan(_ place: Place) {
    if place.type == Int32(SOCK_STREAM.rawValue), planned.count < Self.most { planned.append(place) }
  }

  /// Begins to make those that were planned. The loop calls this when libcurl's own connections are on their way: a
  /// server that takes one connection after the other would wait for a request on the first that comes.
  func connect() {
    if planned.isEmpty { return }
    expire(.now)
    for place in planned where spares.count < Self.most {
      let socket = place.socket(Int32(SOCK_NONBLOCK.rawValue))
      if socket < 0 { continue }
      let error = place.address.withUnsafeBytes { bytes -> Int32 in
        guard let start = bytes.baseAddress else { return EINVAL }
        let status = Glibc.connect(socket, start.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count))
        return status == 0 ? 0 : errno
      }
      // libcurl 7.88 connects a connected socket again. Linux answers the first such call with success, unless the call
      // here has had that answer already.
      if error == EINPROGRESS {
        spares.append((place, socket, Instant.now.adding(seconds: kept)))
      } else {
        Glibc.close(socket)
      }
    }
    planned = []
  }

  /// One that is connected to `place`, and that the other side has not closed. A request that finds none makes its own,
  /// in place of what was planned or is not ready: there are never more connections than a host may have.
  func take(_ place: Place) -> Int32? {
    taken = nil
    planned.removeAll { $0 == place }
    expire(.now)
    for (index, spare) in spares.enumerated().reversed() where spare.place == place {
      var state = pollfd(fd: spare.socket, events: Int16(POLLIN | POLLOUT), revents: 0)
      let isAnswered = poll(&state, 1, 0) == 1
      spares.remove(at: index)
      if isAnswered, state.revents == Int16(POLLOUT) {
        taken = spare.socket
        return taken
      }
      Glibc.close(spare.socket)
    }
    return nil
  }

  /// Whether `socket` was taken: libcurl asks once, right after it got it.
  func wasTaken(_ socket: Int32) -> Bool {
    defer { taken = nil }
    return taken == socket
  }

  /// Closes those that nobody needed.
  func expire(_ now: Instant) { close { $0.expiry <= now } }

  /// Closes those to `place`.
  func drop(_ place: Place) {
    planned.removeAll { $0 == place }
    close { $0.place == place }
  }

  /// Closes all.
  func close() {
    planned = []
    close { _ in true }
  }

  private func close(where isOver: ((place: Place, socket: Int32, expiry: Instant)) -> Bool) {
    for spare in spares where isOver(spare) { Glibc.close(spare.socket) }
    spares.removeAll(where: isOver)
  }
}
