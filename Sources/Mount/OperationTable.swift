import Base
import CFuse
import Glibc
import Reading

// libfuse calls one plain function for each operation (a closure formed in main-actor code would trap on these
// threads). Each finds the ``Operations`` and calls its method.
//
// The table omits these operations; after one ENOSYS the kernel handles them itself: flush, fsync, fsyncdir (there are
// no writes), getlk, setlk, flock (locks between local processes), lseek (SEEK_DATA, SEEK_HOLE: no file has holes),
// ioctl (ENOTTY), poll, bmap, forget (the catalog owns the inodes, not the kernel).

func operationTable() -> fuse_lowlevel_ops {
  var table = fuse_lowlevel_ops()
  table.`init` = onInit
  table.lookup = { request, parent, name in withOperations(request) { $1.lookup($0, parent, name!) } }
  table.getattr = { request, inode, _ in withOperations(request) { $1.attributes($0, inode) } }
  table.access = { request, inode, mask in withOperations(request) { $1.access($0, inode, mask: mask) } }
  table.readlink = { request, _ in refuse(request!, .invalid) }  // there are no links
  table.opendir = { request, folder, _ in withOperations(request) { $1.open($0, folder: folder) } }
  table.readdir = { request, folder, size, offset, _ in
    withOperations(request) { $1.list($0, folder, size, Int64(offset), .names) }
  }
  table.readdirplus = { request, folder, size, offset, _ in
    withOperations(request) { $1.list($0, folder, size, Int64(offset), .entries) }
  }
  table.releasedir = { request, _, _ in refuse(request!, nil) }
  table.open = { request, inode, info in
    let flags = info!.pointee.flags
    withOperations(request) { $1.open($0, inode, flags: flags) }
  }
  table.read = { request, inode, size, offset, _ in
    withOperations(request) { $1.read($0, inode, size, Int64(offset)) }
  }
  table.release = { request, inode, info in
    let handle = info!.pointee.fh
    withOperations(request) { $1.release($0, inode, handle: handle) }
  }
  table.statfs = { request, _ in withOperations(request) { $1.capacity($0) } }
  table.getxattr = { request, inode, name, size in
    withOperations(request) { $1.extendedAttribute($0, inode, name!, size) }
  }
  table.listxattr = { request, inode, size in withOperations(request) { $1.extendedAttributes($0, inode, size) } }
  refuseWrites(&table)
  return table
}

/// Refuses every operation that would change something (EROFS), whatever the mount's own flags say, but for those of
/// the waker (``Waker``).
private func refuseWrites(_ table: inout fuse_lowlevel_ops) {
  table.setattr = { request, inode, _, changes, _ in
    withOperations(request) { $1.touch($0, inode, changes: changes) }
  }
  table.create = { request, parent, name, _, _ in withOperations(request) { $1.make($0, parent, name!, .openFile) } }
  // The helper that an upgrade found makes files so.
  table.mknod = { request, parent, name, _, _ in withOperations(request) { $1.make($0, parent, name!, .file) } }
  table.mkdir = { request, parent, name, _ in withOperations(request) { $1.make($0, parent, name!, .folder) } }
  table.unlink = { request, parent, name in withOperations(request) { $1.remove($0, parent, name!, isFolder: false) } }
  table.rmdir = { request, parent, name in withOperations(request) { $1.remove($0, parent, name!, isFolder: true) } }
  table.symlink = { request, _, _, _ in refuse(request!, .readOnly) }
  table.rename = { request, _, _, _, _, _ in refuse(request!, .readOnly) }
  table.link = { request, _, _, _ in refuse(request!, .readOnly) }
  table.setxattr = { request, _, _, _, _, _ in refuse(request!, .readOnly) }
  table.removexattr = { request, _, _ in refuse(request!, .readOnly) }
  table.write = { request, _, _, _, _, _ in refuse(request!, .readOnly) }
  table.fallocate = { request, _, _, _, _, _ in refuse(request!, .readOnly) }
  table.copy_file_range = { request, _, _, _, _, _, _, _, _ in refuse(request!, .readOnly) }
}

/// Calls `body` with the operations that `request` is for, without touching their reference count: the ``Device`` holds
/// them, and a loop thread holds the device.
@inline(__always)
private func withOperations(_ request: OpaquePointer?, _ body: (OpaquePointer, Operations) -> Void) {
  guard let request, let userdata = fuse_req_userdata(request) else { return }
  Unmanaged<Operations>.fromOpaque(userdata)._withUnsafeGuaranteedRef { body(request, $0) }
}

/// libfuse's `init`: `connection` has the kernel's offer and takes mediafs's choice.
private func onInit(_ userdata: UnsafeMutableRawPointer?, _ connection: UnsafeMutablePointer<fuse_conn_info>?) {
  guard let userdata, let connection else { return }
  Unmanaged<Operations>.fromOpaque(userdata)._withUnsafeGuaranteedRef { $0.handshake.choose(connection) }
}

/// libfuse's interrupt function. libfuse holds a lock here, so this only notes the ticket; the loop thread delivers it.
func onInterrupt(_ request: OpaquePointer?, _ ticket: UnsafeMutableRawPointer?) {
  let ticket = Ticket(rawValue: UInt(bitPattern: ticket))
  LoopThread.current?._withUnsafeGuaranteedRef { $0.interrupted.append(ticket) }
}
