import Base
import CSystem
import Glibc

@testable import Mount

/// What a program sees that watches a folder.
final class Watch: Sendable {
  private let queue: FileDescriptor

  /// All that inotify(7) tells of names, but for who opens and closes them.
  static let all = UInt32(IN_CREATE | IN_DELETE | IN_MOVE | IN_ATTRIB | IN_MODIFY | IN_DELETE_SELF)

  init(_ folder: String) throws {
    queue = FileDescriptor(owning: try retrying { inotify_init1(O_NONBLOCK | O_CLOEXEC) })
    _ = try retrying { inotify_add_watch(queue.rawValue, folder, Self.all) }
  }

  /// What came since the last call: a letter and the name, in the order in which it came.
  func events() -> [String] {
    var bytes = [UInt8](repeating: 0, count: 1 << 20)
    let count = Glibc.read(queue.rawValue, &bytes, bytes.count)
    var found: [String] = []
    var at = 0
    while at < count {
      func number(_ offset: Int) -> UInt32 {
        bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: at + offset, as: UInt32.self) }
      }
      let (mask, length) = (number(4), number(12))  // inotify_event
      let name = String(decoding: bytes[(at + 16)..<(at + 16 + Int(length))].prefix { $0 != 0 }, as: UTF8.self)
      let letters = [(IN_CREATE, "+"), (IN_DELETE, "-"), (IN_ATTRIB, "a"), (IN_DELETE_SELF, "gone")]
      found.append((letters.first { mask & UInt32($0.0) != 0 }?.1 ?? "\(mask)") + name)
      at += 16 + Int(length)
    }
    return found
  }

  /// The next `count` events, and those that are there by then.
  func events(_ count: Int) -> [String] {
    var found: [String] = []
    _ = eventually {
      found += events()
      return found.count >= count
    }
    usleep(20_000)  // for what must not come
    return found + events()
  }
}

/// The helper's part of waking in this process: carries out orders through the mount, on a thread that is the waker.
final class TestWaker: Sendable {
  let path: String
  private let socket: FileDescriptor
  /// Called before each order with its letter and text; returns an errno to answer with at once, or nil.
  private let before: @Sendable (Character, String) -> Int32?
  /// How many packets there were.
  let packets = Lock(0)

  init(
    path: String, socket: consuming FileDescriptor, before: @escaping @Sendable (Character, String) -> Int32?
  ) {
    (self.path, self.before) = (path, before)
    self.socket = socket
    _ = OwnedThread(name: "test-waker") { [self] in serve() }
  }

  private func serve() {
    var packet = [UInt8](repeating: 0, count: 9000)
    while true {
      let count = recv(socket.rawValue, &packet, packet.count, 0)
      if count < 8 { return }
      packets.withLock { $0 += 1 }
      let number = packet.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: 4, as: UInt32.self) }
      var answer = (WakingHelper.Message.woken.rawValue, number, UInt32(bitPattern: carryOut(Array(packet[8..<count]))))
      _ = send(socket.rawValue, &answer, 12, 0)
    }
  }

  private func carryOut(_ orders: [UInt8]) -> Int32 {
    var folder = path
    for order in orders.split(separator: 0) {
      let letter = Character(Unicode.Scalar(order.first ?? 0))
      let text = String(decoding: order.dropFirst(), as: UTF8.self)
      if let error = before(letter, text) { return error }
      errno = 0
      switch letter {
      case "w": _ = access("\(path)/\(text)", F_OK)
      case "p": folder = "\(path)/\(text)"
      case "c":
        let file = open("\(folder)/\(text)", O_CREAT | O_EXCL | O_WRONLY, 0o444)
        if file >= 0 { close(file) }
      case "m": mkdir("\(folder)/\(text)", 0o755)
      case "u": unlink("\(folder)/\(text)")
      case "r": rmdir("\(folder)/\(text)")
      case "t": utimensat(AT_FDCWD, folder, nil, 0)
      case "a": utimensat(AT_FDCWD, "\(folder)/\(text)", nil, 0)
      default: return EINVAL
      }
      if errno != 0 && errno != ENOENT { return errno }
    }
    return 0
  }
}
