import Base

/// A kernel request that waits for its reply. Only Mount knows what its bits mean; each ticket is answered exactly
/// once.
package struct Ticket: Hashable, Sendable {
  /// The adapter's own value (in a real mount, a pointer).
  package let rawValue: UInt
  /// A ticket with the adapter's value.
  @inlinable package init(rawValue: UInt) { self.rawValue = rawValue }
}

/// What stat(2) shows of a node.
package struct Attributes: Sendable, Equatable {
  /// Its inode.
  package var inode: Inode
  /// Whether it is a directory.
  package var isFolder: Bool
  /// The size in bytes. While it is unknown a placeholder of 1: 0 would mean "empty".
  package var size: Int64
  /// Last-Modified, or the time of the mount, in seconds since 1970.
  package var modified: Int64
  /// Whether `size` is real and final.
  package var isFinal: Bool
  /// Whether the kernel may cache the attributes: they are final, and the kernel has got the size before.
  package var isCacheable: Bool

  /// The attributes of one node.
  package init(
    inode: Inode, isFolder: Bool, size: Int64, modified: Int64, isFinal: Bool, isCacheable: Bool? = nil
  ) {
    self.inode = inode
    self.isFolder = isFolder
    self.size = size
    self.modified = modified
    self.isFinal = isFinal
    self.isCacheable = isCacheable ?? isFinal
  }
}

/// How the kernel reads an opened file.
package struct OpenMode: Sendable {
  /// Around the page cache: the length is unknown, and the end is where a read returns nothing; or a program only looks
  /// at the file, and read-ahead would fetch what it does not read.
  package var directIO: Bool
  /// The complete file as it was at the open: the kernel may read it without the server. nil while bytes are missing.
  package var copy: ServedFile?
  /// The mode of one open.
  package init(directIO: Bool, copy: ServedFile? = nil) {
    self.directIO = directIO
    self.copy = copy
  }
}

/// The answer to a request: now, or later through the ``ReplyPort``.
package enum Answer<Value: Sendable>: Sendable {
  /// Reply with this value.
  case now(Value)
  /// The ticket is parked. The reply port may answer it before the caller sees this value.
  case parked
  /// Reply with this error.
  case failed(Errno)
}

/// One name in a directory listing.
package struct DirectoryItem: Sendable {
  /// The cookie from which a listing goes on after this name; never 0.
  package var cookie: Int64
  /// Its name.
  package var name: String
  /// Its attributes.
  package var attributes: Attributes
}

/// Sends the parked requests' replies to the kernel. Any thread may call it, and never under a lock of the reading
/// room.
package protocol ReplyPort: AnyObject, Sendable {
  /// Answers a parked read with exactly the requested bytes, fewer only at the end of the file. `data` is valid during
  /// the call.
  func reply(_ ticket: Ticket, data: UnsafeRawBufferPointer)
  /// Answers a parked stat.
  func reply(_ ticket: Ticket, attributes: Attributes)
  /// Answers a parked open of `inode`. False when the kernel gave the open up: then it sends no release.
  func reply(_ ticket: Ticket, opened mode: OpenMode, inode: Inode) -> Bool
  /// Answers any parked request with an error.
  func reply(_ ticket: Ticket, error: Errno)
  /// The name has another inode now: makes the kernel forget the name. `isChanged`: and other bytes, of which programs
  /// that watch are told. Never blocks the caller.
  func invalidate(parent: Inode, name: String, isChanged: Bool)
  /// Cached pages of `inode` in `range` may be wrong: makes the kernel drop them. Never blocks the caller.
  func forgetPages(of inode: Inode, _ range: ByteRange)
}

/// The process that made a request.
package struct Caller: Sendable, Equatable {
  /// The process (thread) id as the server sees it; 0 when it is outside the server's pid namespace.
  package var process: Int32
  /// The caller with this process id.
  @inlinable package init(process: Int32) { self.process = process }
}

/// What statfs(2) shows.
package struct Capacity: Sendable {
  /// Bytes of the store's filesystem.
  package var total: UInt64
  /// Bytes free there.
  package var free: UInt64
  /// Bytes free there for an ordinary user.
  package var available: UInt64
  /// Names in the tree.
  package var names: UInt64
}
