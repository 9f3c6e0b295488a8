import Base
import Glibc

/// A request as the server saw it.
struct SeenRequest: Sendable {
  var connection: Int
  var line: String
  /// Names in lower case.
  var fields: [String: String]

  var path: String { line.split(separator: " ").dropFirst().first.map(String.init) ?? "" }
  /// `first` and `last` of `Range: bytes=first-last`; last is nil when it is open.
  var range: (first: Int, last: Int?)? {
    guard let text = fields["range"], text.hasPrefix("bytes=") else { return nil }
    let sides = text.dropFirst(6).split(separator: "-", omittingEmptySubsequences: false)
    guard sides.count == 2, let first = Int(sides[0]) else { return nil }
    return (first, Int(sides[1]))
  }
}

/// One accepted connection, for the script to write to.
struct ServerConnection: Sendable {
  let descriptor: Int32

  /// Returns whether all was sent.
  @discardableResult
  func send(_ bytes: [UInt8]) -> Bool {
    var sent = 0
    while sent < bytes.count {
      let count = bytes.withUnsafeBytes {
        Glibc.send(descriptor, $0.baseAddress! + sent, $0.count - sent, Int32(MSG_NOSIGNAL))
      }
      if count <= 0 { return false }
      sent += count
    }
    return true
  }

  @discardableResult
  func send(_ text: String) -> Bool { send(Array(text.utf8)) }

  /// A response whose head lines are given without line ends.
  @discardableResult
  func send(_ head: [String], body: [UInt8] = []) -> Bool {
    send(Array((head.joined(separator: "\r\n") + "\r\n\r\n").utf8) + body)
  }

  /// Makes the next close a reset.
  func armReset() {
    var value = linger(l_onoff: 1, l_linger: 0)
    setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &value, socklen_t(MemoryLayout<linger>.size))
  }

  /// Waits until the peer closes, at most 20 s.
  func waitForClose() {
    var poller = pollfd(fd: descriptor, events: Int16(POLLIN | POLLRDHUP), revents: 0)
    _ = poll(&poller, 1, 20_000)
  }
}

private let POLLRDHUP: Int32 = 0x2000

/// A small HTTP/1.1 server on loopback: blocking threads, one a connection; what it answers is the script's.
///
/// The script answers one request and returns whether the connection goes on.
final class ScriptedServer: Sendable {
  typealias Script = @Sendable (SeenRequest, ServerConnection) -> Bool

  private struct State {
    var seen: [SeenRequest] = []
    var connections = 0
    var open: Set<Int32> = []
    /// Those of them that have sent a request.
    var busy: Set<Int32> = []
    var threads: [OwnedThread] = []
    var isStopped = false
  }

  let port: Int
  private let listener: Int32
  private let state = Lock(State())
  private let script: Script
  private let acceptor = Lock<OwnedThread?>(nil)

  /// Whether it takes a connection when the one before has ended.
  private let isSerial: Bool

