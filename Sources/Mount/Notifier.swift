import Base
import Reading

/// Has the kernel forget names and bytes, and has interrupted requests looked at, on a thread that owns nothing else:
/// the kernel may hold a notification until a request on the same inode is answered.
///
/// Any thread asks; the thread that is in ``run(_:_:)`` does it.
final class Notifier: Sendable {
  /// What the kernel is to forget, each once however often it is asked for: never more than the tree has.
  private struct Queue {
    var names: Set<Name> = []
    var pages: [Inode: ByteRange] = [:]
    var isEmpty: Bool { names.isEmpty && pages.isEmpty }
    var isEnding = false
  }

  private struct Name: Hashable {
    var parent: Inode
    var name: String
  }

  /// How often the callers of interrupted requests are looked at while there are any.
  private static let watchMilliseconds: Int32 = 250

  private let queue = Lock(Queue())
  private let wakeUp: Event

  init() throws(Errno) { wakeUp = try Event() }

  /// Has the kernel forget a name.
  func forget(_ name: String, in parent: Inode) { add { $0.names.insert(Name(parent: parent, name: name)) } }

  /// Has the kernel forget what it read of `range`.
  func forgetPages(of inode: Inode, _ range: ByteRange) {
    add { queue in
      let other = queue.pages[inode] ?? range
      queue.pages[inode] = ByteRange(min(range.start, other.start), max(range.end, other.end))
    }
  }

  private func add(_ change: (inout Queue) -> Void) {
    let isFirst = queue.withLock { queue in
      defer { change(&queue) }
      return queue.isEmpty
    }
    if isFirst { wake() }
  }

  /// Has the thread look at interrupted requests.
  func wake() { wakeUp.signal() }

  /// Has ``run(_:_:)`` return; what is still to be forgotten is dropped.
  func end() {
    queue.withLock { $0.isEnding = true }
    wake()
  }

  /// The notifier thread's life.
  func run(_ device: Device, _ tickets: Tickets) {
    while true {
      let work = queue.withLock { queue in
        defer { (queue.names, queue.pages) = ([], [:]) }
        return queue
      }
      if work.isEnding { return }
      for name in work.names { device.forget(name.name, in: name.parent) }
      for (inode, range) in work.pages { device.forgetPages(of: inode, range) }
      wakeUp.wait(milliseconds: tickets.lookAfterInterrupted() ? Self.watchMilliseconds : -1)
    }
  }
}
