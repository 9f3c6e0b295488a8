import Base
import Manifest

/// The contents that are in memory: those that are open, waited for, or being fetched. Everything else is in the
/// catalog.
struct Table: Sendable {
  /// By inode: several inodes (entries of one resource) may share a content.
  var contents: [Inode: Content] = [:]
  /// The newest generation of each resource here.
  var current: [ResourceKey: Content] = [:]
  /// Generations without validators, of an earlier mount, whose bytes were dropped: what they have now is this mount's.
  var begunAnew: Set<Int64> = []
  /// Resources whose stored bytes are being removed: nothing is loaded of them until that is done.
  var leaving: Set<ResourceKey> = []
  /// What went wrong last, also with resources that were put away.
  var errors = LastErrors()
  /// Counts what was put away, evicted or superseded: whoever read the catalog before reads it again.
  var departures: UInt64 = 0

  /// Puts a content in, or gives the one that another thread put in first.
  mutating func insert(_ content: Content, inode: Inode) -> Content {
    if let existing = contents[inode] { return existing }
    let kept = current[content.key] ?? content
    current[content.key] = kept
    contents[inode] = kept
    return kept
  }

  /// Takes a content out, with every inode that leads to it.
  mutating func remove(_ content: Content) {
    departures += 1
    if current[content.key] === content { current[content.key] = nil }
    for (inode, other) in contents where other === content { contents[inode] = nil }
  }
}
