import Base
import CFuse
import Glibc

// A reply fails if the request was interrupted (ENOENT) or the mount is gone (ENODEV). That matters only for an open:
// what the kernel took decides whether it sends a release.

/// Replies with an error; nil: with success and nothing else.
///
/// The only errno table. The kernel accepts 1 to 511 and drops a reply with any other number, so that its caller would
/// wait for ever. Those become EIO.
@inline(__always)
func refuse(_ request: OpaquePointer, _ error: Errno?) { _ = isTaken(request, error) }

/// The same. Returns whether the kernel took it.
@inline(__always)
func isTaken(_ request: OpaquePointer, _ error: Errno?) -> Bool {
  guard let error else { return fuse_reply_err(request, 0) == 0 }
  return fuse_reply_err(request, (1..<512).contains(error.rawValue) ? error.rawValue : EIO) == 0
}

/// How long the kernel may cache what cannot change while an inode lives, in seconds: 30 days. When a name leads to
/// another inode, ``FuseSession/invalidate(parent:name:isChanged:)`` makes the kernel forget the name.
let foreverSeconds = 30.0 * 86_400

/// How long the kernel may cache that a name does not exist, in seconds. Players and media servers look up the same
/// missing neighbours (subtitles, folder.jpg) again and again within a second. A reload makes the kernel forget each
/// name it adds, but mediafs does not always announce an old name that begins to resolve, so not much longer.
let missingSeconds = 1.0

/// How many inodes statfs reports as free. There is no limit, but monitors would take 0 for all used. The sum with a
/// list's names fits into 32 bits, so that a 32-bit statfs(2) succeeds.
let freeInodes: fsfilcnt_t = 1_000_000_000

/// Replies with a value or, if `size` is 0, with its length (getxattr(2), listxattr(2)).
func replySized(_ request: OpaquePointer, _ bytes: [UInt8], _ size: Int) {
  if size == 0 {
    fuse_reply_xattr(request, bytes.count)
  } else if bytes.count > size {
    refuse(request, .range)
  } else {
    bytes.withUnsafeBytes { raw in
      _ = fuse_reply_buf(request, raw.baseAddress?.assumingMemoryBound(to: CChar.self), raw.count)  // C's bytes
    }
  }
}
