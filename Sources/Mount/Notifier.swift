import Base
import Glibc
import Reading

/// Makes the kernel forget names and pages, and checks interrupted requests, on a thread of its own: without a helper
/// that writes the notifications (``ReplyWriter``), the kernel may block it until a request is answered.
///
/// Any thread queues work. The thread in ``run(_:_:)`` does it.
final class Notifier: Sendable {
  /// What the kernel must forget, each item once however often it is queued: never more than the tree has.
  private struct Queue {
    var names: Set<TreeName> = []
    var pages: [Inode: ByteRange] = [:]
    var isEmpty: Bool { names.isEmpty && pages.isEmpty }
    var isEnding = false
  }

  /// How often the notifier checks the callers of interrupted requests while there are any.
  private static let watchMilliseconds: Int32 = 250

  private let queue = Lock(Queue())
  private let wakeUp: Event
  /// Signalled by ``end()``, for good.
  private let ending: Event

  init() throws(Errno) {
    wakeUp = try Event()
    ending = try Event()
  }

  /// Makes the kernel forget a name.
  func forget(_ name: TreeName) { add { $0.names.insert(name) } }

  /// Makes the kernel drop its cached pages of `range`.
  func forgetPages(of inode: Inode, _ range: ByteRange) {
    add { queue in
      let other = queue.pages[inode] ?? range
      queue.pages[inode] = ByteRange(min(range.start, other.start), max(range.end, other.end))
    }
  }

  /// Makes the kernel drop its cached listing of a folder.
  func forgetListing(of folder: Inode) { forgetPages(of: folder, ByteRange(0, 0)) }  // an empty range: all there is

  private func add(_ change: (inout Queue) -> Void) {
    let isFirst = queue.withLock { queue in
      defer { change(&queue) }
      return queue.isEmpty
    }
    if isFirst { wake() }
  }

  /// Makes the thread check interrupted requests.
  func wake() { wakeUp.signal() }

  /// Makes ``run(_:_:)`` return. It drops what is still queued.
  func end() {
    queue.withLock { $0.isEnding = true }
    ending.signal()
    wake()
  }

  private var isEnding: Bool { queue.withLock { $0.isEnding } }

  /// Waits until `socket` takes a packet. False: ``end()`` was called.
  func wait(for socket: Int32) -> Bool {
    var waiting = [
      pollfd(fd: socket, events: Int16(POLLOUT), revents: 0),
      pollfd(fd: ending.rawValue, events: Int16(POLLIN), revents: 0),
    ]
    _ = poll(&waiting, 2, -1)  // the caller's loop checks why it returned
    return !isEnding
  }

  /// What the notifier's thread runs.
  func run(_ device: Device, _ tickets: Tickets) {
    while true {
      let work = queue.withLock { queue in
        defer { (queue.names, queue.pages) = ([], [:]) }
        return queue
      }
      if work.isEnding { return }
      for name in work.names where !isEnding {
        device.forget(name.text, in: name.parent)
      }
      for (inode, range) in work.pages where !isEnding { device.forgetPages(of: inode, range) }
      wakeUp.wait(milliseconds: tickets.lookAfterInterrupted() ? Self.watchMilliseconds : -1)
    }
  }
}
