import Base
import Glibc
import Storing

/// What a user asks for besides reading: fetch this now, drop that.
extension MediaFileSystem {
  /// Completes these files, now and over restarts; whatever of them failed is tried again.
  public func fetch(_ inodes: [Inode]) {
    // On the keeper's thread: a folder of many files is loaded there, a few milliseconds each, without holding up a
    // client.
    engine.keeper.perform { [engine] in
      for inode in inodes {
        do throws(Errno) {
          let content = try engine.content(of: inode)
          if content.guarded.withLock({ $0.phase == .complete }) {
            try engine.recheck(content)
            if content.guarded.withLock({ $0.phase == .complete }) {
              engine.post(.touched(content))  // so that it is put away again
              continue
            }
          }
          engine.post(.fetch(content))
        } catch {
          Log.error("inode \(inode) cannot be fetched: \(error)")
        }
      }
    }
  }

  /// Brings the catalog up to date with what is known: for who asks it and not the files in memory. Blocks for the
  /// disk.
  public func commit() { engine.keeper.flush() }

  /// The files in memory, by their entries: of those the catalog may know less than is so, above all while the disk is
  /// too full for it to be told.
  public func nodesInMemory() throws(Errno) -> [Int64: Node] {
    var nodes: [Int64: Node] = [:]
    for inode in engine.table.withLock({ Array($0.contents.keys) }) {
      let node = try engine.io { () throws(StoreError) in try store.catalog.node(inode) }
      if let node { nodes[node.entry] = node }
    }
    return nodes
  }

  /// Drops what is stored of a file, its completed copy too, and returns when that is done. False when nothing was
  /// stored. Blocks for the disk: not for a thread that serves the kernel.
  public func clear(_ node: Node) throws(Errno) -> Bool {
    let generation = try engine.io { () throws(StoreError) in try store.catalog.generation(current: node.key) }
    let isInMemory = engine.table.withLock { $0.current[node.key] != nil }
    let isPinned = try engine.io { () throws(StoreError) in try store.catalog.isPinned(node.key) }
    guard generation != nil || isInMemory || isPinned else { return false }
    let content = try engine.content(of: node.inode)
    let hadBytes = content.guarded.withLock { !$0.state.stored.isEmpty }
    let done = Signal()
    engine.clear(content) { done.raise() }
    // It may have to wait for a film's digest; the server's end must not wait for that.
    while !done.wait(seconds: 0.5) {
      if engine.isEnding { throw .interrupted }
    }
    return hadBytes
  }
}
