import Base
import CFuse
import Glibc
import Reading

/// The kernel's requests: each method decodes one, calls the filesystem, and replies or leaves the ticket with the
/// filesystem. All run on a loop thread.
///
/// libfuse's C callbacks find this object through libfuse's userdata. A C function cannot be generic, so the filesystem
/// is a value of the protocol ``Served``, and a call goes through its table of methods.
final class Operations: Sendable {
  let fileSystem: any Served
  let appearance: Appearance
  let handshake: Handshake
  let tickets: Tickets
  let passthrough: Passthrough
  let waker: Waker
  let writer: ReplyWriter

  init(
    fileSystem: any Served, appearance: Appearance, handshake: Handshake, tickets: Tickets, passthrough: Passthrough,
    waker: Waker, writer: ReplyWriter
  ) {
    self.fileSystem = fileSystem
    self.appearance = appearance
    self.handshake = handshake
    self.tickets = tickets
    self.passthrough = passthrough
    self.waker = waker
    self.writer = writer
  }

  func lookup(_ request: OpaquePointer, _ parent: Inode, _ name: UnsafePointer<CChar>) {
    do throws(Errno) {
      switch waker.lookup(name, in: parent, process: process(of: request)) {
      case .absent: return refuse(request, .notFound)
      case .leaving(let isFolder): return sendLeaving(request, isFolder: isFolder)
      case .asUsual: break
      }
      let attributes = try attributes(of: name, in: parent)
      if attributes.isFolder, !waker.isWaker(process(of: request)) { fileSystem.met(attributes.inode) }
      var entry = appearance.entry(attributes)
      fuse_reply_entry(request, &entry)
    } catch .notFound {
      var missing = fuse_entry_param()  // inode 0: the kernel may cache that the name does not exist
      missing.entry_timeout = missingSeconds
      fuse_reply_entry(request, &missing)
    } catch {
      refuse(request, error)
    }
  }

  func attributes(of name: UnsafePointer<CChar>, in parent: Inode) throws(Errno) -> Attributes {
    let length = strlen(name)
    return try name.withMemoryRebound(to: UInt8.self, capacity: length) { bytes throws(Errno) in
      try fileSystem.lookup(parent: parent, name: UnsafeBufferPointer(start: bytes, count: length))
    }
  }

  func attributes(_ request: OpaquePointer, _ inode: Inode) {
    // The kernel asks for what the waker opens, to check its modes. Another answer might wait for the network.
    if waker.isWaker(process(of: request)), let known = fileSystem.known(inode) {
      return appearance.send(known, to: request)
    }
    let (ticket, caller) = tickets.begin(request)
    switch fileSystem.attributes(of: inode, ticket: ticket, caller: caller) {
    case .now(let attributes):
      appearance.send(attributes, to: request)
      tickets.settle(ticket)
    case .failed(let error):
      refuse(request, error)
      tickets.settle(ticket)
    case .parked: tickets.park(ticket)
    }
  }

  /// access(2) and chdir(2), if the mount has no `default_permissions`: every process that the kernel admits may read.
  func access(_ request: OpaquePointer, _ inode: Inode, mask: Int32) {
    if mask & W_OK != 0 { return refuse(request, .readOnly) }
    if mask & X_OK == 0 { return refuse(request, nil) }
    do throws(Errno) {
      // Only a folder can be listed. A listing never waits, but a request for the attributes might.
      try fileSystem.list(inode, after: .max) { _ in false }
      refuse(request, nil)
    } catch {
      refuse(request, error == .notDirectory ? .accessDenied : error)
    }
  }

  func open(_ request: OpaquePointer, _ inode: Inode, flags: Int32) {
    if flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0 { return refuse(request, .readOnly) }
    let (ticket, caller) = tickets.begin(request)
    switch fileSystem.open(inode, ticket: ticket, caller: caller) {
    case .now(let mode):
      let isCounted: Bool
      switch passthrough.opening(inode, mode, unique: LoopThread.currentUnique) {
      case .conflict:
        if !fileSystem.renew(inode, ticket: ticket) { tickets.refuse(ticket, .stale) }
        return tickets.park(ticket)
      case .tooMany:
        refuse(request, .tooManyFiles)
        isCounted = false
      case .open(let opening): isCounted = passthrough.send(opening, mode, to: request)
      }
      tickets.settle(ticket)
      if !isCounted { fileSystem.release(inode) }
    case .failed(let error):
      tickets.refuse(request, unique: LoopThread.currentUnique, error)
      tickets.settle(ticket)
    case .parked: tickets.park(ticket)
    }
  }

