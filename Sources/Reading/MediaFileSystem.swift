import Base
import Storing

/// The filesystem as the kernel sees it, without a kernel: the mount decodes a request, calls, and replies.
///
/// Every method may be called from any thread and none waits for the network. What takes a ticket either answers now or
/// keeps the ticket and answers through the ``ReplyPort`` later, exactly once.
public final class MediaFileSystem: Sendable {
  /// Where late answers go. To be called once, before the first request.
  public func connect(_ port: any ReplyPort) { fatalError("contract") }

  /// The node `name` (raw bytes, any) in `parent`. ENOENT when there is none.
  public func lookup(parent: Inode, name: UnsafeBufferPointer<UInt8>) throws(Errno) -> Attributes { fatalError("contract") }

  /// What stat shows. Parks when the size is to be found first.
  public func attributes(of inode: Inode, ticket: Ticket, caller: Caller) -> Answer<Attributes> { fatalError("contract") }

  /// The names of `folder` behind `cookie` (0: from the first), until `visit` returns false or there are no more. `.` and
  /// `..` are not among them.
  public func list(_ folder: Inode, after cookie: Int64, _ visit: (DirectoryItem) -> Bool) throws(Errno) { fatalError("contract") }

  /// Where `..` of `folder` leads.
  public func parent(of folder: Inode) -> Inode { fatalError("contract") }

  /// Opens a file; every successful open (also a parked one that the port took) is matched by one ``release(_:)``.
  public func open(_ inode: Inode, ticket: Ticket, caller: Caller) -> Answer<OpenMode> { fatalError("contract") }

  /// Reads into `buffer` (as long as the request): `.now(count)` bytes are there, fewer than asked only at the end.
  public func read(
    _ inode: Inode, at offset: Int64, into buffer: UnsafeMutableRawBufferPointer, ticket: Ticket, caller: Caller
  ) -> Answer<Int> { fatalError("contract") }

  /// A handle was closed for good.
  public func release(_ inode: Inode) { fatalError("contract") }

  /// The kernel sent INTERRUPT for a parked ticket. `isKilled`: its caller has a SIGKILL pending.
  public func interrupt(_ ticket: Ticket, isKilled: Bool) { fatalError("contract") }

  /// What statfs shows.
  public func capacity() throws(Errno) -> Capacity { fatalError("contract") }

  /// The value of an extended attribute; ENODATA when the node has none of that name.
  public func extendedAttribute(_ name: String, of inode: Inode) throws(Errno) -> [UInt8] { fatalError("contract") }

  /// The names of its extended attributes.
  public func extendedAttributes(of inode: Inode) throws(Errno) -> [String] { fatalError("contract") }
}
