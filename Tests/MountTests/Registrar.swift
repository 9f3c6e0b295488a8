import Base
import CSystem
import Glibc

@testable import Mount

/// The helper's part of passthrough in this process: registers the files that a session sends, without a check.
final class Registrar: Sendable {
  private struct BackingMap {
    var file: Int32 = 0
    var flags: UInt32 = 0
    var padding: UInt64 = 0
  }

  // linux/fuse.h 7.40: _IOW(229, 1, 16 bytes) and _IOW(229, 2, 4 bytes).
  private static let openRequest: UInt = 0x4010_E501
  private static let closeRequest: UInt = 0x4004_E502

  private let device: Int32
  private let socket: FileDescriptor
  /// The ids that are registered.
  let ids = Lock<Set<Int32>>([])
  /// Whether it answers: a helper may stand still.
  let isAwake = Lock(true)

  /// Serves the other end of `socket` on a thread, until the session closes it.
  init(device: Int32, socket: consuming FileDescriptor) {
    self.device = device
    self.socket = socket
    _ = OwnedThread(name: "test-registrar") { [self] in serve() }
  }

  private func serve() {
    var packet: (type: UInt32, value: UInt32) = (0, 0)
    var file: Int32 = -1
    while csystem_receive_descriptor(socket.rawValue, &packet, 8, &file) == 8 {
      while !isAwake.withLock({ $0 }) { usleep(1000) }
      if packet.type == BackingFiles.Message.register.rawValue {
        var answer: (UInt32, UInt32, Int32) = (BackingFiles.Message.registered.rawValue, packet.value, register(file))
        _ = send(socket.rawValue, &answer, 12, 0)
      } else {
        let id = Int32(bitPattern: packet.value)
        ids.withLock { _ = $0.remove(id) }
        var value = packet.value
        _ = control(Self.closeRequest, &value)
      }
      if file >= 0 { Glibc.close(file) }
    }
  }

  private func register(_ file: Int32) -> Int32 {
    var map = BackingMap(file: file)
    let id = control(Self.openRequest, &map)
    if id > 0 { ids.withLock { _ = $0.insert(id) } }
    return id > 0 ? id : -errno
  }

  private func control(_ request: UInt, _ argument: UnsafeMutableRawPointer) -> Int32 {
    // ioctl(2) is variadic in C, which Swift cannot call; the argument is passed alike on the machines of mediafs.
    typealias Call = @convention(c) (Int32, UInt, UnsafeMutableRawPointer) -> Int32
    guard let address = dlsym(nil, "ioctl") else { return -1 }
    return unsafeBitCast(address, to: Call.self)(device, request, argument)
  }
}
