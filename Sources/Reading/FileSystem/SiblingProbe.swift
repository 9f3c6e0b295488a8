import Base
import Storing

/// Finds the sizes of a folder's files ahead of programs that stat one name after the other: `ls -l`, a file manager, a
/// scanner.
///
/// One stat alone has no effect. At the second stat of an unknown size in a folder within two seconds, the next
/// siblings in the listing's order are probed at once. Only a limited number is probed ahead of the stats, so that two
/// stats in a folder of a million files do not probe all of them. The two seconds do not include the time that the same
/// process waited for the first stat: it is the same listing.
///
/// The kernel asks for a file's attributes before each open. A program that looks at files one after the other lists
/// nothing: its stat brings the head that it reads next, and a request for the size alone would be one more.
final class SiblingProbe: Sendable {
  private struct Folder: Sendable {
    var last: Instant
    /// The process of the last stat, and its file.
    var process: Int32
    var inode: Inode
    /// The siblings up to this cookie have been probed.
    var askedUntil: Int64 = 0
    var looks = 1
  }

  /// How many siblings are probed at once. A stat in the last half of them probes the next.
  private static let batch = 48
  private static let seconds = 2.0
  /// How many folders are remembered: more than are listed at the same time.
  private static let folders = 16

  private let room: ReadingRoom
  private let recent = Lock<[Inode: Folder]>([:])

  init(room: ReadingRoom) { self.room = room }

  /// Notes a stat of a file of unknown size.
  func looked(at node: Node, process: Int32) {
    let now = room.clock.now
    let timeout = room.options.timeout
    let isLooker = ScanPrograms.contains(process: process)
    let former = recent.withLock { $0[node.parent] }
    let lists =
      !isLooker || former.map { $0.process == process && $0.inode != node.inode && isUnread($0.inode) } ?? true
    let from = recent.withLock { recent -> Int64? in
      let folder = recent[node.parent]
      let longest = Self.seconds + (folder?.process == process ? timeout : 0)
      guard var folder, lists, now.seconds(since: folder.last) < longest else {
        if recent.count >= Self.folders, let oldest = recent.min(by: { $0.value.last < $1.value.last }) {
          recent[oldest.key] = nil
        }
        recent[node.parent] = Folder(last: now, process: process, inode: node.inode)
        return nil
      }
      folder.last = now
      (folder.process, folder.inode) = (process, node.inode)
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

  /// Whether a file of which the size was asked for was not opened and read since.
  private func isUnread(_ inode: Inode) -> Bool {
    let content = room.table.withLock { $0.contents[inode] }
    return content?.guarded.withLock { $0.waiters.opens == 0 && $0.waiters.runs.runs.isEmpty } ?? false
  }

  /// Runs on the keeper's thread, so that the stat does not wait while the catalog is read for its siblings.
  private static func lookAhead(
    _ from: Int64, in node: Node, _ room: ReadingRoom, _ recent: Lock<[Inode: Folder]>
  ) {
    do throws(StoreError) {
      let next = try room.store.tree.list(node.parent, after: from, limit: batch)
      var contents: [Content] = []
      for sibling in next where sibling.kind == .file && sibling.size == nil && sibling.listedSize == nil {
        do throws(Errno) {
          let content = try room.content(of: sibling.inode)
          if content.guarded.withLock({ $0.held.generation == nil }) { contents.append(content) }
        } catch {
          Log.debug("\(sibling.name): not probed ahead: \(error)")  // its own stat reports it
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
