import Base
import CFuse
import Glibc
import Reading

// Complete files are read by the kernel from their copy, past us, where it can (Linux 6.9) and lets us (CAP_SYS_ADMIN).
// Where not, they are read through us, and nobody is told: it is slower, not wrong.

/// How files are open for the kernel: which opens are counted, and the backing files that the kernel has for them.
///
/// Any loop thread may call, and the transfer thread when it answers a parked open. Neither lock is held over a call to
/// the kernel.
final class Passthrough: Sendable {
  /// The device's number, which belongs to ``Device``.
  private let descriptor: Int32
  private let handshake: Handshake
  let openFiles = Lock(OpenFiles())
  /// Whether the kernel said that we may not: then it is not asked again.
  private let isRefused = Lock(false)

  init(descriptor: Int32, handshake: Handshake) {
    self.descriptor = descriptor
    self.handshake = handshake
  }

  /// How `inode` is to be opened in `mode`, counted; nil when open handles of it read from another file.
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

  /// Takes back what ``counted(_:_:)`` counted.
  func uncount(_ inode: Inode) {
    if let backing = openFiles.withLock({ $0.release(inode) }) { closeBacking(backing) }
  }

  private func closeBacking(_ backing: Int32) {
    let result = cfuse_backing_close(descriptor, backing)
    // ENOTTY: serving has ended, and the device is /dev/null.
    if result != 0 && result != -ENOTTY {
      Log.debug("backing file \(backing) is not closed: \(Errno(rawValue: -result))")
    }
  }

  /// Answers an open that is counted. False when the kernel does not want it any more.
  func send(_ way: OpenFiles.Way, _ mode: OpenMode, to request: OpaquePointer, _ inode: Inode) -> Bool {
    let result =
      switch way {
      case .ordinary: cfuse_reply_open(request, inode, mode.directIO)
      case .passthrough(let backing): cfuse_reply_open_passthrough(request, inode, backing)
      }
    return result == 0
  }

  /// Whether it was agreed on, and the kernel did not refuse it since.
  var isPossible: Bool { handshake.hasPassthrough && !isRefused.withLock { $0 } }

  /// The kernel's id for `copy`, 0 when it takes none.
  private func backingID(_ copy: ServedFile) -> Int32 {
    let result = cfuse_backing_open(descriptor, copy.number)
    if result > 0 { return result }
    let error = Errno(rawValue: -result)
    // The right to it does not come back. Other errors belong to the one file: it is on a filesystem that cannot, or
    // that is stacked too deep.
    if error.rawValue == EPERM || error.rawValue == ENOTTY { isRefused.withLock { $0 = true } }
    Log.debug("complete files are read through the server: passthrough: \(error)")
    return 0
  }
}
