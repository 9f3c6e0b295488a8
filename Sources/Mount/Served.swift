import Base
import Reading

/// What a mount calls: the methods of `MediaFileSystem`, as a protocol that a test's synthetic filesystem can
/// implement.
///
/// `MediaFileSystem` documents the contract of each. The protocol stays internal: the optimiser sees that one type of
/// the program conforms, and calls `MediaFileSystem` directly.
protocol Served: AnyObject, Sendable {
  func lookup(parent: Inode, name: UnsafeBufferPointer<UInt8>) throws(Errno) -> Attributes
  func find(_ name: UnsafeBufferPointer<UInt8>, in parent: Inode) throws(Errno) -> Attributes
  func known(_ inode: Inode) -> Attributes?
  func attributes(of inode: Inode, ticket: Ticket, caller: Caller) -> Answer<Attributes>
  func list(_ folder: Inode, after cookie: Int64, _ visit: (DirectoryItem) -> Bool) throws(Errno)
  func parent(of folder: Inode) -> Inode
  func path(of inode: Inode) -> String?
  func met(_ folder: Inode)
  func openFolder(_ folder: Inode, ticket: Ticket) -> Answer<Void>
  func open(_ inode: Inode, ticket: Ticket, caller: Caller) -> Answer<OpenMode>
  func read(
    _ inode: Inode, at offset: Int64, into buffer: UnsafeMutableRawBufferPointer, ticket: Ticket, caller: Caller
  ) -> Answer<Int>
  func renew(_ inode: Inode, ticket: Ticket) -> Bool
  func release(_ inode: Inode)
  func interrupt(_ ticket: Ticket, isKilled: Bool) -> Bool
  func capacity() throws(Errno) -> Capacity
  func extendedAttribute(_ name: String, of inode: Inode) throws(Errno) -> [UInt8]
  func extendedAttributes(of inode: Inode) throws(Errno) -> [String]
}

extension MediaFileSystem: Served {}
