import Base
import Glibc

/// A filesystem that has an empty root and nothing else, spoken to the kernel directly (linux/fuse.h, protocol 7.31).
///
/// One thread; ends when the mount does, or when `stop` becomes readable.
struct EmptyTree: ~Copyable {
  private let device: Int32
  private var request = [UInt8](repeating: 0, count: 1 << 20)

  init(device: Int32) { self.device = device }

  private enum Operation {
    static let forget: UInt32 = 2
    static let attributes: UInt32 = 3
    static let statfs: UInt32 = 17
    static let initialize: UInt32 = 26
    static let openFolder: UInt32 = 27
    static let readFolder: UInt32 = 28
    static let releaseFolder: UInt32 = 29
    static let access: UInt32 = 34
    static let interrupt: UInt32 = 36
    static let forgetMany: UInt32 = 42
    static let readFolderPlus: UInt32 = 44
    static let lookup: UInt32 = 1
  }

  /// Reads and answers INIT; the request as it was read.
  mutating func initialize() throws(Errno) -> [UInt8] {
    let count = try retrying { read(device, &request, request.count) }
    let saved = Array(request[..<count])
    guard number(at: 4) == Operation.initialize else { throw .invalid }
    var body = [UInt8](repeating: 0, count: 64)
    put(7, in: &body, at: 0)
    put(31, in: &body, at: 4)
    put(131072, in: &body, at: 8)  // max_readahead
    put(4096, in: &body, at: 20)  // max_write
    put(1, in: &body, at: 24)  // time granularity in nanoseconds
    try reply(body)
    return saved
  }

  /// Answers requests until the mount is gone or `stop` is readable.
  mutating func serve(until stop: Int32) throws(Errno) {
    while true {
      var events = [device, stop].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
      _ = try retrying { poll(&events, 2, -1) }
      if events[1].revents != 0 { return }
      do throws(Errno) {
        _ = try retrying { read(device, &request, request.count) }
      } catch {
        if error == Errno(rawValue: ENODEV) { return }
        if error == Errno(rawValue: EAGAIN) || error == .notFound { continue }
        throw error
      }
      try answer()
    }
  }

  private func answer() throws(Errno) {
    switch number(at: 4) {
    case Operation.forget, Operation.forgetMany, Operation.interrupt: break
    case Operation.attributes:
      var body = [UInt8](repeating: 0, count: 104)
      put(1, in: &body, at: 16)  // ino
      put(UInt32(S_IFDIR | 0o555), in: &body, at: 76)
      put(2, in: &body, at: 80)
      put(getuid(), in: &body, at: 84)
      put(getgid(), in: &body, at: 88)
      try reply(body)
    case Operation.openFolder: try reply([UInt8](repeating: 0, count: 16))
    case Operation.readFolder, Operation.readFolderPlus, Operation.releaseFolder, Operation.access: try reply([])
    case Operation.statfs:
      var body = [UInt8](repeating: 0, count: 80)
      put(4096, in: &body, at: 40)
      put(255, in: &body, at: 44)
      put(4096, in: &body, at: 48)
      try reply(body)
    case Operation.lookup: try reply([], error: ENOENT)
    default: try reply([], error: ENOSYS)
    }
  }

  private func number(at offset: Int) -> UInt32 {
    request.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: UInt32.self) }
  }

  private func put(_ value: UInt32, in body: inout [UInt8], at offset: Int) {
    body.withUnsafeMutableBytes { $0.storeBytes(of: value, toByteOffset: offset, as: UInt32.self) }
  }

  private func reply(_ body: [UInt8], error: Int32 = 0) throws(Errno) {
    var packet = [UInt8](repeating: 0, count: 8)
    put(UInt32(16 + body.count), in: &packet, at: 0)
    put(UInt32(bitPattern: -error), in: &packet, at: 4)
    packet += request[8..<16]
    packet += body
    do throws(Errno) {
      _ = try retrying { write(device, packet, packet.count) }
    } catch {
      if error != .notFound { throw error }  // ENOENT: the caller was interrupted and waits no more
    }
  }
}
