import Base
import Manifest
import Storing

// What the reading room asks of a store: declared here, fulfilled by the storing room, faked by tests. Any thread may
// call any of it; a call may block on the disk, never on the network. A read of stored bytes calls none of it: it uses
// the descriptor that ``ServedFile`` has taken from an open file.

/// The tree of names.
package protocol StoreTree: Sendable {
  /// The listed entry of that name in a folder.
  func lookup(parent: Inode, name: UnsafeBufferPointer<UInt8>) throws(StoreError) -> Node?
  /// The entry with that current inode, listed or not.
  func node(_ inode: Inode) throws(StoreError) -> Node?
  /// The listed entries of a folder behind a cookie.
  func list(_ folder: Inode, after cookie: Int64, limit: Int) throws(StoreError) -> [Node]
  /// The folder that a folder lies in.
  func parent(of folder: Inode) throws(StoreError) -> Inode
  /// The path in the mount, without a leading slash.
  func path(of inode: Inode) throws(StoreError) -> String?
  /// All that is known of a file.
  func entry(_ inode: Inode) throws(StoreError) -> EntryRecord?
  /// The listed entries of a resource.
  func entries(of key: ResourceKey) throws(StoreError) -> [EntryRecord]
  /// How large the tree is.
  func counts() throws(StoreError) -> CatalogCounts
}

/// What is known of the generations of resources.
package protocol StoreGenerations: Sendable {
  /// The current generation of a resource.
  func current(of key: ResourceKey) throws(StoreError) -> GenerationRecord?
  /// The superseded generation that an old inode shows.
  func superseded(inode: Inode) throws(StoreError) -> (Node, GenerationRecord)?
  /// Generations whose background download goes on, by id.
  func continuing(limit: Int, after: Int64) throws(StoreError) -> [GenerationRecord]
  /// The partial files, least recently used first.
  func partialsByUse() throws(StoreError) -> [StoredPartial]
}

/// What is noted of resources, whether anything is stored of them or not.
package protocol StoreNotes: Sendable {
  /// Whether a user asked for the resource by name.
  func isPinned(_ key: ResourceKey) throws(StoreError) -> Bool
  /// The pinned resources, by key.
  func pins(limit: Int, after key: ResourceKey?) throws(StoreError) -> [ResourceKey]
  /// What went wrong with a resource for good.
  func problem(of key: ResourceKey) throws(StoreError) -> NotedProblem?
}

/// How the store learns: what is found out of generations, notes and inodes.
package protocol StoreChanges: Sendable {
  /// A number that is no inode's and no generation's in this store, and never was.
  func nextID() throws(StoreError) -> Int64
  /// Remembers all of the changes or, when it throws, none. With `durably` a power loss leaves them.
  func apply(_ changes: [CatalogChange], durably: Bool) throws(StoreError)
  /// Makes `new` the current generation of a resource, durably, and gives its entries new inodes.
  func supersede(_ key: ResourceKey, by new: GenerationRecord) throws(StoreError) -> [Renumbered]
  /// Gives one entry of a resource a new inode, durably.
  func renumber(_ inode: Inode, of key: ResourceKey) throws(StoreError) -> Renumbered?
}

/// The bytes of generations that are stored in part.
package protocol PartialFiles: Sendable {
  /// Opens the bytes of a generation; makes them, empty, when they are missing and `create` says so.
  func open(_ id: Int64, create: Bool) throws(StoreError) -> any OpenPartialFile
  /// Removes the bytes of a generation, if there are any. Who has them open reads on.
  func remove(_ id: Int64) throws(StoreError)
  /// How much room is left.
  func space() throws(StoreError) -> StoreSpace
}

/// The bytes of one generation, each at its own offset, as long as this object lives.
package protocol OpenPartialFile: AnyObject, Sendable {
  /// The generation.
  var id: Int64 { get }
  /// For pread(2).
  var fileDescriptor: Int32 { get }
  /// Writes all bytes; when it throws, any part of them may be written.
  func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(Errno)
  /// Brings what was written to the disk. Once it failed, it fails for ever.
  func syncData() throws(Errno)
  /// Why a sync failed; nil while none has.
  var syncFailure: Errno? { get }
  /// Where there may be bytes: what the records claim beyond that is lost.
  func dataRanges() throws(Errno) -> ByteRangeSet
  /// Puts a complete, verified file among the completed copies, replacing nothing. `recordIntent` makes the path
  /// durable before each attempt; when it throws, nothing is placed.
  func place(
    as path: String, size: Int64, modified: Int64?, isCancelled: () -> Bool,
    recordIntent: (String) throws(StoreError) -> Void
  ) throws(StoreError) -> LibraryCopy
}

/// The completed copies.
package protocol CompletedCopies: Sendable {
  /// Where they are, for people.
  var path: String { get }
  /// Whether a copy is still the one that was placed.
  func check(_ copy: LibraryCopy) throws(StoreError) -> CopyState
  /// Opens an intact copy for pread(2).
  func open(_ copy: LibraryCopy) throws(StoreError) -> FileDescriptor
  /// Removes an intact copy; false when there was none.
  @discardableResult
  func remove(_ copy: LibraryCopy) throws(StoreError) -> Bool
}
