import Base
import Manifest
import Storing

/// The contents in memory: the files that are open, waited for, or being fetched. The catalog knows all others.
struct Table: Sendable {
  /// By inode: several inodes (entries of one resource) may share a content.
  private(set) var contents: [Inode: Content] = [:]
  /// The inodes that lead to each of them.
  private var byContent: [ObjectIdentifier: Set<Inode>] = [:]
  /// The newest generation of each resource here.
  var current: [ResourceKey: Content] = [:]
  /// The first generations of resources that the keeper has still to record. The catalog does not know them, but the
  /// kernel may have cached bytes of them.
  var unrecorded: [ResourceKey: GenerationRecord] = [:]
  /// Resources whose stored bytes the keeper is removing: no thread loads them until it has finished.
  var leaving: Set<ResourceKey> = []
  /// The last errors, also of resources that are no longer in memory.
  var errors = LastErrors()
  /// What was fetched of resources that are no longer in memory.
  var fetched = FetchTallies()
  /// How often readers had inodes open that could not be loaded when this server took over the mount.
  var owedOpens: [Inode: Int] = [:]
  /// The sizes that the list gives.
  var listedSizes = ListedSizes()
  /// Counts the contents that were put away, evicted or superseded. A thread that read the catalog before the number
  /// changed reads it again.
  var departures: UInt64 = 0

  /// Inserts a content, or returns the one that another thread inserted first.
  mutating func insert(_ content: Content, inode: Inode) -> Content {
    if let existing = contents[inode] { return existing }
    let kept = current[content.key] ?? content
    current[content.key] = kept
    note(kept, inode: inode)
    return kept
  }

  /// Makes `inode` lead to `content`, and counts the opens that the content does not know yet.
  mutating func note(_ content: Content, inode: Inode) {
    lead(inode, to: content)
    guard let count = owedOpens.removeValue(forKey: inode) else { return }
    content.guarded.withLock { $0.waiters.opened(count) }
  }

  /// Makes `inode` lead to `content`.
  mutating func lead(_ inode: Inode, to content: Content) {
    if let former = contents.updateValue(content, forKey: inode) {
      byContent[ObjectIdentifier(former)]?.remove(inode)
    }
    byContent[ObjectIdentifier(content), default: []].insert(inode)
  }

  /// The inodes that lead to `content`.
  func inodes(of content: Content) -> Set<Inode> { byContent[ObjectIdentifier(content)] ?? [] }

  /// A handle of an inode that is not in memory was closed.
  mutating func closedUnloaded(_ inode: Inode) {
    guard let count = owedOpens[inode] else { return }
    owedOpens[inode] = count > 1 ? count - 1 : nil
  }

  /// Removes a content, with every inode that leads to it.
  mutating func remove(_ content: Content) {
    departures += 1
    if current[content.key] === content { current[content.key] = nil }
    for inode in byContent.removeValue(forKey: ObjectIdentifier(content)) ?? [] {
      contents[inode] = nil
      listedSizes.left(inode)
    }
  }
}
