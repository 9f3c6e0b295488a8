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
  /// Loads what readers have open, with how often. What cannot be loaded is loaded when it is read, or fails then.
  func goOn(with open: [Inode: Int]) {
    var superseded: [Int64: Content] = [:]
    for (inode, count) in open {
      do throws(Errno) {
        let content = try self.content(openedBefore: inode, &superseded)
        let (isComplete, isOld) = content.guarded.withLock { guarded in
          guarded.waiters.opened(count)
          return (guarded.held.isCopy, guarded.held.isSuperseded)
        }
        if !isOld { transfers.post(isComplete ? .held(content) : .opened(content)) }
      } catch {
        Log.warning("a file that programs have open cannot be loaded again: \(error) (inode \(inode))")
      }
    }
  }

  private func content(openedBefore inode: Inode, _ superseded: inout [Int64: Content]) throws(Errno) -> Content {
    do throws(Errno) { return try content(of: inode) } catch {
      guard error == .stale else { throw error }
    }
    guard let (_, generation) = try io({ () throws(StoreError) in try store.generations.superseded(inode: inode) }),
      let entry = try io({ () throws(StoreError) in try store.tree.entries(of: generation.key) }).first
    else { throw .stale }
    let content: Content
    if generation.state != .superseded {
      // The same generation under an earlier inode.
      content = try self.content(of: entry.node.inode)
    } else if let other = superseded[generation.id] {
      content = other
    } else {
      var held = try io { () throws(StoreError) in try self.held(generation, entry, isPinned: false) }
      held.superseded()
      content = Content(record: entry, held: held)
      superseded[generation.id] = content
    }
    table.withLock { $0.contents[inode] = content }
    return content
  }
}