  init(isSerial: Bool = false, _ script: @escaping Script) {
    (self.script, self.isSerial) = (script, isSerial)
    listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let listener = listener
    let bound = withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
        bind(listener, address, length) == 0 && listen(listener, 256) == 0
          && getsockname(listener, address, &length) == 0
      }
    }
    precondition(bound, "no server socket: \(Errno.current)")
    port = Int(UInt16(bigEndian: address.sin_port))
    acceptor.withLock { $0 = OwnedThread(name: "test-accept") { [self] in accept() } }
  }

  /// `http://127.0.0.1:PORT` and `path`.
  func url(_ path: String) -> String { "http://127.0.0.1:\(port)\(path)" }
  var seen: [SeenRequest] { state.withLock { $0.seen } }
  var connections: Int { state.withLock { $0.connections } }
  /// How many of them are open.
  var open: Int { state.withLock { $0.open.count } }
  /// Closes those on which no request came.
  func closeSilent() {
    state.withLock { state in
      for descriptor in state.open.subtracting(state.busy) { shutdown(descriptor, Int32(SHUT_RDWR)) }
    }
  }

  /// Closes everything and waits for the threads.
  func stop() {
    shutdown(listener, Int32(SHUT_RDWR))
    // Under the lock, as the closes are: a number that was closed may be another test's connection by now.
    state.withLock { state in
      state.isStopped = true
      for descriptor in state.open { shutdown(descriptor, Int32(SHUT_RDWR)) }
    }
    acceptor.withLock { $0.take() }?.join()
    for thread in state.withLock({ state in state.threads }) { thread.join() }
    close(listener)
  }

  private func accept() {
    while true {
      let descriptor = Glibc.accept(listener, nil, nil)
      if descriptor < 0 { return }
      let number: Int? = state.withLock { state in
        if state.isStopped { return nil }
        state.connections += 1
        state.open.insert(descriptor)
        return state.connections
      }
      guard let number else {
        close(descriptor)
        return
      }
      if isSerial {
        serve(descriptor, number)
        continue
      }
      let thread = OwnedThread(name: "test-serve") { [self] in serve(descriptor, number) }
      state.withLock { $0.threads.append(thread) }
    }
  }

  private func serve(_ descriptor: Int32, _ number: Int) {
    var buffer: [UInt8] = []
    while let request = receive(descriptor, number, &buffer) {
      state.withLock { state in
        state.seen.append(request)
        state.busy.insert(descriptor)
      }
      if !script(request, ServerConnection(descriptor: descriptor)) { break }
    }
    state.withLock { state in
      state.open.remove(descriptor)
      state.busy.remove(descriptor)
      close(descriptor)
    }
  }

  private func receive(_ descriptor: Int32, _ number: Int, _ buffer: inout [UInt8]) -> SeenRequest? {
    var chunk = [UInt8](repeating: 0, count: 16 << 10)
    while true {
      if let end = buffer.firstRange(of: Array("\r\n\r\n".utf8)) {
        let text = String(decoding: buffer[..<end.lowerBound], as: UTF8.self)
        buffer.removeSubrange(..<end.upperBound)
        let lines = text.split(separator: "\r\n")
        var fields: [String: String] = [:]
        for line in lines.dropFirst() {
          guard let colon = line.firstIndex(of: ":") else { continue }
          let value = line[line.index(after: colon)...].drop { $0 == " " }
          fields[line[..<colon].lowercased()] = String(value)
        }
        return SeenRequest(connection: number, line: String(lines.first ?? ""), fields: fields)
      }
      let count = recv(descriptor, &chunk, chunk.count, 0)
      if count <= 0 { return nil }
      buffer += chunk[..<count]
    }
  }
}

/// The first 2 MiB of every test body; made once, as byte after byte in Swift is slow under a sanitizer.
private let patternTable: [UInt8] = (0..<(2 << 20)).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }

/// Those bytes of it.
func pattern(_ range: Range<Int>) -> [UInt8] { Array(patternTable[range]) }

/// Answers as a good origin has it, for a resource of `size` bytes of the pattern.
func serveRange(_ request: SeenRequest, _ connection: ServerConnection, size: Int, extra: [String] = []) -> Bool {
  guard let asked = request.range else {
    return connection.send(["HTTP/1.1 200 OK", "Content-Length: \(size)"] + extra, body: pattern(0..<size))
  }
  guard asked.first < size else {
    return connection.send(["HTTP/1.1 416 No", "Content-Length: 0", "Content-Range: bytes */\(size)"])
  }
  let end = min((asked.last ?? size - 1) + 1, size)
  let head = [
    "HTTP/1.1 206 Partial Content", "Content-Length: \(end - asked.first)",
    "Content-Range: bytes \(asked.first)-\(end - 1)/\(size)",
  ]
  return connection.send(head + extra, body: pattern(asked.first..<end))
}