  func read(_ request: OpaquePointer, _ inode: Inode, _ size: Int, _ offset: Int64) {
    LoopThread.withReplyBuffer(size) { buffer in
      let (ticket, caller) = tickets.begin(request)
      switch fileSystem.read(inode, at: offset, into: buffer, ticket: ticket, caller: caller) {
      case .now(let count):
        // C's type for bytes.
        fuse_reply_buf(request, buffer.baseAddress?.assumingMemoryBound(to: CChar.self), min(count, size))
        tickets.settle(ticket)
      case .failed(let error):
        refuse(request, error)
        tickets.settle(ticket)
      case .parked: tickets.park(ticket)
      }
    }
  }

  func release(_ request: OpaquePointer, _ inode: Inode, handle: UInt64) {
    // Only once, also if an earlier server had carried it out and was killed before its reply.
    if passthrough.close(handle, of: inode) { fileSystem.release(inode) }
    refuse(request, nil)
  }

  func open(_ request: OpaquePointer, folder: Inode) {
    let (ticket, _) = tickets.begin(request)
    switch fileSystem.openFolder(folder, ticket: ticket) {
    case .now:
      cfuse_reply_opendir(request)
      tickets.settle(ticket)
    case .failed(let error):
      refuse(request, error)
      tickets.settle(ticket)
    case .parked: tickets.park(ticket)
    }
  }

  func list(
    _ request: OpaquePointer, _ folder: Inode, _ size: Int, _ offset: Int64, _ style: ListingStyle
  ) {
    LoopThread.withReplyBuffer(size) { buffer in
      var listing = Listing(request: request, buffer: buffer, style: style)
      do throws(Errno) {
        try listing.fill(self, folder, from: offset)
        fuse_reply_buf(request, buffer.baseAddress?.assumingMemoryBound(to: CChar.self), listing.count)  // C's bytes
      } catch {
        refuse(request, error)
      }
    }
  }

  func capacity(_ request: OpaquePointer) {
    do throws(Errno) {
      let capacity = try fileSystem.capacity()
      var status = statvfs()
      status.f_bsize = 4096
      status.f_frsize = 4096
      status.f_blocks = fsblkcnt_t(capacity.total / 4096)
      status.f_bfree = fsblkcnt_t(capacity.free / 4096)
      status.f_bavail = fsblkcnt_t(capacity.available / 4096)
      status.f_files = fsfilcnt_t(capacity.names) + freeInodes
      status.f_ffree = freeInodes
      status.f_favail = freeInodes
      status.f_namemax = 255
      fuse_reply_statfs(request, &status)
    } catch {
      refuse(request, error)
    }
  }

  func extendedAttribute(
    _ request: OpaquePointer, _ inode: Inode, _ name: UnsafePointer<CChar>, _ size: Int
  ) {
    // `ls -l` asks for ACLs and capabilities of every name: this refuses them without making a String.
    if strncmp(name, "user.", 5) != 0 {
      return refuse(request, strncmp(name, "system.posix_acl", 16) == 0 ? Errno(rawValue: EOPNOTSUPP) : .noData)
    }
    do throws(Errno) {
      replySized(request, try fileSystem.extendedAttribute(String(cString: name), of: inode), size)
    } catch {
      refuse(request, error)
    }
  }

  func extendedAttributes(_ request: OpaquePointer, _ inode: Inode, _ size: Int) {
    do throws(Errno) {
      var names: [UInt8] = []
      for name in try fileSystem.extendedAttributes(of: inode) {
        names.append(contentsOf: name.utf8)
        names.append(0)
      }
      replySized(request, names, size)
    } catch {
      refuse(request, error)
    }
  }
}
