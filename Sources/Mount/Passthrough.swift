import Base
import CFuse
import Glibc
import Reading

// The kernel reads a complete file from its copy, without the server, if it supports passthrough (Linux 6.9) and the
// helper is root. If not, the kernel reads through the server. No message says so: that is slower, not wrong.

/// How the kernel has files open: the opens that count, and its backing files.
///
/// Any loop thread may call it, and the transfer thread when it answers a parked open. No thread holds either lock over
/// a call.
final class Passthrough: Sendable {
  private let files: BackingFiles
  private let handshake: Handshake
  let openFiles: Lock<OpenFiles>
  private let handles: HandleTable
  /// Whether the kernel denied permission: then mediafs does not ask again.
  private let isRefused = Lock(false)

  /// `pending`: the numbers of the requests that the last server left.
  init(files: BackingFiles, handshake: Handshake, memory: SessionMemory, pending: Set<UInt64>) {
    self.files = files
    self.handshake = handshake
    handles = HandleTable(memory, pending: pending)
    openFiles = Lock(OpenFiles(leftOpen: HandleTable.leftOpen(in: memory)))
  }

  /// How to answer an open.
  struct Opening {
    var way: OpenFiles.Way
    /// The handle's number, for the kernel.
    var handle: UInt64
    var inode: Inode
    /// Whether an earlier server counted it, and perhaps answered it too.
    var isKnown: Bool
  }

  enum Decision {
    case open(Opening)
    /// The inode's open handles read from another file.
    case conflict
    /// The mount has as many open handles as it can have.
    case tooMany
  }

  /// Decides how to open `inode` in `mode`, counts it, and notes the handle for the next server. `unique`: the number
  /// of the request.
  func opening(_ inode: Inode, _ mode: OpenMode, unique: UInt64) -> Decision {
    if let (number, record) = handles.known(unique), record.inode == inode {
      return .open(Opening(way: record.way, handle: number, inode: inode, isKnown: true))
    }
    guard let way = counted(inode, mode) else { return .conflict }
    guard let number = handles.add(OpenHandle(unique: unique, inode: inode, backing: way.backing)) else {
      uncount(inode)
      return .tooMany
    }
    return .open(Opening(way: way, handle: number, inode: inode, isKnown: false))
  }

  /// The kernel has closed a handle. False if an earlier server has noted that already.
  func close(_ handle: UInt64, of inode: Inode) -> Bool {
    guard handles.remove(handle, of: inode) else { return false }
    uncount(inode)
    return true
  }

  /// An OPEN got an error, and the kernel took it: it has no handle, though an earlier server may have counted one.
  /// Returns the inode of that one, for the caller to release.
  func refused(_ unique: UInt64) -> Inode? {
    guard let (number, record) = handles.known(unique), close(number, of: record.inode) else { return nil }
    return record.inode
  }

  private func counted(_ inode: Inode, _ mode: OpenMode) -> OpenFiles.Way? {
    let copy = isPossible ? mode.copy : nil
    var backing: Int32?
    while true {
      let decision = openFiles.withLock { $0.count(inode, copy: copy, backing: backing) }
      if let backing, backing > 0, decision != .open(.passthrough(backing: backing)) {
        files.close(backing)  // another open was faster
      }
      switch decision {
      case .open(let way): return way
      case .conflict: return nil
      case .needsBacking: backing = copy.map(backingID) ?? 0
      }
    }
  }

  /// Undoes what ``counted(_:_:)`` counted.
  private func uncount(_ inode: Inode) {
    if let backing = openFiles.withLock({ $0.release(inode) }) { files.close(backing) }
  }

  /// Answers an open. Returns whether the caller's count of it stays: not if the kernel no longer wants it (the caller
  /// was killed; there will be no release), nor if an earlier server had counted it.
  func send(_ opening: Opening, _ mode: OpenMode, to request: OpaquePointer) -> Bool {
    let result =
      switch opening.way {
      case .ordinary: cfuse_reply_open(request, opening.handle, mode.directIO)
      case .passthrough(let backing): cfuse_reply_open_passthrough(request, opening.handle, backing)
      }
    // If the kernel has the earlier server's reply, this one fails, and the kernel will close the handle. If it has
    // neither, because the caller was killed, the handle stays noted until the mount ends, which only keeps the
    // inode's way.
    if opening.isKnown { return false }
    if result != 0, handles.remove(opening.handle, of: opening.inode) { uncount(opening.inode) }
    return result == 0
  }

  /// Whether INIT agreed on passthrough and the kernel has not denied it since.
  var isPossible: Bool { handshake.hasPassthrough && !isRefused.withLock { $0 } }

  /// The kernel's id for `copy`, 0 if the kernel refused it.
  private func backingID(_ copy: ServedFile) -> Int32 {
    let result = files.register(copy.number)
    if result > 0 { return result }
    let error = Errno(rawValue: -result)
    // Permission does not come back. Other errors concern this one file: it is not the user's, its filesystem does not
    // support passthrough or is stacked too deep.
    if error.rawValue == EPERM || error.rawValue == ENOTTY { isRefused.withLock { $0 = true } }
    Log.debug("the kernel reads a complete file through the server, as it refused passthrough: \(error)")
    return 0
  }
}
