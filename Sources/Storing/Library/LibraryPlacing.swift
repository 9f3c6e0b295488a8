import Base
import CSystem
import Glibc

/// Where a completed file was placed.
package struct Placement: Sendable, Equatable {
  /// The copy, as it is now.
  package var copy: LibraryCopy
  /// Whether the copy is an identical file that was already there.
  package var adopted: Bool
}

// Placing, step by step. A crash after any of them leaves either the partial file or the copy, and a note of the copy's
// path:
//
//   1  the partial file gets the copy's mode and mtime, and is synced
//   2  if the name is taken: by the file itself (a crash in step 4), do step 3 and go on with 5; by identical bytes,
//      adopt that file; by anything else, try the next number
//   3  the caller notes the path durably (the intent)
//   4  a rename that cannot replace; from another filesystem, first a synced copy in a hidden folder of the library
//   5  both folders are synced; the copy's attributes are read, so that the catalog recognizes it later
//
// The caller commits the copy and then removes the partial file, which still exists after an adoption or a copy.

extension LibraryFolder {
  /// Places a complete, verified and synced partial file at `relativePath`, and replaces nothing.
  ///
  /// If an identical file is there, it is adopted. If anything else is there, the copy is named ` (2)`, ` (3)`.
  /// `modified` (seconds since 1970) becomes its mtime. `recordIntent` gets the path before each attempt and must make
  /// it durable; `reserve` gets the bytes of a copy on another filesystem, before it is made. If one of them throws,
  /// nothing is placed. Afterwards the caller commits the copy and calls
  /// ``PartialFile/remove()``.
  ///
  /// Throws `.full` if the library's disk is full; `.invalid` if the path is not possible (something else is where a
  /// folder must be, or the filesystem rejects the name); `.corrupt` if the partial file does not have that size; and
  /// `.io` otherwise (ECANCELED if `isCancelled`, called between pieces of long work, returned true). After an error
  /// the intent stays: call ``recover(intent:size:modified:partialExists:)`` before placing again.
  package func place(
    _ partial: PartialFile, as relativePath: String, size: Int64, modified: Int64?,
    isCancelled: () -> Bool = { false }, reserve: (Int64) throws(StoreError) -> Void = { _ in },
    recordIntent: (String) throws(StoreError) -> Void
  ) throws(StoreError) -> Placement {
    try Placing(library: self, partial: partial, wanted: LibraryPath(relativePath), size: size, modified: modified)
      .run(isCancelled, reserve, recordIntent)
  }

  /// After a crash between intent and commit: the copy at the noted path, if it is the file that was being placed.
  ///
  /// `partialExists` says whether the partial file still exists. If so, the result is nil, because the rename did not
  /// happen (or mediafs copied the file): place it again, which finds and adopts what is already there. If not, the
  /// rename moved it. Then a regular file at the path is the copy if it has that size and, if `modified` was given to
  /// ``place(_:as:size:modified:isCancelled:recordIntent:)``, that mtime. If the caller has a checksum, it should
  /// compare that too.
  package func recover(
    intent path: String, size: Int64, modified: Int64?, partialExists: Bool
  ) throws(StoreError) -> LibraryCopy? {
    if partialExists { return nil }
    let name = try LibraryPath(path)
    guard let folder = try existing(name.folders) else { return nil }
    return try calling("cannot look at \(self.path)/\(path)") { () throws(Errno) in
      guard let seen = try folder.status(of: name.name), seen.isPlainFile, Int64(seen.st_size) == size else {
        return nil
      }
      // FAT stores even seconds only.
      if let modified, (Int64(seen.st_mtim.tv_sec) &- modified).magnitude > 1 { return nil }
      let file = try folder.file(name.name, O_RDONLY)
      try file.sync()
      try folder.sync()
      return LibraryCopy(at: path, try file.status())
    }
  }
}

/// A file that is being placed in the library.
struct Placing {
  let library: LibraryFolder
  let partial: PartialFile
  let wanted: LibraryPath
  let size: Int64
  let modified: Int64?

