import Base
import CCrypto
import Glibc

/// The stored bytes of one generation: a sparse file `partial/ID` in the store. Every byte is at its own offset.
///
/// The catalog says which bytes are stored; a hole reads as zeros. Several threads may call it at the same time. A call
/// may block on the disk. The descriptor lives as long as the object, also after ``remove()`` and after mediafs moved
/// the file into the library: readers continue to use it.
package final class PartialFile: Sendable {
  /// The results of the syncs so far.
  private struct Syncing {
    var nameIsDurable = false
    var failure: Errno?
  }

  /// The generation's id, which is also the file's name.
  package let id: Int64
  let folder: StoreFolder
  let descriptor: FileDescriptor
  /// A thread holds it during a sync. If two syncs ran at once, the kernel would report a failed write-back to one and
  /// success to the other. Only threads that sync wait for it.
  private let syncing = Lock(Syncing())

  /// Its path relative to the store's folder.
  var name: String { PartialFile.name(of: id) }
  private static func name(of id: Int64) -> String { "\(StoreFolder.partials)/\(id)" }

  /// The open descriptor, for pread(2) by code that keeps this object.
  package var fileDescriptor: Int32 { descriptor.rawValue }

  /// Opens the file of generation `id`. If it is missing, creates it if `create` is true; otherwise throws
  /// `.io(.notFound)`.
  package init(in folder: StoreFolder, id: Int64, create: Bool) throws(StoreError) {
    self.id = id
    self.folder = folder
    let status: stat
    do throws(Errno) {
      descriptor = try PartialFile.open(PartialFile.name(of: id), in: folder, create: create)
      status = try descriptor.status()
    } catch {
      throw .file(error, "cannot open the partial file \(folder.path)/\(PartialFile.name(of: id))")
    }
    guard status.isPlainFile else {
      throw StoreError(
        kind: .corrupt, message: "\(folder.path)/\(PartialFile.name(of: id)) is \(status.kindName), no file: remove it")
    }
  }

  private static func open(
    _ name: String, in folder: StoreFolder, create: Bool
  ) throws(Errno) -> FileDescriptor {
    do throws(Errno) {
      return try folder.directory.file(name, O_RDWR)
    } catch {
      guard create, error == .notFound else { throw error }
    }
    // The user may have removed the folder since mediafs opened the store.
    _ = try folder.directory.makeFolder(StoreFolder.partials, mode: 0o700)
    return try folder.directory.file(name, O_RDWR | O_CREAT)
  }

  /// pwrite(2) of all bytes. If it throws, some may be written, and the caller must count none as stored.
  package func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(Errno) {
    try descriptor.writeFully(bytes, at: offset)
  }

  /// fdatasync(2). The first sync also calls fsync(2) on the folder: otherwise a power loss could take the name (also
  /// that of a file which a killed server created).
  ///
  /// After one failure every later call throws the same error. The kernel reports a failed write-back only once and may
  /// drop the pages, so a later success proves nothing. The caller must count no byte as stored that was written since
  /// the last success, and must open the file again.
  package func syncData() throws(Errno) {
    try sync { (descriptor) throws(Errno) in try descriptor.syncData() }
  }

  /// fsync(2), with the same rules: it syncs the attributes, too.
  func syncAll() throws(Errno) {
    try sync { (descriptor) throws(Errno) in try descriptor.sync() }
  }

  private func sync(_ call: (borrowing FileDescriptor) throws(Errno) -> Void) throws(Errno) {
    try syncing.withLock { (syncing) throws(Errno) in
      if let failure = syncing.failure { throw failure }
      do throws(Errno) {
        try call(descriptor)
        if !syncing.nameIsDurable { try folder.syncPartials() }
      } catch {
        syncing.failure = error
        throw error
      }
      syncing.nameIsDurable = true
    }
  }

  /// Why a sync failed; nil if none has.
  package var syncFailure: Errno? { syncing.withLock { $0.failure } }

  /// Removes the name. Readers that have the file open keep reading. Does nothing if there is no name (the file may be
  /// in the library by now).
  package func remove() throws(Errno) { try folder.directory.remove(name) }

  /// Removes the file of generation `id`, which nobody has open. False if there was none.
  @discardableResult
  package static func remove(_ id: Int64, in folder: StoreFolder) throws(StoreError) -> Bool {
    do throws(Errno) {
      return try folder.directory.remove(name(of: id))
    } catch {
      throw .file(error, "cannot remove the partial file \(folder.path)/\(name(of: id))")
    }
  }

  /// Whether mediafs moved the file into the library, where it is the user's: it has a name beside the one in the
  /// store, or in its place.
  package func isMoved() throws(Errno) -> Bool {
    let own = try descriptor.status()
    if own.st_nlink != 1 { return own.st_nlink > 1 }
    guard let named = try folder.directory.status(of: name) else { return true }
    return !named.isSame(as: own)
  }

  /// Gives the space of whole blocks back: they read as zeros from then on (fallocate(2), PUNCH_HOLE). Throws
  /// EOPNOTSUPP where the filesystem cannot, and ESTALE if the file was moved into the library.
  package func punch(_ range: ByteRange) throws(Errno) {
    if try isMoved() { throw .stale }
    _ = try retrying { storing_punch_hole(descriptor.rawValue, range.start, range.count) }
  }

  /// Up to where it was written to.
  func length() throws(Errno) -> Int64 { Int64(try descriptor.status().st_size) }

  /// The space that it takes on the disk, in bytes.
  package func allocated() throws(Errno) -> Int64 { Int64(try descriptor.status().st_blocks) * 512 }

  /// The space that the file of generation `id` takes on the disk, in bytes; nil if there is none.
  package static func allocated(of id: Int64, in folder: StoreFolder) throws(StoreError) -> Int64? {
    do throws(Errno) {
      return try folder.directory.status(of: name(of: id)).map { Int64($0.st_blocks) * 512 }
    } catch {
      throw .file(error, "cannot look at the partial file \(folder.path)/\(PartialFile.name(of: id))")
    }
  }

  /// The whole blocks for which the filesystem has data (lseek(2), SEEK_DATA and SEEK_HOLE). What the catalog claims
  /// beyond that is lost. A filesystem without holes reports everything as data. One that stores zeros as holes (ZFS
  /// with compression) reports stored zeros as a hole, so mediafs downloads them again: wasteful, but never wrong.
  package func dataRanges() throws(Errno) -> ByteRangeSet {
    var found = ByteRangeSet()
    var position: Int64 = 0
    while true {
      do throws(Errno) {
        let start = try retrying { storing_seek_data(descriptor.rawValue, position) }
        let end = try retrying { storing_seek_hole(descriptor.rawValue, start) }
        guard start >= position, end > start else { return found }  // another program truncated it meanwhile
        found.insert(ByteRange(start, end))
        position = end
      } catch {
        if error.rawValue == ENXIO { return found }  // no data after `position`
        throw error
      }
    }
  }
}
