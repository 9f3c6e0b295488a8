import Base
import CFuse
import Glibc
import Reading

// The ways back to the kernel. A reply can fail: the request was interrupted (ENOENT) or the mount is gone (ENODEV).
// Only an open has to know, as its release will not come; for the others nobody is left to be told.

/// Answers with an error; nil: with success and nothing else.
///
/// This is the one errno table: the kernel takes 1 to 511, and drops a reply with anything else, so that its caller
/// would wait for ever; that becomes EIO.
@inline(__always)
func refuse(_ request: OpaquePointer, _ error: Errno?) {
  guard let error else {
    fuse_reply_err(request, 0)
    return
  }
  fuse_reply_err(request, (1..<512).contains(error.rawValue) ? error.rawValue : EIO)
}

extension Errno {
  /// Function not implemented: the kernel does without, and often asks no more.
  static let unsupported = Errno(rawValue: ENOSYS)
}

/// How long the kernel may keep what cannot change while an inode lives, in seconds: 30 days. What does change (a name
/// that leads to another inode) is taken back by ``FuseSession/invalidate(parent:name:)``.
let foreverSeconds = 30.0 * 86_400

/// How long the kernel may believe that a name does not exist, in seconds. Players and media servers ask for the same
/// missing neighbours (subtitles, folder.jpg) again and again within a second; a name that a reload adds is taken back
/// as well, but an old name that begins to resolve is not always announced, so not much longer.
let missingSeconds = 1.0

/// How many inodes statfs calls free: there is no limit, and with 0 monitors would report that all are used. The sum
/// with a list's names fits into 32 bits, so that a 32-bit statfs(2) succeeds.
let freeInodes: fsfilcnt_t = 1_000_000_000

extension FuseSession {
  /// `attributes` as stat(2) gives them.
  func status(_ attributes: Attributes) -> stat {
    var status = stat()
    status.st_ino = ino_t(attributes.inode)
    status.st_mode = attributes.isFolder ? S_IFDIR | folderPermissions : S_IFREG | filePermissions
    status.st_nlink = 1  // of a folder: the number of subfolders is not told
    status.st_uid = uid
    status.st_gid = gid
    status.st_size = off_t(attributes.size)
    // Never 0 for a file that is not empty: `tar -S` would take it for one hole.
    status.st_blocks = blkcnt_t((attributes.size >> 9) + (attributes.size & 511 == 0 ? 0 : 1))
    status.st_blksize = 4096  // what stdio reads at least: a look at a file should fetch little
    let modified = attributes.modified != 0 ? attributes.modified : options.mountedAt
    status.st_mtim.tv_sec = time_t(modified)
    status.st_ctim.tv_sec = time_t(modified)
    status.st_atim.tv_sec = time_t(options.mountedAt)
    return status
  }

  /// How long the kernel may keep `attributes`. Those of an unknown size are asked for each time.
  func timeout(_ attributes: Attributes) -> Double { attributes.isFinal ? foreverSeconds : 0 }

  /// `attributes` as the answer to a lookup.
  func entry(_ attributes: Attributes) -> fuse_entry_param {
    var entry = fuse_entry_param()
    entry.ino = attributes.inode
    entry.attr = status(attributes)
    entry.attr_timeout = timeout(attributes)
    entry.entry_timeout = foreverSeconds
    return entry
  }

  func send(_ attributes: Attributes, to request: OpaquePointer) {
    var status = status(attributes)
    fuse_reply_attr(request, &status, timeout(attributes))
  }

  // MARK: ReplyPort

  /// Answers a parked read.
  package func reply(_ ticket: Ticket, data: UnsafeRawBufferPointer) {
    guard let request = take(ticket) else { return }
    fuse_reply_buf(request, data.baseAddress?.assumingMemoryBound(to: CChar.self), data.count)  // bytes, for C
  }

  /// Answers a parked stat.
  package func reply(_ ticket: Ticket, attributes: Attributes) {
    guard let request = take(ticket) else { return }
    send(attributes, to: request)
  }

  /// Answers a parked open; false when the kernel does not want it any more.
  package func reply(_ ticket: Ticket, opened mode: OpenMode, inode: Inode) -> Bool {
    guard let request = take(ticket) else { return false }
    guard let way = counted(inode, mode) else {
      // It became known only now, and yet open handles read from a copy: of a time before it was forgotten.
      refuse(request, .stale)
      return false
    }
    if send(way, mode, to: request, inode) { return true }
    uncount(inode)
    return false
  }

  /// Answers a parked request with an error.
  package func reply(_ ticket: Ticket, error: Errno) {
    guard let request = take(ticket) else { return }
    refuse(request, error)
  }

  /// The parked request; nil, and a word in the log, when it was answered before: libfuse would free it twice.
  private func take(_ ticket: Ticket) -> OpaquePointer? {
    let request = requests.withLock { $0.take(ticket) }
    if request == nil { Log.error("a request was answered twice; the second answer is dropped") }
    return request
  }
}
