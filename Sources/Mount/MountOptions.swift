import Glibc

/// How a mount looks and how many threads serve it.
///
/// Owner and modes are made here: for the low-level interface `uid=`, `gid=` and `umask=` are no options of libfuse.
package struct MountOptions: Sendable {
  /// Who owns every node; nil: the process.
  package var uid: uid_t?
  /// Whose group every node has; nil: the process's.
  package var gid: gid_t?
  /// The permission bits taken from 0444 (files) and 0755 (folders); nil: none.
  package var umask: mode_t?
  /// When the mount was made, in seconds since 1970: every node's access time. Modification and change time are the
  /// entry's own, so that a backup does not take each mount for a change of every file.
  package var mountedAt: Int64
  /// How many threads take requests, at least 1. None of them waits for the network, only for the store's disk, so few
  /// are enough. More than one, as a lone one measured twice the latency.
  package var threads: Int
  /// The longest READ the kernel is to send, in bytes; a multiple of the page size. The helper mounts with the same
  /// `max_read=`. Each READ is answered whole, so a larger one is answered later on a slow line.
  package var maxRead: Int
  /// The largest read-ahead window the kernel may use, in bytes. It never uses more than the mount's `read_ahead_kb`.
  package var maxReadahead: Int
  /// How deep the mount is stacked on the filesystem of the complete copies, for reading those past the server where
  /// the kernel allows it: 1 on an ordinary filesystem, 2 on one that is stacked itself (overlayfs), which costs that
  /// nothing can be stacked on the mount any more; 0 never asks.
  package var passthroughDepth: UInt32

  /// Those options; the ones left out are as measured in `docs/decisions`.
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
