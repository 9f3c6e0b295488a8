import Base
import Glibc
import Manifest

extension StoreVerification {
  /// Checks that every byte that the catalog claims of a partial file exists and is readable.
  mutating func verifyPartial(_ generation: GenerationRecord) throws(StoreError) {
    let path = "\(folder.path)/\(StoreFolder.partials)/\(generation.id)"
    let name = try subject(generation, else: path)
    if generation.stored.isEmpty {
      try verifyKind(generation.id, name, path)
      return
    }
    report.partials += 1
    let file: PartialFile
    do throws(StoreError) {
      file = try PartialFile(in: folder, id: generation.id, create: false)
    } catch {
      let isMissing = error.kind == .io(.notFound)
      let repair = try drop(generation.id)
      find(
        isMissing ? .missingBytes : .unusablePartial, name,
        "\(generation.stored.count) bytes are in the catalog, but "
          + (isMissing ? "the partial file \(path) is missing" : error.message),
        repair: try isMissing ? repair : setAside(generation.id, after: repair))
      return
    }
    var kept: ByteRangeSet
    do throws(Errno) {
      kept = generation.stored.intersection(try file.dataRanges())
    } catch {
      throw .file(error, "cannot look at \(path)")
    }
    let absent = generation.stored.count - kept.count
    for range in kept.ranges where !isReadable(file.fileDescriptor, range) { kept.remove(range) }
    let unreadable = generation.stored.count - kept.count - absent
    if absent + unreadable == 0 { return }
    var repair: String?
    if repairs {
      let synced = kept.intersection(generation.synced)
      try catalog.changes.apply([.lost(generation: generation.id, stored: kept, synced: synced)], durably: true)
      repair = "forgotten: mediafs downloads them again when they are read"
    }
    let why = unreadable > 0 ? "\(unreadable) bytes cannot be read from the disk, \(absent)" : "\(absent)"
    find(
      .missingBytes, name, "\(why) of the catalog's \(generation.stored.count) bytes are not in \(path)",
      repair: repair)
  }

  /// If something other than a file has a partial file's name, mediafs cannot store the resource.
  private mutating func verifyKind(_ id: Int64, _ name: String, _ path: String) throws(StoreError) {
    let status = try calling("cannot look at \(path)") { () throws(Errno) in
      try folder.directory.status(of: "\(StoreFolder.partials)/\(id)")
    }
    guard let status, !status.isPlainFile else { return }
    find(.unusablePartial, name, "\(path) is \(status.kindName), no file", repair: try setAside(id, after: nil))
  }

  /// Moves what has a partial file's name out of the way, and deletes nothing.
  private func setAside(_ id: Int64, after done: String?) throws(StoreError) -> String? {
    guard repairs else { return nil }
    let directory = folder.directory.descriptor.rawValue
    var number = 1
    while true {
      let target = number == 1 ? "set-aside-\(id)" : "set-aside-\(id) (\(number))"
      let source = MoveSource(folder: directory, name: "\(StoreFolder.partials)/\(id)")
      let result = try calling("cannot move \(folder.path)/\(source.name) away") { () throws(Errno) in
        try move(source, to: folder.directory, as: target)
      }
      if result == .moved { return (done.map { "\($0); " } ?? "") + "moved to \(folder.path)/\(target)" }
      number += 1
    }
  }

  /// Checks that a copy is the one that mediafs placed and has the manifest's checksum, if there is one.
  mutating func verifyCopy(_ generation: GenerationRecord) throws(StoreError) {
    guard let copy = generation.copy else {
      find(
        .catalog, try subject(generation, else: folder.catalogPath), "is complete in the catalog, without a copy",
        repair: try drop(generation.id))
      return
    }
    report.copies += 1
    let path = "\(libraryPath)/\(copy.path)"
    let name = try subject(generation, else: path)
    guard let library else {
      find(
        .library, name, "the library \(libraryPath) is missing: is its disk mounted?", repair: try drop(generation.id)
      )
      return
    }
    let state: CopyState
    do throws(StoreError) { state = try library.check(copy) } catch {
      find(.library, name, error.message)
      return
    }
    switch state {
    case .missing:
      find(.missingCopy, name, "its copy \(path) was removed", repair: try drop(generation.id))
    case .modified:
      let repair = try drop(generation.id).map { "stays where it is, as your file; \($0)" }
      find(.changedCopy, name, "its copy \(path) was changed", repair: repair)
    case .intact: try verifyBytes(generation, copy, in: library, name: name, path: path)
    }
  }

  private mutating func verifyBytes(
    _ generation: GenerationRecord, _ copy: LibraryCopy, in library: LibraryFolder, name: String, path: String
  ) throws(StoreError) {
    let file: FileDescriptor
    do throws(StoreError) { file = try library.open(copy) } catch {
      find(.library, name, error.message)
      return
    }
    let checksum = try catalog.tree.entries(of: generation.key).compactMap(\.source.checksum).first
    let isRight: Bool
    if let checksum {
      do throws(StoreError) {
        isRight = try Digester.digest(of: file.rawValue, size: copy.size, checksum.algorithm) == checksum.digest
        report.digests += 1
        report.bytes = .clampedSum(report.bytes, copy.size)
      } catch {
        find(.damagedCopy, name, "\(path): \(error.message)", repair: try setAside(copy, of: generation, in: library))
        return
      }
      if !isRight {
        find(
          .damagedCopy, name,
          "\(path) looks unchanged, but its \(checksum.algorithm.rawValue) is not the manifest's: the disk changed it",
          repair: try setAside(copy, of: generation, in: library))
      }
    } else if !isReadable(file.rawValue, ByteRange(0, copy.size)) {
      find(
        .damagedCopy, name, "\(path) cannot be read from the disk",
        repair: try setAside(copy, of: generation, in: library))
    }
  }

  /// Forgets a copy and renames its file, so that a correct copy can take its name.
  private func setAside(
    _ copy: LibraryCopy, of generation: GenerationRecord, in library: LibraryFolder
  ) throws(StoreError) -> String? {
    guard let done = try drop(generation.id) else { return nil }
    let path = try LibraryPath(copy.path)
    guard let folder = try library.existing(path.folders) else { return done }
    var number = 1
    while true {
      let target = numbered("damaged \(path.name)", number)
      let source = MoveSource(folder: folder.descriptor.rawValue, name: path.name)
      let result = try calling("cannot rename the damaged copy \(libraryPath)/\(copy.path)") { () throws(Errno) in
        try move(source, to: folder, as: target)
      }
      if result == .moved { return "\(done); the file is now \(libraryPath)/\(path.sibling(target))" }
      number += 1
    }
  }

  /// Reads a range to its end; false if the file ends earlier or the disk fails.
  private mutating func isReadable(_ file: Int32, _ range: ByteRange) -> Bool {
    let buffer = PieceBuffer()
    var position = range.start
    while position < range.end {
      do throws(StoreError) {
        let count = try buffer.read(file, at: position, limit: range.end).count
        position += Int64(count)
        report.bytes += Int64(count)
      } catch {
        Log.debug("byte \(position): \(error.message)")
        return false
      }
    }
    return true
  }
}
