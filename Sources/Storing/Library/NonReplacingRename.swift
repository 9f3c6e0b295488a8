import Base
import CSystem
import Glibc

/// The source of a move: a name in an open folder, which must stay open meanwhile.
struct MoveSource {
  var folder: Int32
  var name: String
}

/// The result of a move.
enum MoveResult {
  /// The file has only its new name.
  case moved
  /// The new name is taken; nothing changed.
  case exists
  /// The two names are on different filesystems; nothing changed.
  case otherFilesystem
}

/// The methods to move a file without replacing another one, best first.
enum MoveMethod: CaseIterable {
  /// renameat2(2) with RENAME_NOREPLACE: one step. Not on NFS, nor on many FUSE filesystems.
  case rename
  /// linkat(2), which never replaces, then unlinkat(2). Between the two calls the file has both names.
  case link
  /// O_EXCL creates an empty file with the name. After a last check that it is still there and empty, a rename replaces
  /// it. For filesystems without links.
  case placeholder
}

/// Moves a file to `name` in `folder` with the first method that the filesystem supports.
func move(_ source: MoveSource, to folder: borrowing Folder, as name: String) throws(Errno) -> MoveResult {
  for method in MoveMethod.allCases {
    if let result = try move(source, to: folder, as: name, by: method) { return result }
  }
  throw Errno(rawValue: EOPNOTSUPP)
}

/// Moves a file with that method; nil if the filesystem does not support it and nothing changed.
func move(
  _ source: MoveSource, to folder: borrowing Folder, as name: String, by method: MoveMethod
) throws(Errno) -> MoveResult? {
  do throws(Errno) {
    switch method {
    case .rename:
      _ = try retrying { csystem_rename_noreplace(source.folder, source.name, folder.descriptor.rawValue, name) }
    case .link:
      _ = try retrying { linkat(source.folder, source.name, folder.descriptor.rawValue, name, 0) }
      _ = try retrying { unlinkat(source.folder, source.name, 0) }
    case .placeholder:
      return try moveOverPlaceholder(source, to: folder, as: name)
    }
    return .moved
  } catch {
    switch error.rawValue {
    case EEXIST: return .exists
    case EXDEV: return .otherFilesystem
    // EINVAL is also how FAT rejects a character; the last method then reports it.
    case EINVAL, ENOSYS, EOPNOTSUPP, EPERM, EMLINK:
      if method == .placeholder { throw error }
      return nil
    default: throw error
    }
  }
}

private func moveOverPlaceholder(
  _ source: MoveSource, to folder: borrowing Folder, as name: String
) throws(Errno) -> MoveResult {
  var status = stat()
  _ = try retrying { fstatat(source.folder, source.name, &status, AT_SYMLINK_NOFOLLOW) }
  // Checked before the name is taken: a rename that must fail would leave it taken for a moment.
  if try folder.descriptor.status().st_dev != status.st_dev { return .otherFilesystem }
  let placeholder = try folder.file(name, O_WRONLY | O_CREAT | O_EXCL).status()
  guard let now = try folder.status(of: name), now.isSame(as: placeholder), now.st_size == 0 else { return .exists }
  do throws(Errno) {
    _ = try retrying { renameat(source.folder, source.name, folder.descriptor.rawValue, name) }
  } catch {
    try folder.remove(name)
    throw error
  }
  return .moved
}
