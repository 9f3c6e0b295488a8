import Base
import CFuse
import Glibc
import Reading

// A thread that owns nothing else: the kernel may hold a notification until a request on the same inode is answered.

/// The names the kernel is to forget, and the bytes of files, each once however often it is asked for: never more than
/// the tree has.
struct InvalidationQueue {
  struct Name: Hashable {
    var parent: Inode
    var name: String
  }
  var names: Set<Name> = []
  var pages: [Inode: ByteRange] = [:]
  var isEmpty: Bool { names.isEmpty && pages.isEmpty }
  var isEnding = false
}

/// How often the callers of interrupted requests are looked at while there are any.
private let watchMilliseconds: Int32 = 250

extension FuseSession {
  /// Has the notifier tell the kernel to forget a name.
  package func invalidate(parent: Inode, name: String) {
    invalidate { $0.names.insert(.init(parent: parent, name: name)) }
  }

  /// Has the notifier tell the kernel to forget what it read of `range`.
  package func forgetPages(of inode: Inode, _ range: ByteRange) {
    invalidate { queue in
      let other = queue.pages[inode] ?? range
      queue.pages[inode] = ByteRange(min(range.start, other.start), max(range.end, other.end))
    }
  }

  private func invalidate(_ add: (inout InvalidationQueue) -> Void) {
    let isFirst = invalidations.withLock { queue in
      defer { add(&queue) }
      return queue.isEmpty
    }
    if isFirst { notifierWakeUp.signal() }
  }

  func endNotifier() {
    invalidations.withLock { $0.isEnding = true }
    notifierWakeUp.signal()
  }

  /// The notifier's life.
  func notify() {
    while true {
      let queue = invalidations.withLock { queue in
        defer { (queue.names, queue.pages) = ([], [:]) }
        return queue
      }
      if queue.isEnding { return }
      for name in queue.names { forget(name) }
      for (inode, range) in queue.pages { forget(inode, range) }
      let watched = requests.withLock { $0.watchedProcesses() }
      for entry in watched where isKilled(process: entry.process) { interrupted(entry.ticket, isKilled: true) }
      notifierWakeUp.wait(milliseconds: watched.isEmpty ? -1 : watchMilliseconds)
    }
  }

  /// Waits for the reads that are under way there: what they bring goes, too.
  private func forget(_ inode: Inode, _ range: ByteRange) {
    let result = fuse_lowlevel_notify_inval_inode(handle, inode, off_t(range.start), off_t(range.count))
    switch -result {
    case 0, ENOENT, ENODEV: return  // done; the kernel knew no such inode; the mount is gone
    case let error:
      Log.warning("the kernel did not forget what it read of inode \(inode): \(Errno(rawValue: error))")
    }
  }

  private func forget(_ name: InvalidationQueue.Name) {
    let result = name.name.withCString { bytes in
      fuse_lowlevel_notify_inval_entry(handle, name.parent, bytes, name.name.utf8.count)
    }
    switch -result {
    case 0, ENOENT, ENODEV: return  // done; the kernel knew no such name; the mount is gone
    case let error:
      Log.warning("the kernel did not forget the name “\(name.name)”: \(Errno(rawValue: error))")
    }
  }
}
