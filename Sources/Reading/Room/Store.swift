import Base
import Manifest
import Storing

// What the reading room needs of a store. The protocols are declared here; the storing room implements them, and tests
// use fakes. Any thread may call any method. A call may block on the disk, but never on the network. A read of stored
// bytes makes none of these calls: it uses the descriptor that ``ServedFile`` took from an open file.

/// The tree of names.
package protocol StoreTree: Sendable {
  /// The listed entry with that name in a folder.
  func lookup(parent: Inode, name: UnsafeBufferPointer<UInt8>) throws(StoreError) -> Node?
  /// The entry with that current inode, listed or not.
  func node(_ inode: Inode) throws(StoreError) -> Node?
  /// The listed entries of a folder after a cookie.
  func list(_ folder: Inode, after cookie: Int64, limit: Int) throws(StoreError) -> [Node]
  /// The parent of a folder.
  func parent(of folder: Inode) throws(StoreError) -> Inode
  /// The path in the mount, without a leading slash.
  func path(of inode: Inode) throws(StoreError) -> String?
  /// What the catalog knows of a file.
  func entry(_ inode: Inode) throws(StoreError) -> EntryRecord?
  /// The listed entries of a resource.
  func entries(of key: ResourceKey) throws(StoreError) -> [EntryRecord]
  /// The paths that a resource had when it was listed last.
  func formerPaths(of key: ResourceKey) throws(StoreError) -> [String]
  /// The listed entry at a path below the root; the root for an empty path.
  func find(path: String) throws(StoreError) -> Node?
  /// Like ``list(_:after:limit:)``, for a walk over the tree: the list ends after the first folder.
  func survey(_ folder: Inode, after cookie: Int64, limit: Int) throws(StoreError) -> [SurveyedNode]
  /// The size of the tree.
  func counts() throws(StoreError) -> CatalogCounts
}

/// What is known of the generations of resources.
package protocol StoreGenerations: Sendable {
  /// The current generation of a resource.
  func current(of key: ResourceKey) throws(StoreError) -> GenerationRecord?
  /// The superseded generation that an old inode shows.
  func superseded(inode: Inode) throws(StoreError) -> (Node, GenerationRecord)?
  /// Generations whose background download continues, by id.
  func continuing(limit: Int, after: Int64) throws(StoreError) -> [GenerationRecord]
  /// Listed generations with a strong ETag of which something is stored, by id.
  func strong(limit: Int, after: Int64) throws(StoreError) -> [GenerationRecord]
  /// The partial files, least recently used first.
  func partialsByUse() throws(StoreError) -> [StoredPartial]
  /// The bytes of the complete copies that were not there before this store.
  func copyBytes(of id: Int64?) throws(StoreError) -> Int64
  /// Those copies, least recently used first. `mayGo`: only those that this store placed and that the list names.
  func copies(limit: Int, after last: CountedCopy?, mayGo: Bool) throws(StoreError) -> [CountedCopy]
}

/// The notes on resources, whether anything of them is stored or not, on hosts, and on kinds of containers. They are
/// written as changes (``StoreChanges``).
package protocol StoreNotes: Sendable {
  /// Whether a user asked for the resource by name.
  func isPinned(_ key: ResourceKey) throws(StoreError) -> Bool
  /// The pinned resources, by key.
  func pins(limit: Int, after key: ResourceKey?) throws(StoreError) -> [ResourceKey]
  /// The user's rules.
  func rules() throws(StoreError) -> Rules
  /// The last failure of a resource that was noted.
  func problem(of key: ResourceKey) throws(StoreError) -> NotedProblem?
  /// What was learned of hosts.
  func hosts() throws(StoreError) -> [HostNote]
  /// What programs read of kinds of containers when they first open a file.
  func kinds() throws(StoreError) -> [KindNote]
}

/// Changes of the catalog: of generations, notes and inodes.
package protocol StoreChanges: Sendable {
  /// A number that no inode, entry or generation of this store has or ever had.
  func nextID() throws(StoreError) -> Int64
  /// Stores all of the changes or, if it throws, none. With `durably`, they survive a power loss.
  func apply(_ changes: [CatalogChange], durably: Bool) throws(StoreError)
  /// Makes `new` the current generation of a resource in place of `old`, durably, and gives its entries new inodes,
  /// also if the store does not know `old` yet.
  func supersede(_ old: GenerationRecord, by new: GenerationRecord) throws(StoreError) -> [Renumbered]
  /// Gives one entry of a resource a new inode, durably.
  func renumber(_ inode: Inode, of key: ResourceKey) throws(StoreError) -> Renumbered?
}

/// The bytes of generations that are stored in part.
package protocol PartialFiles: Sendable {
  /// Opens the bytes of a generation. If they are missing, creates them, empty, if `create` is true.
  func open(_ id: Int64, create: Bool) throws(StoreError) -> any OpenPartialFile
  /// Removes the bytes of a generation, if there are any. Open readers keep reading. Returns the space that they took.
  @discardableResult
  func remove(_ id: Int64) throws(StoreError) -> Int64
  /// The space that all of them take on the disk, in bytes.
  func allocated() throws(StoreError) -> Int64
  /// The free space.
  func space() throws(StoreError) -> StoreSpace
}

/// The bytes of one generation, each at its own offset, while this object lives.
package protocol OpenPartialFile: AnyObject, Sendable {
  /// The generation's id.
  var id: Int64 { get }
  /// The descriptor for pread(2).
  var fileDescriptor: Int32 { get }
  /// Writes all bytes. If it throws, any part of them may be written.
  func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(Errno)
  /// Syncs the written data to disk. After one failure every call fails.
  func syncData() throws(Errno)
  /// Why a sync failed; nil if none has.
  var syncFailure: Errno? { get }
  /// Where there may be bytes. What the catalog claims beyond that is lost.
  func dataRanges() throws(Errno) -> ByteRangeSet
  /// Gives the space of whole blocks back: they read as zeros from then on.
  func punch(_ range: ByteRange) throws(Errno)
  /// The space that they take on the disk, in bytes.
  func allocated() throws(Errno) -> Int64
  /// Whether the bytes are among the completed copies, and not in the store any more.
  func isMoved() throws(Errno) -> Bool
  /// Places a complete, verified file among the completed copies, and replaces nothing. `recordIntent` makes the path
  /// durable before each attempt, and `reserve` reserves the space of a second file, where one is needed; if they
  /// throw, nothing is placed.
  func place(
    as path: String, size: Int64, modified: Int64?, isCancelled: () -> Bool,
    reserve: (Int64) throws(StoreError) -> Void, recordIntent: (String) throws(StoreError) -> Void
  ) throws(StoreError) -> Placement
}

/// The completed copies.
package protocol CompletedCopies: Sendable {
  /// The path of their folder, for messages.
  var path: String { get }
  /// Whether a copy is still the one that mediafs placed.
  func check(_ copy: LibraryCopy) throws(StoreError) -> CopyState
  /// Opens an intact copy for pread(2).
  func open(_ copy: LibraryCopy) throws(StoreError) -> FileDescriptor
  /// Whether an intact copy is there, and has no other name.
  func isOnlyCopy(_ copy: LibraryCopy) throws(StoreError) -> Bool
  /// The copy at the path that was noted before a file was placed, if it is that file. `partialExists`: whether the
  /// store has the file still, so that it has to be placed again.
  func recover(
    intent path: String, size: Int64, modified: Int64?, partialExists: Bool
  ) throws(StoreError) -> LibraryCopy?
  /// Removes an intact copy; false if there was none.
  @discardableResult
  func remove(_ copy: LibraryCopy) throws(StoreError) -> Bool
}
