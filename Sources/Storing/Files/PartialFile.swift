import Base
import CCrypto
import Glibc

/// The stored bytes of one generation: a sparse file `partial/ID` in the store, in which every byte is at its own
/// offset.
///
/// The catalog says which bytes are stored; a hole reads as zeros. Any thread may call, at the same time as others; a
/// call may block on the disk. The descriptor lives as long as the object, also after ``remove()`` and after the file
/// was moved into the library: readers go on with it.
package final class PartialFile: Sendable {
  /// What the syncs so far have shown.
  private struct Syncing {
    var nameIsDurable = false
    var failure: Errno?
  }

  /// The generation's id, and the file's name.
  package let id: Int64
  let folder: StoreFolder
  let descriptor: FileDescriptor
  /// A thread holds it during the call: of two syncs at once, the kernel would report a failed write-back to one and
  /// success to the other. Only threads that sync wait for it.
  private let syncing = Lock(Syncing())

  /// Its path below the store's folder.
  var name: String { PartialFile.name(of: id) }
  private static func name(of id: Int64) -> String { "\(StoreFolder.partials)/\(id)" }

  /// The open descriptor, to be read with pread(2) by whoever keeps this object.
  package var fileDescriptor: Int32 { descriptor.rawValue }

  /// Opens the file of generation `id`. When it is missing, it is created if `create` is true; else the call throws
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
    // The folder may have been removed by hand since the store was opened.
    _ = try folder.directory.makeFolder(StoreFolder.partials, mode: 0o700)
    return try folder.directory.file(name, O_RDWR | O_CREAT)
  }

  /// pwrite(2) of all bytes. When it throws, some of them may be written: the caller counts none as stored.
  package func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(Errno) {
    try descriptor.writeFully(bytes, at: offset)
  }

  /// fdatasync(2); and, the first time, fsync(2) of the folder, or a power loss could take the name (also that of a
  /// file which a killed server made).
  ///
  /// Once it failed, each later call throws the same: the kernel reports a failed write-back once and may drop the
  /// pages, so a second try that succeeds proves nothing. The caller counts nothing as stored that was written since
  /// the last success, and opens the file anew.
  package func syncData() throws(Errno) {
    try sync { (descriptor) throws(Errno) in try descriptor.syncData() }
  }

  /// fsync(2), under the same rules: the attributes are on the disk, too.
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

  /// Why a sync failed; nil while none has.
  package var syncFailure: Errno? { syncing.withLock { $0.failure } }

  /// Removes the name; whoever reads goes on. Nothing happens when there is none (it may be in the library by now).
  package func remove() throws(Errno) { try folder.directory.remove(name) }

  /// Removes the file of generation `id`, which nobody has open. False when there was none.
  @discardableResult
  package static func remove(_ id: Int64, in folder: StoreFolder) throws(StoreError) -> Bool {
    do throws(Errno) {
      return try folder.directory.remove(name(of: id))
    } catch {
      throw .file(error, "cannot remove the partial file \(folder.path)/\(name(of: id))")
    }
  }

  /// Where the filesystem keeps data for it (lseek(2), SEEK_DATA and SEEK_HOLE), in whole blocks: what the catalog
  /// claims beyond that is not there. A filesystem without holes calls all of it data; one that stores zeros as holes
  /// (ZFS when it compresses) also calls stored zeros a hole, so that they would be fetched again: wasteful, never
  /// wrong.
  package func dataRanges() throws(Errno) -> ByteRangeSet {
    var found = ByteRangeSet()
    var position: Int64 = 0
    while true {
      do throws(Errno) {
        let start = try retrying { storing_seek_data(descriptor.rawValue, position) }
        let end = try retrying { storing_seek_hole(descriptor.rawValue, start) }
        guard start >= position, end > start else { return found }  // it was cut meanwhile
        found.insert(ByteRange(start, end))
        position = end
      } catch {
        if error.rawValue == ENXIO { return found }  // no data behind `position`
        throw error
      }
    }
  }
}
