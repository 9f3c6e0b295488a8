import Base
import CFuse
import Glibc
import Reading

// A thread that owns nothing else: the kernel may hold a notification until a request on the same inode is answered.

/// The names the kernel is to forget, each once however often it is asked for: never more than the tree has.
struct InvalidationQueue {
  struct Name: Hashable {
    var parent: Inode
    var name: String
  }
  var names: Set<Name> = []
  var isEnding = false
}

/// How often the callers of interrupted requests are looked at while there are any.
private let watchMilliseconds: Int32 = 250

extension Session {
  func invalidate(parent: Inode, name: String) {
    let isFirst = invalidations.withLock { queue in
      queue.names.insert(.init(parent: parent, name: name))
      return queue.names.count == 1
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
      let (names, isEnding) = invalidations.withLock { queue in
        defer { queue.names = [] }
        return (queue.names, queue.isEnding)
      }
      if isEnding { return }
      for name in names { forget(name) }
      let watched = requests.withLock { $0.watchedProcesses() }
      for entry in watched where isKilled(process: entry.process) { interrupted(entry.ticket, isKilled: true) }
      notifierWakeUp.wait(milliseconds: watched.isEmpty ? -1 : watchMilliseconds)
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
