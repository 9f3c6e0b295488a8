import Base
import Manifest
import Storing

/// What the servers of one mount have in common.
package struct MountBeginning: Equatable, Sendable {
  /// The first id of the generations that begin in this mount.
  package var firstID: Int64
  /// When the mount was made, in seconds since 1970: the modification time of files whose origin names none.
  package var mountedAt: Int64

  /// The beginning of a mount.
  package init(firstID: Int64, mountedAt: Int64) {
    self.firstID = firstID
    self.mountedAt = mountedAt
  }
}

/// A server that follows a killed one in the same mount.
extension ReadingRoom {
  /// Loads what readers have open, with how often. What cannot be loaded now is loaded when a reader next uses it.
  func goOn(with open: [Inode: Int]) {
    for (inode, count) in open {
      table.withLock { $0.owedOpens[inode] = count }
      do throws(Errno) {
        let content = try self.content(of: inode)
        let (isComplete, isOld) = content.guarded.withLock { ($0.held.isCopy, $0.held.isSuperseded) }
        if !isOld { transfers.post(isComplete ? .held(content) : .opened(content)) }
      } catch {
        Log.warning("\(store.name(of: inode)): programs have it open, and it cannot be loaded again: \(error)")
      }
    }
  }

  /// Notes that a request for a file killed two servers and fails from now on.
  func note(refused request: String, of inode: Inode) {
    let message = "\(request) killed two servers, and fails until the next mount; the log says where they died"
    do throws(Errno) {
      guard let entry = try io({ () throws(StoreError) in try store.tree.entry(inode) }) else { throw .notFound }
      Log.error("\(entry.path): \(message)")
      if entry.node.kind == .file {
        table.withLock { $0.errors.noteForGood(LastError(message: message, at: clock.now), of: entry.node.key) }
      }
    } catch {
      Log.error("a file or folder (inode \(inode)): \(message)")
    }
  }

  /// The content behind an inode that readers opened before this server, and that no name leads to any more.
  func superseded(_ inode: Inode, opening: Bool) throws(Errno) -> Content {
    guard let (_, generation) = try io({ () throws(StoreError) in try store.generations.superseded(inode: inode) }),
      let entry = try io({ () throws(StoreError) in try store.tree.entries(of: generation.key) }).first
    else { throw .stale }
    let loaded: Content
    if generation.state != .superseded {
      // The same generation under an earlier inode.
      loaded = try content(of: entry.node.inode)
    } else {
      var held = try io { () throws(StoreError) in try self.held(generation, entry, isPinned: false) }
      held.superseded()
      loaded = Content(record: entry, held: held)
    }
    let known = table.withLock { table -> Content? in
      let known = table.contents[inode] ?? table.contents.values.first { $0.has(generation.id) } ?? loaded
      if known.guarded.withLock({ $0.held.isPutAway }) { return nil }
      if table.contents[inode] == nil { table.note(known, inode: inode) }
      if opening { known.guarded.withLock { $0.waiters.opened() } }
      return known
    }
    if let known { return known }
    return try superseded(inode, opening: opening)
  }
}

extension Content {
  /// Whether it is the generation with that id.
  fileprivate func has(_ id: Int64) -> Bool { guarded.withLock { $0.held.generation?.id == id } }
}
