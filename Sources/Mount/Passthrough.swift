import Base
import CFuse
import Glibc
import Reading

// The kernel reads a complete file from its copy, without the server, if it supports passthrough (Linux 6.9) and the
// server has CAP_SYS_ADMIN. If not, the kernel reads through the server. No message says so: that is slower, not wrong.

/// How the kernel has files open: the opens that count, and its backing files.
///
/// Any loop thread may call it, and the transfer thread when it answers a parked open. No thread holds either lock over
/// a call to the kernel.
final class Passthrough: Sendable {
  /// The number of the device's descriptor, which belongs to ``Device``.
  private let descriptor: Int32
  private let handshake: Handshake
  let openFiles = Lock(OpenFiles())
  /// Whether the kernel denied permission: then mediafs does not ask again.
  private let isRefused = Lock(false)

  init(descriptor: Int32, handshake: Handshake) {
    self.descriptor = descriptor
    self.handshake = handshake
  }

  /// Decides how to open `inode` in `mode`, and counts it; nil when its open handles read from another file.
  func counted(_ inode: Inode, _ mode: OpenMode) -> OpenFiles.Way? {
    let copy = isPossible ? mode.copy : nil
    var backing: Int32?
    while true {
      let decision = openFiles.withLock { $0.count(inode, copy: copy, backing: backing) }
      if let backing, backing > 0, decision != .open(.passthrough(backing: backing)) {
        closeBacking(backing)  // another open was faster
      }
      switch decision {
      case .open(let way): return way
      case .conflict: return nil
      case .needsBacking: backing = copy.map(backingID) ?? 0
      }
    }
  }

  /// Undoes what ``counted(_:_:)`` counted.
  func uncount(_ inode: Inode) {
    if let backing = openFiles.withLock({ $0.release(inode) }) { closeBacking(backing) }
  }

  private func closeBacking(_ backing: Int32) {
    let result = cfuse_backing_close(descriptor, backing)
    // ENOTTY: serving has ended, and the descriptor is /dev/null.
    if result != 0 && result != -ENOTTY {
      Log.debug("the kernel did not close the backing file \(backing): \(Errno(rawValue: -result))")
    }
  }

  /// Answers an open that is counted. Returns false if the kernel no longer wants it.
  func send(_ way: OpenFiles.Way, _ mode: OpenMode, to request: OpaquePointer, _ inode: Inode) -> Bool {
    let result =
      switch way {
      case .ordinary: cfuse_reply_open(request, inode, mode.directIO)
      case .passthrough(let backing): cfuse_reply_open_passthrough(request, inode, backing)
      }
    return result == 0
  }

  /// Whether INIT agreed on passthrough and the kernel has not denied it since.
  var isPossible: Bool { handshake.hasPassthrough && !isRefused.withLock { $0 } }

  /// The kernel's id for `copy`, 0 if the kernel refused it.
  private func backingID(_ copy: ServedFile) -> Int32 {
    let result = cfuse_backing_open(descriptor, copy.number)
    if result > 0 { return result }
    let error = Errno(rawValue: -result)
    // Permission does not come back. Other errors concern this one file: its filesystem does not support passthrough or
    // is stacked too deep.
    if error.rawValue == EPERM || error.rawValue == ENOTTY { isRefused.withLock { $0 = true } }
    Log.debug("the kernel reads a complete file through the server, as it refused passthrough: \(error)")
    return 0
  }
}
