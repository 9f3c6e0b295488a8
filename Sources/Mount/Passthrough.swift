import Base
import CFuse
import Glibc
import Reading

// Complete files are read by the kernel from their copy, past us, where it can (Linux 6.9) and lets us (CAP_SYS_ADMIN).
// Where not, they are read through us, and nobody is told: it is slower, not wrong.

extension FuseSession {
  /// How `inode` is to be opened in `mode`, counted; nil when open handles of it read from another file.
  func counted(_ inode: Inode, _ mode: OpenMode) -> OpenFiles.Way? {
    let copy = mayPassThrough ? mode.copy : nil
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

  private var mayPassThrough: Bool { hasPassthrough && !passthroughRefused.withLock { $0 } }

  /// The kernel's id for `copy`, 0 when it takes none.
  private func backingID(_ copy: ServedFile) -> Int32 {
    let result = cfuse_backing_open(descriptor, copy.number)
    if result > 0 { return result }
    let error = Errno(rawValue: -result)
    // The right to it does not come back. Other errors belong to the one file: it is on a filesystem that cannot, or
    // that is stacked too deep.
    if error.rawValue == EPERM || error.rawValue == ENOTTY { passthroughRefused.withLock { $0 = true } }
    Log.debug("complete files are read through the server: passthrough: \(error)")
    return 0
  }
}

/// The INIT messages as far as passthrough is concerned (linux/fuse.h, 7.40): offsets behind the header, and bits.
private enum InitMessage {
  static let requestHeader = 40
  static let flags = 12
  static let requestFlags2 = 16
  static let replyFlags2 = 32
  static let replyStackDepth = 36
  static let replyLength = 64
  /// FUSE_INIT_EXT: there are further flags.
  static let extended: UInt32 = 1 << 30
  /// FUSE_PASSTHROUGH, among the further ones.
  static let passthrough: UInt32 = 1 << (37 - 32)
}

/// Whether the kernel's INIT request offers passthrough.
func offersPassthrough(_ request: UnsafeRawBufferPointer) -> Bool {
  let body = InitMessage.requestHeader
  guard operation(of: request) == initOperation, request.count >= body + InitMessage.requestFlags2 + 4 else {
    return false
  }
  let flags = request.loadUnaligned(fromByteOffset: body + InitMessage.flags, as: UInt32.self)
  let more = request.loadUnaligned(fromByteOffset: body + InitMessage.requestFlags2, as: UInt32.self)
  return flags & InitMessage.extended != 0 && more & InitMessage.passthrough != 0
}

/// Asks for passthrough in the reply to INIT, for a libfuse that has no interface for it. `depth`: 1 when the copies
/// are on an ordinary filesystem, 2 when on a stacked one. False when the reply is not of the known kind.
func acceptPassthrough(in reply: UnsafeMutableRawBufferPointer, depth: UInt32) -> Bool {
  guard reply.count >= InitMessage.replyLength else { return false }
  func add(_ bits: UInt32, at offset: Int) {
    let old = reply.loadUnaligned(fromByteOffset: offset, as: UInt32.self)
    reply.storeBytes(of: old | bits, toByteOffset: offset, as: UInt32.self)
  }
  add(InitMessage.extended, at: InitMessage.flags)
  add(InitMessage.passthrough, at: InitMessage.replyFlags2)
  reply.storeBytes(of: depth, toByteOffset: InitMessage.replyStackDepth, as: UInt32.self)
  return true
}
