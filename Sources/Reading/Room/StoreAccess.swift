import Base
import Manifest
import Storing

/// The store, as the reading room uses it.
package struct StoreAccess: Sendable {
  /// The names.
  package let tree: any StoreTree
  /// What is known of generations.
  package let generations: any StoreGenerations
  /// The notes on resources.
  package let notes: any StoreNotes
  /// The catalog's changes.
  package let changes: any StoreChanges
  /// The partial files.
  package let partials: any PartialFiles
  /// The completed copies.
  package let copies: any CompletedCopies
  /// Whether they are on the disk of the partial files.
  package let copiesShareDisk: Bool

  /// A store of these parts.
  package init(
    tree: any StoreTree, generations: any StoreGenerations, notes: any StoreNotes, changes: any StoreChanges,
    partials: any PartialFiles, copies: any CompletedCopies, copiesShareDisk: Bool = true
  ) {
    self.tree = tree
    self.generations = generations
    self.notes = notes
    self.changes = changes
    self.partials = partials
    self.copies = copies
    self.copiesShareDisk = copiesShareDisk
  }

  /// How a message names a file of which only its bytes are at hand. Looked up on errors alone.
  func name(of key: ResourceKey, _ generation: Int64) -> String {
    // Where the catalog cannot tell, the number of its partial file has to do.
    (try? tree.entries(of: key))?.first?.path ?? "a file without a name in the list (partial file \(generation))"
  }

  /// The same of an inode.
  func name(of inode: Inode) -> String {
    (try? tree.path(of: inode)) ?? "a file without a name in the list (inode \(inode))"
  }

  /// The store on the disk.
  package init(catalog: Catalog, folder: StoreFolder, library: LibraryFolder) {
    self.init(
      tree: catalog.tree, generations: catalog.generations, notes: catalog.notes, changes: catalog.changes,
      partials: DiskPartials(folder: folder, library: library), copies: library,
      copiesShareDisk: library.sharesDisk(with: folder))
  }
}

extension CatalogTree: StoreTree {}
extension CatalogGenerations: StoreGenerations {}
extension CatalogNotes: StoreNotes {}
extension CatalogChanges: StoreChanges {}
extension LibraryFolder: CompletedCopies {}

/// The partial files of a store's folder, which go to a library.
private struct DiskPartials: PartialFiles {
  let folder: StoreFolder
  let library: LibraryFolder

  func open(_ id: Int64, create: Bool) throws(StoreError) -> any OpenPartialFile {
    DiskPartial(try PartialFile(in: folder, id: id, create: create), library)
  }
  func remove(_ id: Int64) throws(StoreError) -> Int64 {
    let taken = try PartialFile.allocated(of: id, in: folder) ?? 0
    return try PartialFile.remove(id, in: folder) ? taken : 0
  }
  func allocated() throws(StoreError) -> Int64 { try folder.allocated() }
  func space() throws(StoreError) -> StoreSpace { try folder.space() }
}

/// A partial file that knows the library it goes to.
private final class DiskPartial: OpenPartialFile {
  private let file: PartialFile
  private let library: LibraryFolder

  init(_ file: PartialFile, _ library: LibraryFolder) {
    self.file = file
    self.library = library
  }

  var id: Int64 { file.id }
  var fileDescriptor: Int32 { file.fileDescriptor }
  var syncFailure: Errno? { file.syncFailure }
  func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(Errno) { try file.write(bytes, at: offset) }
  func syncData() throws(Errno) { try file.syncData() }
  func dataRanges() throws(Errno) -> ByteRangeSet { try file.dataRanges() }
  func punch(_ range: ByteRange) throws(Errno) { try file.punch(range) }
  func allocated() throws(Errno) -> Int64 { try file.allocated() }
  func isMoved() throws(Errno) -> Bool { try file.isMoved() }
  func place(
    as path: String, size: Int64, modified: Int64?, isCancelled: () -> Bool,
    reserve: (Int64) throws(StoreError) -> Void, recordIntent: (String) throws(StoreError) -> Void
  ) throws(StoreError) -> Placement {
    try library.place(
      file, as: path, size: size, modified: modified, isCancelled: isCancelled, reserve: reserve,
      recordIntent: recordIntent)
  }
}
