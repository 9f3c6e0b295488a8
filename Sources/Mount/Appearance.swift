import Base
import CFuse
import Glibc
import Reading

/// How stat(2) shows the nodes of a mount: who owns them, and what their owner may do.
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
    // The owner has write permission because `cp -r` copies it: without it `rm -rf` could not empty the copy. In the
    // mount itself the kernel refuses every write (EROFS).
    folderPermissions = 0o755 & ~(options.umask ?? 0)
    mountedAt = options.mountedAt
  }

  /// Converts `attributes` to what stat(2) returns.
  private func status(_ attributes: Attributes) -> stat {
    var status = stat()
    status.st_ino = ino_t(attributes.inode)
    status.st_mode = attributes.isFolder ? S_IFDIR | folderPermissions : S_IFREG | filePermissions
    status.st_nlink = 1  // 1 for folders too: mediafs does not count subfolders
    status.st_uid = uid
    status.st_gid = gid
    status.st_size = off_t(attributes.size)
    // Never 0 for a nonempty file: `tar -S` would take the file for one hole.
    status.st_blocks = blkcnt_t((attributes.size >> 9) + (attributes.size & 511 == 0 ? 0 : 1))
    status.st_blksize = 4096  // stdio reads at least this much: a program that only looks at a file should fetch little
    let modified = attributes.modified != 0 ? attributes.modified : mountedAt
    status.st_mtim.tv_sec = time_t(modified)
    status.st_ctim.tv_sec = time_t(modified)
    status.st_atim.tv_sec = time_t(mountedAt)
    return status
  }

  /// How long the kernel may cache `attributes`. While the size is unknown or new, the kernel must ask each time.
  private func timeout(_ attributes: Attributes) -> Double { attributes.isCacheable ? foreverSeconds : 0 }

  /// The reply to a lookup that found `attributes`.
  func entry(_ attributes: Attributes) -> fuse_entry_param {
    var entry = fuse_entry_param()
    entry.ino = attributes.inode
    entry.attr = status(attributes)
    entry.attr_timeout = timeout(attributes)
    entry.entry_timeout = foreverSeconds
    return entry
  }

  /// Answers a stat.
  func send(_ attributes: Attributes, nanoseconds: Int = 0, to request: OpaquePointer) {
    var status = status(attributes)
    status.st_mtim.tv_nsec = nanoseconds
    fuse_reply_attr(request, &status, timeout(attributes))
  }
}
