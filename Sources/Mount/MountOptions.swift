import Glibc

/// How a mount looks and how many threads serve it.
///
/// mediafs sets owner and modes itself: libfuse's low-level interface has no options `uid=`, `gid=` and `umask=`.
package struct MountOptions: Sendable {
  /// The owner of every node; nil: the process's user.
  package var uid: uid_t?
  /// The group of every node; nil: the process's group.
  package var gid: gid_t?
  /// The permission bits removed from 0444 (files) and 0755 (folders); nil: none.
  package var umask: mode_t?
  /// When the mount was made, in seconds since 1970: every node's access time. Modification and change time are the
  /// entry's own, so that a new mount does not make a backup copy every file again.
  package var mountedAt: Int64
  /// How many threads read requests, at least 1. They never wait for the network, only for the store's disk, so few are
  /// enough. More than one, because a single one measured twice the latency.
  package var threads: Int
  /// The longest READ that INIT agrees on, in bytes; a multiple of the page size. `max_read=` of the mount may be less
  /// (it is 64 KiB): mediafs answers each READ whole, so a longer one is answered later on a slow line.
  package var maxRead: Int
  /// The largest read-ahead window that the kernel may use, in bytes. It also stays within the mount's `read_ahead_kb`.
  package var maxReadahead: Int
  /// How deep the mount is stacked on the filesystem of the complete copies; passthrough needs it. 1: an ordinary
  /// filesystem. 2: one that is stacked itself (overlayfs), and then nothing can be stacked on the mount. 0: mediafs
  /// never requests passthrough.
  package var passthroughDepth: UInt32

  /// `docs/decisions` has the measurements behind the defaults.
  package init(
    uid: uid_t? = nil, gid: gid_t? = nil, umask: mode_t? = nil, mountedAt: Int64, threads: Int = 4,
    maxRead: Int = 128 << 10, maxReadahead: Int = 1 << 20, passthroughDepth: UInt32 = 1
  ) {
    self.uid = uid
    self.gid = gid
    self.umask = umask
    self.mountedAt = mountedAt
    self.threads = threads
    self.maxRead = maxRead
    self.maxReadahead = maxReadahead
    self.passthroughDepth = passthroughDepth
  }
}
