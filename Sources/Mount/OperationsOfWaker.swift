import Base
import CFuse
import Glibc
import Reading

/// The writes: those of the waker are answered, as what it does is so already. Everybody else gets EROFS.
extension Operations {
  /// The number of the thread that a request is of; 0 outside of this pid namespace.
  func process(of request: OpaquePointer) -> Int32 { fuse_req_ctx(request)?.pointee.pid ?? 0 }

  /// What the waker makes.
  enum Made { case openFile, file, folder }

  func make(_ request: OpaquePointer, _ parent: Inode, _ name: UnsafePointer<CChar>, _ made: Made) {
    let isFolder = made == .folder
    guard waker.mayMake(name, in: parent, isFolder: isFolder, process: process(of: request)) else {
      return refuse(request, .readOnly)
    }
    do throws(Errno) {
      let attributes = try attributes(of: name, in: parent)
      guard attributes.isFolder == isFolder else { throw .notFound }
      var entry = appearance.entry(attributes)
      switch made {
      // No handle of ``HandleTable`` has this number: the waker's is not counted, and its RELEASE changes nothing.
      case .openFile: _ = cfuse_reply_create(request, &entry, .max)
      case .file, .folder: fuse_reply_entry(request, &entry)
      }
    } catch {
      refuse(request, error)
    }
  }

  func remove(_ request: OpaquePointer, _ parent: Inode, _ name: UnsafePointer<CChar>, isFolder: Bool) {
    refuse(request, waker.remove(name, in: parent, isFolder: isFolder, process: process(of: request)))
  }

  /// utimensat(2) of a file or a folder. For a folder, the answer has a time with other nanoseconds than before, for
  /// which the kernel drops the listing that it has: who is told looks at the folder at once.
  func touch(_ request: OpaquePointer, _ inode: Inode, changes: Int32) {
    let times = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW
    if changes & ~(times | FUSE_SET_ATTR_CTIME) != 0 { return refuse(request, .readOnly) }
    let touches: Int
    switch waker.touch(inode, process: process(of: request)) {
    case .refused(let error): return refuse(request, error)
    // Another answer might wait for the network. What was known when the order was made may be old by now.
    case .file(let attributes): return appearance.send(fileSystem.known(inode) ?? attributes, to: request)
    case .folder(let count): touches = count
    }
    let (ticket, caller) = tickets.begin(request)
    switch fileSystem.attributes(of: inode, ticket: ticket, caller: caller) {
    case .now(let attributes):
      appearance.send(attributes, nanoseconds: touches % 999_999_999 + 1, to: request)
      tickets.settle(ticket)
    case .failed(let error):
      refuse(request, error)
      tickets.settle(ticket)
    case .parked: tickets.park(ticket)
    }
  }

  /// A name that the catalog has no more, for the waker to remove. Its inode is no other file's.
  func sendLeaving(_ request: OpaquePointer, isFolder: Bool) {
    var entry = appearance.entry(
      Attributes(inode: waker.nextInode(), isFolder: isFolder, size: 0, modified: 0, isFinal: true))
    entry.entry_timeout = 0
    fuse_reply_entry(request, &entry)
  }
}
