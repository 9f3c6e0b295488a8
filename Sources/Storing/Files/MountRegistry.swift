import Base
import CSystem
import Glibc

/// The record of one mount. It contains no secrets.
package struct MountRecord: Sendable, Equatable {
  /// The mountpoint, as ``MountpointName/absolute(_:)`` returns it.
  package var mountpoint: String
  /// Its store's absolute path.
  package var store: String
  /// Its library's absolute path.
  package var library: String
  /// Its manifest's absolute path; `-` if it came from standard input.
  package var manifest: String
  /// Another user, of whose live mount root knows only what the running server tells; nil for the caller's own.
  package var owner: uid_t?

  /// A mount at that mountpoint, with that store, library and manifest.
  package init(mountpoint: String, store: String, library: String, manifest: String, owner: uid_t? = nil) {
    self.owner = owner
    self.mountpoint = mountpoint
    self.store = store
    self.library = library
    self.manifest = manifest
  }
}

/// The records of a user's mounts. With them, mediafs finds the store of a mountpoint when no server runs.
///
/// Each mountpoint has one file in the folder `mounts` beside the stores
/// (``StoreFolder/defaultPath(mountpoint:environment:uid:)``). The file has mode 0600 and is always replaced as a
/// whole. Several processes may use the registry at the same time.
package struct MountRegistry: Sendable {
  private static let kind = "mount"
  private static let version = 1
  /// mediafs writes to the first folder and searches all of them.
  private let folders: [String]

  /// The folder that ``remember(_:)`` writes to.
  package var writableFolder: String { folders[0] }

  /// The registry of a user. Throws `.invalid` if the user has no home and is not root.
  package init(environment: [String: String], uid: uid_t) throws(StoreError) {
    folders = DataFolders.all(environment: environment, uid: uid).map { $0 + "/mounts" }
    if folders.isEmpty {
      throw StoreError(kind: .invalid, message: "there is no folder for the records of mounts: HOME is not set")
    }
  }

  /// Records a mount, durably. It replaces the record of the same mountpoint.
  package func remember(_ record: MountRecord) throws(StoreError) {
    let mountpoint = MountpointName.absolute(record.mountpoint)
    let text = KeyValueText.encode(
      kind: MountRegistry.kind, version: MountRegistry.version,
      fields: [
        ("mountpoint", mountpoint), ("store", record.store), ("library", record.library), ("manifest", record.manifest),
      ])
    let name = try MountpointName.fileName(for: mountpoint)
    do throws(Errno) {
      try Folder.makeAll(folders[0], mode: 0o700)
      let folder = try Folder.open(folders[0])
      let temporary = ".\(name).\(getpid())"
      try folder.remove(temporary)  // left by a killed process with our id
      try MountRegistry.write(text, as: temporary, in: folder)
      _ = try retrying { renameat(folder.descriptor.rawValue, temporary, folder.descriptor.rawValue, name) }
      try folder.sync()
    } catch {
      throw .file(error, "cannot record the mount of \(mountpoint) in \(folders[0])")
    }
  }

  private static func write(_ text: String, as name: String, in folder: borrowing Folder) throws(Errno) {
    let file = try folder.file(name, O_WRONLY | O_CREAT | O_EXCL)
    var text = text
    let failure: Errno? = text.withUTF8 { bytes in
      do throws(Errno) {
        try file.writeFully(UnsafeRawBufferPointer(bytes), at: 0)
        try file.sync()
        return nil
      } catch {
        return error
      }
    }
    guard let failure else { return }
    try folder.remove(name)
    throw failure
  }

  /// All records, by mountpoint. Skips a file that it cannot decode, with a warning in the log.
  package func all() throws(StoreError) -> [MountRecord] {
    var records: [[UInt8]: MountRecord] = [:]  // by bytes: names that differ only in normalization are different
    for path in folders {
      let names: [String]
      do throws(Errno) {
        names = try Folder.open(path).names()
      } catch {
        if error == .notFound { continue }
        throw .file(error, "cannot list the records of mounts in \(path)")
      }
      for name in names.sorted() where !name.hasPrefix(".") {
        do throws(StoreError) {
          guard let record = try MountRegistry.read(name, in: path) else { continue }
          let name = Array(record.mountpoint.utf8)
          if records[name] == nil { records[name] = record }
        } catch {
          Log.warning(error.message)
        }
      }
    }
    return records.values.sorted { $0.mountpoint < $1.mountpoint }
  }

  /// Removes the record of a mount; does nothing if there is none.
  package func forget(mountpoint: String) throws(StoreError) {
    let name = try MountpointName.fileName(for: MountpointName.absolute(mountpoint))
    for path in folders {
      do throws(Errno) {
        let folder = try Folder.open(path)
        if try folder.remove(name) { try folder.sync() }
      } catch {
        if error == .notFound { continue }
        throw .file(error, "cannot remove the record of the mount of \(mountpoint) in \(path)")
      }
    }
  }

  /// Removes the records of mounts whose store and mountpoint no longer exist: they are of no interest. Only what the
  /// kernel says is not there counts. `mayHang`: whether a path leads to a filesystem whose server may hang, which is
  /// asked for nothing then.
  package func forgetVanished(unless mayHang: (String) -> Bool) throws(StoreError) {
    for record in try all() where ![record.store, record.mountpoint].contains(where: mayHang) {
      guard Self.isGone(record.store), Self.isGone(record.mountpoint) else { continue }
      try forget(mountpoint: record.mountpoint)
    }
  }

  private static func isGone(_ path: String) -> Bool {
    access(path, F_OK) != 0 && Errno.current == .notFound
  }

  private static func read(_ name: String, in path: String) throws(StoreError) -> MountRecord? {
    let text: String
    do throws(Errno) {
      let file = try Folder.open(path).file(name, O_RDONLY)
      guard try file.status().isPlainFile else { return nil }
      text = try smallText(of: file, limit: 64 << 10)  // four paths of 4096 bytes, every one of them escaped
    } catch {
      if error == .notFound || error == .notDirectory { return nil }
      throw .file(error, "cannot read the mount record \(path)/\(name)")
    }
    switch KeyValueText.decode(text, kind: kind, version: version) {
    case .unknownVersion(let found):
      throw StoreError(
        kind: .newer,
        message: "\(path)/\(name) has version \(found), and this mediafs knows version \(version): use a newer one")
    case .damaged:
      throw StoreError(kind: .corrupt, message: "\(path)/\(name) is damaged: remove it and mount again")
    case .fields(let fields):
      guard let mountpoint = fields["mountpoint"], let store = fields["store"], let library = fields["library"],
        let manifest = fields["manifest"],
        [mountpoint, store, library].allSatisfy({ isAbsolutePath($0) && !$0.utf8.contains(0) })
      else { throw StoreError(kind: .corrupt, message: "\(path)/\(name) is incomplete: remove it and mount again") }
      return MountRecord(mountpoint: mountpoint, store: store, library: library, manifest: manifest)
    }
  }
}
