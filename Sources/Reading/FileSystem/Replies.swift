import Base

/// A kernel request that waits for its answer: opaque to this room, given back to ``ReplyPort`` exactly once.
package struct Ticket: Hashable, Sendable {
  /// The adapter's own bits (a pointer, in a real mount).
  package let rawValue: UInt
  /// Those bits.
  @inlinable package init(rawValue: UInt) { self.rawValue = rawValue }
}

/// What stat(2) shows of a node.
package struct Attributes: Sendable, Equatable {
  /// Its inode.
  package var inode: Inode
  /// Whether it is a directory.
  package var isFolder: Bool
  /// Bytes. A placeholder of 1 while the size is not known: never 0, which would mean "empty".
  package var size: Int64
  /// Last-Modified, or the mount's time, in seconds since 1970.
  package var modified: Int64
  /// Whether `size` is real and stays (the kernel may keep the attributes); false: ask again each time.
  package var isFinal: Bool

  /// Those attributes.
  package init(inode: Inode, isFolder: Bool, size: Int64, modified: Int64, isFinal: Bool) {
    self.inode = inode
    self.isFolder = isFolder
    self.size = size
    self.modified = modified
    self.isFinal = isFinal
  }
}

/// How an opened file is to be read.
package struct OpenMode: Sendable {
  /// Past the page cache, until a read returns nothing: the length is not known.
  package var directIO: Bool
  /// The whole file, as it was when it was opened: its reads may be answered from there without asking. nil while bytes
  /// are missing.
  package var copy: ServedFile?
  /// That mode.
  package init(directIO: Bool, copy: ServedFile? = nil) {
    self.directIO = directIO
    self.copy = copy
  }
}

/// An answer that is there now, one that comes later through the ``ReplyPort``, or none.
package enum Answer<Value: Sendable>: Sendable {
  /// Reply with it.
  case now(Value)
  /// The ticket is parked: the reply port gets it later, perhaps before this value is looked at.
  case parked
  /// Reply with this error.
  case failed(Errno)
}

/// One name in a directory listing.
package struct DirectoryItem: Sendable {
  /// Where to go on behind this one; never 0.
  package var cookie: Int64
  /// Its name.
  package var name: String
  /// What it is.
  package var attributes: Attributes
}

/// The way back to the kernel. Any thread may call; no lock of the reading room is held then.
package protocol ReplyPort: AnyObject, Sendable {
  /// Answers a parked read: exactly the bytes asked for, fewer only at the end of the file. Valid during the call.
  func reply(_ ticket: Ticket, data: UnsafeRawBufferPointer)
  /// Answers a parked stat.
  func reply(_ ticket: Ticket, attributes: Attributes)
  /// Answers a parked open. `inode` is the file's. False when the kernel does not want it any more: no release will
  /// come.
  func reply(_ ticket: Ticket, opened mode: OpenMode, inode: Inode) -> Bool
  /// Answers any parked request with an error.
  func reply(_ ticket: Ticket, error: Errno)
  /// The name leads to another inode from now on: the kernel is to forget what it knew. Never blocks the caller.
  func invalidate(parent: Inode, name: String)
  /// What the kernel has read of `inode` in `range` may be wrong: it is to ask again. Never blocks the caller.
  func forgetPages(of inode: Inode, _ range: ByteRange)
}

/// Who asks.
package struct Caller: Sendable, Equatable {
  /// The process (thread) id as the server sees it, 0 when it is outside its pid namespace.
  package var process: Int32
  /// That process.
  @inlinable package init(process: Int32) { self.process = process }
}

/// What statfs(2) shows.
package struct Capacity: Sendable {
  /// Bytes the store's filesystem has.
  package var total: UInt64
  /// Bytes free there.
  package var free: UInt64
  /// Bytes free there for an ordinary user.
  package var available: UInt64
  /// Names in the tree.
  package var names: UInt64
}
