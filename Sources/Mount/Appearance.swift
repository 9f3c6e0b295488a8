import Base
import CFuse
import Glibc
import Reading

/// How the nodes of a mount look to stat(2): who owns them, and what their owner may do.
struct Appearance {
  private let uid: uid_t
  private let gid: gid_t
  private let filePermissions: mode_t
  private let folderPermissions: mode_t
  private let mountedAt: Int64

  init(_ options: MountOptions) {
    uid = options.uid ?? getuid()
    gid = options.gid ?? getgid()
    filePermissions = 0o444 & ~(options.umask ?? 0)
    // The owner's right to write is for copies: `cp -r` copies it, and without it `rm -rf` could not empty the copy. In
    // the mount itself the kernel refuses every write (EROFS).
    folderPermissions = 0o755 & ~(options.umask ?? 0)
    mountedAt = options.mountedAt
  }

  /// `attributes` as stat(2) gives them.
  private func status(_ attributes: Attributes) -> stat {
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
    let modified = attributes.modified != 0 ? attributes.modified : mountedAt
    status.st_mtim.tv_sec = time_t(modified)
    status.st_ctim.tv_sec = time_t(modified)
    status.st_atim.tv_sec = time_t(mountedAt)
    return status
  }

  /// How long the kernel may keep `attributes`. Those of an unknown size are asked for each time.
  private func timeout(_ attributes: Attributes) -> Double { attributes.isFinal ? foreverSeconds : 0 }

  /// `attributes` as the answer to a lookup.
  func entry(_ attributes: Attributes) -> fuse_entry_param {
    var entry = fuse_entry_param()
    entry.ino = attributes.inode
    entry.attr = status(attributes)
    entry.attr_timeout = timeout(attributes)
    entry.entry_timeout = foreverSeconds
    return entry
  }

  /// Answers a stat.
  func send(_ attributes: Attributes, to request: OpaquePointer) {
    var status = status(attributes)
    fuse_reply_attr(request, &status, timeout(attributes))
  }
}
