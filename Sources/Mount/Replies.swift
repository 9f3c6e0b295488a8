import Base
import CFuse
import Glibc

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

/// The answer to a question for a value or, with `size` 0, for its length (getxattr(2), listxattr(2)).
func replySized(_ request: OpaquePointer, _ bytes: [UInt8], _ size: Int) {
  if size == 0 {
    fuse_reply_xattr(request, bytes.count)
  } else if bytes.count > size {
    refuse(request, .range)
  } else {
    bytes.withUnsafeBytes { raw in
      _ = fuse_reply_buf(request, raw.baseAddress?.assumingMemoryBound(to: CChar.self), raw.count)  // bytes, for C
    }
  }
}
