import Base
import Reading

/// Which files the kernel has open, and how: past us, from their copy (passthrough), or by asking us (ordinarily).
///
/// The kernel wants one way for all open handles of an inode, and for passthrough one backing file; an open that is
/// answered otherwise fails with EIO. So the first open decides, until the last release: a file that is completed
/// while it is open ordinarily stays so. An open counts from before its answer is sent until its release was received,
/// so the kernel never has one that is not counted here.
///
/// Plain data: the session guards it with a lock.
struct OpenFiles {
  /// How an inode is open.
  enum Way: Equatable {
    /// Its reads come to us.
    case ordinary
    /// The kernel reads from the backing file of that id (FUSE_DEV_IOC_BACKING_OPEN).
    case passthrough(backing: Int32)
  }

  /// An inode that is open: what a server that takes over a live mount must know of it.
  struct Entry {
    var inode: Inode
    var way: Way
    /// Opens without their release.
    var opens: Int
    /// The file behind `backing`; nil when an earlier server opened it: any intact copy of the inode is that file then,
    /// as an inode is one generation and a copy that was touched is never offered.
    var copy: ServedFile?
  }

  /// What to answer an open with.
  enum Decision: Equatable {
    case open(Way)
    /// First try to get a backing id for the copy, then ask again with it (0: there is none to be had).
    case needsBacking
    /// The open handles read from another file than this open may be given.
    case conflict
  }

  private var entries: [Inode: Entry] = [:]

  /// Those that are open.
  var open: [Entry] { Array(entries.values) }

  /// None is open; or those that an earlier server of the mount left open.
  init(_ left: [Entry] = []) {
    for entry in left { entries[entry.inode] = entry }
  }

  /// Counts an open, unless more has to be done first. `copy`: the whole file, when it may be read past us. `backing`:
  /// the id for it if one was asked for; one that is not in the decision is the caller's to close.
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

  /// Counts a release: the backing id to be closed when it was the last.
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
