import Base
import Reading

/// Which files the kernel has open, and how: it reads their copy itself (passthrough), or it asks the server
/// (ordinary).
///
/// The kernel demands one way for all open handles of an inode, and one backing file for passthrough. An open that is
/// answered otherwise fails with EIO. So the first open decides until the last release: a file that becomes complete
/// while it is open ordinarily stays ordinary. An open counts from before its reply until its release is received, so
/// the kernel never has one that is not counted here.
///
/// Plain data: ``Passthrough`` guards it with a lock.
struct OpenFiles {
  /// How an inode is open.
  enum Way: Equatable {
    /// The kernel sends its reads to the server.
    case ordinary
    /// The kernel reads from the backing file with that id (FUSE_DEV_IOC_BACKING_OPEN).
    case passthrough(backing: Int32)
  }

  /// An open inode.
  struct Entry {
    var inode: Inode
    var way: Way
    /// How many opens are not released.
    var opens: Int
    /// The file behind `backing`; nil when an earlier server opened it. Then any intact copy of the inode is that file:
    /// an inode is one generation, and mediafs never offers a copy that was touched.
    var copy: ServedFile?
  }

  /// How to answer an open.
  enum Decision: Equatable {
    case open(Way)
    /// Get a backing id for the copy, then ask again with it (0: the kernel refused).
    case needsBacking
    /// The open handles read from another file than this open may.
    case conflict
  }

  private var entries: [Inode: Entry] = [:]

  /// The inodes that are open.
  var open: [Entry] { Array(entries.values) }

  /// Begins with the handles that an earlier server of the mount left open.
  init(leftOpen handles: [OpenHandle] = []) {
    for handle in handles {
      entries[handle.inode, default: Entry(inode: handle.inode, way: handle.way, opens: 0, copy: nil)].opens += 1
    }
  }

  /// Counts an open, unless the decision is to do more first. `copy`: the complete file, if the kernel may read it
  /// itself. `backing`: its id, if the caller got one. The caller closes an id that is not in the decision.
  mutating func count(_ inode: Inode, copy: ServedFile?, backing: Int32?) -> Decision {
    guard var entry = entries[inode] else {
      if copy != nil && backing == nil { return .needsBacking }
      let way: Way = if let backing, backing > 0, copy != nil { .passthrough(backing: backing) } else { .ordinary }
      entries[inode] = Entry(inode: inode, way: way, opens: 1, copy: way == .ordinary ? nil : copy)
      return .open(way)
    }
    if case .passthrough = entry.way {
      guard let copy, entry.copy == nil || entry.copy === copy else { return .conflict }
      entry.copy = copy
    }
    entry.opens += 1
    entries[inode] = entry
    return .open(entry.way)
  }

  /// Counts a release. Returns the backing id to close if it was the last.
  mutating func release(_ inode: Inode) -> Int32? {
    guard var entry = entries[inode] else { return nil }
    entry.opens -= 1
    if entry.opens > 0 {
      entries[inode] = entry
      return nil
    }
    entries[inode] = nil
    if case .passthrough(let backing) = entry.way { return backing }
    return nil
  }
}

extension OpenFiles.Way {
  /// The backing id; 0 for none.
  var backing: Int32 {
    if case .passthrough(let backing) = self { return backing }
    return 0
  }
}

extension OpenHandle {
  var way: OpenFiles.Way { backing > 0 ? .passthrough(backing: backing) : .ordinary }
}