  func run(
    _ isCancelled: () -> Bool, _ reserve: (Int64) throws(StoreError) -> Void,
    _ recordIntent: (String) throws(StoreError) -> Void
  ) throws(StoreError) -> Placement {
    let target = try library.reach(wanted.folders)
    try prepare(partial.descriptor)
    try calling("cannot sync the partial file of “\(wanted.path)”") { () throws(Errno) in try partial.syncAll() }

    var source = MoveSource(folder: partial.folder.directory.descriptor.rawValue, name: partial.name)
    var incoming: IncomingCopy?
    defer { incoming?.remove() }
    var number = 1
    // Each round takes the next number, or finds that another program was faster; that must end.
    for _ in 0..<10_000 {
      let name = numbered(wanted.name, number)
      let path = wanted.sibling(name)
      switch try occupant(of: name, in: target, path: path, isCancelled) {
      case .other:
        number += 1
        continue
      case .identical(let copy):
        return Placement(copy: copy, adopted: true)
      case .ourOwn:
        try recordIntent(path)
        try calling("cannot remove the partial file of “\(path)”") { () throws(Errno) in try partial.remove() }
        return Placement(copy: try settle(target, path, nil), adopted: false)
      case .nothing: break
      }
      try recordIntent(path)
      switch try attempt(source, to: target, as: name, path: path) {
      case .exists: continue  // the next round checks it
      case .moved:
        return Placement(copy: try settle(target, path, incoming), adopted: false)
      case .otherFilesystem:
        guard incoming == nil else {
          throw StoreError(
            kind: .invalid,
            message:
              "\(library.path)/\(path) is not on the library's filesystem: choose a library on a single filesystem"
          )
        }
        try reserve(size)
        let copy = try IncomingCopy(for: partial, in: library)
        incoming = copy
        try copy.fill(from: partial, size: size, isCancelled: isCancelled)
        try prepare(copy.descriptor)
        try calling("cannot sync the copy of “\(wanted.path)”") { () throws(Errno) in try copy.descriptor.sync() }
        source = MoveSource(folder: copy.folder.descriptor.rawValue, name: copy.name)
      }
    }
    throw StoreError(
      kind: .invalid, message: "\(library.path)/\(wanted.path) and every numbered name beside it are taken")
  }

  /// Gives a file the copy's mode and mtime, without a sync. Throws `.corrupt` if it does not have `size` bytes.
  private func prepare(_ file: borrowing FileDescriptor) throws(StoreError) {
    let name = wanted.path
    let found = try calling("cannot look at the partial file of “\(name)”") { () throws(Errno) in
      Int64(try file.status().st_size)
    }
    guard found == size else {
      throw StoreError(kind: .corrupt, message: "the partial file of “\(name)” has \(found) bytes, not \(size)")
    }
    try calling("cannot prepare “\(name)” for the library") { () throws(Errno) in
      try setting("mode", of: name) { fchmod(file.rawValue, library.fileMode) }
      if let modified {
        let times = [timespec(tv_sec: 0, tv_nsec: omittedTime), timespec(tv_sec: Int(modified), tv_nsec: 0)]
        try setting("mtime", of: name) { futimens(file.rawValue, times) }
      }
    }
  }

  /// A filesystem without such attributes (FAT, some network ones) returns an error; the copy then does without.
  private func setting(_ attribute: String, of name: String, _ call: () -> Int32) throws(Errno) {
    do throws(Errno) {
      _ = try retrying(call)
    } catch {
      guard [EPERM, EOPNOTSUPP, ENOSYS].contains(error.rawValue) else { throw error }
      Log.warning("the library's filesystem rejects the \(attribute) of “\(name)”: \(error)")
    }
  }

  private func attempt(
    _ source: MoveSource, to target: borrowing Folder, as name: String, path: String
  ) throws(StoreError) -> MoveResult {
    do throws(Errno) {
      return try move(source, to: target, as: name)
    } catch {
      if error == .invalid || error.rawValue == ENAMETOOLONG || error.rawValue == EILSEQ {
        throw StoreError(kind: .invalid, message: "the library's filesystem rejects the name “\(path)”: \(error)")
      }
      throw .file(error, "cannot place “\(path)” in the library \(library.path)")
    }
  }

  /// Syncs the folders of a file that was renamed to `path`, and returns the copy there.
  private func settle(_ target: borrowing Folder, _ path: String, _ incoming: IncomingCopy?) throws(StoreError)
    -> LibraryCopy
  {
    try calling("cannot sync \(library.path)/\(path)") { () throws(Errno) in
      try target.sync()
      guard let incoming else {
        try partial.folder.syncPartials()
        return LibraryCopy(at: path, try partial.descriptor.status())
      }
      try incoming.folder.sync()
      return LibraryCopy(at: path, try incoming.descriptor.status())
    }
  }
}

/// UTIME_OMIT (linux/stat.h) leaves that time as it is. Swift's Glibc module does not offer this macro.
private let omittedTime = (1 << 30) - 2
