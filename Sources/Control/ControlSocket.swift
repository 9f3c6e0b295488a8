import Base
import CSystem
import Glibc

/// One end of a connection that carries lines, each with a deadline. The socket is nonblocking; poll(2) waits.
///
/// One thread at a time reads (``LineReader``), and one writes. Any thread may call ``shutdown()``.
final class ControlSocket: Sendable {
  private let descriptor: FileDescriptor

  /// Takes ownership of a connected stream socket.
  init(owning descriptor: consuming FileDescriptor) throws(Errno) {
    try makeNonblocking(descriptor.rawValue)
    self.descriptor = descriptor
  }

  /// Ends the connection for both sides, which wakes threads that wait on it.
  func shutdown() { _ = Glibc.shutdown(descriptor.rawValue, Int32(SHUT_RDWR)) }

  /// The user id of the process at the other end; nil if the kernel does not tell.
  var peerUser: uid_t? {
    let user = csystem_peer_uid(descriptor.rawValue)
    return user < 0 ? nil : uid_t(user)
  }

  /// Reads at least one byte into `buffer` and returns how many; 0 if the peer closed the connection.
  func receive(into buffer: UnsafeMutableRawBufferPointer, until deadline: Instant) throws(ControlFailure) -> Int {
    while true {
      let count = recv(descriptor.rawValue, buffer.baseAddress, buffer.count, 0)
      if count >= 0 { return count }
      switch Errno.current.rawValue {
      case EINTR: continue
      case EAGAIN:
        guard wait(for: Int16(POLLIN), until: deadline) else {
          throw ControlFailure(.silent, "no message arrived in time")
        }
      case ECONNRESET: return 0
      case let other: throw ControlFailure(.gone, "cannot read from the control socket: \(Errno(rawValue: other))")
      }
    }
  }

  /// Sends all of `bytes`.
  func send(_ bytes: [UInt8], until deadline: Instant) throws(ControlFailure) {
    var sent = 0
    while sent < bytes.count {
      // MSG_NOSIGNAL: a peer that left is an error here, not a SIGPIPE.
      let count = bytes.withUnsafeBytes { all in
        let rest = UnsafeRawBufferPointer(rebasing: all[sent...])
        return Glibc.send(descriptor.rawValue, rest.baseAddress, rest.count, Int32(MSG_NOSIGNAL))
      }
      if count >= 0 {
        sent += count
        continue
      }
      switch Errno.current.rawValue {
      case EINTR: continue
      case EAGAIN:
        guard wait(for: Int16(POLLOUT), until: deadline) else {
          throw ControlFailure(.silent, "the peer did not read the answer in time")
        }
      case let other: throw ControlFailure(.gone, "the peer closed the connection: \(Errno(rawValue: other))")
      }
    }
  }

  /// Waits for `seconds`. Returns true at once if the peer closes the connection or sends something.
  func isDisturbed(within seconds: Double) -> Bool {
    wait(for: Int16(POLLIN), until: Instant.now.adding(seconds: seconds))
  }

  /// Whether the peer has closed the connection. One that only sends nothing more still reads.
  var isLeft: Bool {
    var entry = pollfd(fd: descriptor.rawValue, events: 0, revents: 0)
    return poll(&entry, 1, 0) > 0
  }

  /// Waits until the peer closes the connection or sends something, which is true, or `other` can be read.
  func isDisturbed(orReadable other: borrowing FileDescriptor) -> Bool {
    var entries = [
      pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0),
      pollfd(fd: other.rawValue, events: Int16(POLLIN), revents: 0),
    ]
    while poll(&entries, 2, -1) < 0, Errno.current == .interrupted {}
    return entries[0].revents != 0
  }

  /// Waits until the socket is ready or broken; the next call tells which. Returns false at `deadline`.
  private func wait(for events: Int16, until deadline: Instant) -> Bool {
    while true {
      let left = deadline.seconds(since: .now)
      if left <= 0 { return false }
      var entry = pollfd(fd: descriptor.rawValue, events: events, revents: 0)
      // The time is rounded up, because a wait of 0 would spin, and bounded, because poll counts in 32 bits.
      let result = poll(&entry, 1, Int32(min(left, 3600) * 1000) + 1)
      if result > 0 { return true }
      if result < 0 && Errno.current != .interrupted { return true }
    }
  }
}

/// Splits the incoming bytes into lines.
struct LineReader {
  private let socket: ControlSocket
  private var pending: [UInt8] = []
  private var searched = 0
  private var chunk = [UInt8](repeating: 0, count: 16 << 10)

  /// Reads from `socket`. No other code may read from it.
  init(_ socket: ControlSocket) { self.socket = socket }

  /// The next line without its newline; nil if the peer closed after a whole line. `deadline` is for the whole line.
  mutating func next(until deadline: Instant) throws(ControlFailure) -> [UInt8]? {
    while true {
      if let end = pending[searched...].firstIndex(of: UInt8(ascii: "\n")) {
        let line = Array(pending[..<end])
        pending.removeSubrange(...end)
        searched = 0
        return line
      }
      searched = pending.count
      guard pending.count < ControlLimits.message else {
        throw ControlFailure(.malformed, "a message of more than \(ControlLimits.message) bytes")
      }
      // A Result, because typed throws do not pass through withUnsafeMutableBytes.
      let result = chunk.withUnsafeMutableBytes { buffer -> Result<Int, ControlFailure> in
        do throws(ControlFailure) {
          return .success(try socket.receive(into: buffer, until: deadline))
        } catch {
          return .failure(error)
        }
      }
      let count = try result.get()
      if count == 0 {
        if pending.isEmpty { return nil }
        throw ControlFailure(.gone, "the peer closed the connection in the middle of a message")
      }
      pending += chunk[..<count]
    }
  }
}

/// Sets O_NONBLOCK and close-on-exec.
func makeNonblocking(_ descriptor: Int32) throws(Errno) {
  let flags = try retrying { csystem_fcntl(descriptor, F_GETFL, 0) }
  _ = try retrying { csystem_fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) }
  _ = try retrying { csystem_fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
}

/// Calls `body` with the address of the socket `control` in the open folder `folder`.
///
/// The address goes through /proc, because it has room for 107 bytes of path and the store's path may be longer.
func withControlAddress<Result>(
  in folder: borrowing FileDescriptor, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Result
) -> Result {
  withControlAddress(at: "/proc/self/fd/\(folder.rawValue)/\(controlSocketName)", body)
}

/// Calls `body` with the address of the socket at `path`, of less than 108 bytes.
func withControlAddress<Result>(
  at path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Result
) -> Result {
  var address = sockaddr_un()
  address.sun_family = sa_family_t(AF_UNIX)
  withUnsafeMutableBytes(of: &address.sun_path) { room in
    room.copyBytes(from: path.utf8.prefix(room.count - 1))  // the rest stays zero
  }
  return withUnsafePointer(to: &address) { pointer in
    pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
  }
}

/// The socket's name in the store.
let controlSocketName = "control"
