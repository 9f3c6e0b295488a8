import Base
import Storing

/// Finds the sizes of a folder's files ahead of `ls -l`, a file manager or a scanner, which stat every name one after
/// the other.
///
/// A lone stat is left alone. From the second unknown one in a folder within two seconds on, the next siblings in the
/// listing's order are probed side by side, a bounded number ahead of the stats: a folder of a million files is not
/// probed whole because someone looked at two of them. What one process waited for the first stat does not count: it is
/// the same listing that goes on.
final class SiblingProbe: Sendable {
  private struct Folder: Sendable {
    var last: Instant
    /// Who looked last.
    var process: Int32
    /// Entries up to this cookie have been asked for.
    var askedUntil: Int64 = 0
    var looks = 1
  }

  /// How many are asked for at once, and how near to the end of those a stat must come for more.
  private static let batch = 48
  private static let seconds = 2.0
  /// Folders that are remembered: more than are listed at the same time.
  private static let folders = 16

  private let room: ReadingRoom
  private let recent = Lock<[Inode: Folder]>([:])

  init(room: ReadingRoom) { self.room = room }

  /// A file of unknown size was looked at.
  func looked(at node: Node, process: Int32) {
    let now = room.clock.now
    let timeout = room.options.timeout
    let from = recent.withLock { recent -> Int64? in
      let folder = recent[node.parent]
      let longest = Self.seconds + (folder?.process == process ? timeout : 0)
      guard var folder, now.seconds(since: folder.last) < longest else {
        if recent.count >= Self.folders, let oldest = recent.min(by: { $0.value.last < $1.value.last }) {
          recent[oldest.key] = nil
        }
        recent[node.parent] = Folder(last: now, process: process)
        return nil
      }
      folder.last = now
      folder.process = process
      folder.looks += 1
      defer { recent[node.parent] = folder }
      guard node.entry + Int64(Self.batch / 2) > folder.askedUntil else { return nil }
      let start = max(node.entry, folder.askedUntil)
      folder.askedUntil = start + Int64(Self.batch)
      return start
    }
    guard let from else { return }
    room.keeper.post(.job { [recent] keeper in Self.lookAhead(from, in: node, keeper.room, recent) })
  }

  /// On the keeper's thread: a stat does not wait while the catalog is read for others.
  private static func lookAhead(
    _ from: Int64, in node: Node, _ room: ReadingRoom, _ recent: Lock<[Inode: Folder]>
  ) {
    do throws(StoreError) {
      let next = try room.store.catalog.list(node.parent, after: from, limit: batch)
      var contents: [Content] = []
      for sibling in next where sibling.kind == .file && sibling.size == nil {
        do throws(Errno) {
          let content = try room.content(of: sibling.inode)
          if content.guarded.withLock({ $0.held.generation == nil }) { contents.append(content) }
        } catch {
          Log.debug("\(sibling.name): not probed ahead: \(error)")  // its own stat will say so
        }
      }
      if let last = next.last {
        recent.withLock { $0[node.parent]?.askedUntil = last.entry }
      }
      if !contents.isEmpty { room.transfers.post(.lookAhead(contents)) }
    } catch {
      Log.error("the folder of \(node.name) cannot be listed: \(error.message)")
    }
  }
}
