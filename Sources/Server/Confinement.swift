import Base
import CSystem
import Glibc

/// Restricts the server of a mount that root made for another user to the files that it needs, by the kernel's Landlock
/// (docs/decisions/0017-landlock.md).
enum Confinement {
  /// Version 1 (before Linux 5.19) lets nobody move a file from one folder to another, as a completed one is.
  static let leastVersion: Int32 = 2

  /// What code in a process of the user's could bring about.
  private static let lacks = [EMFILE, ENFILE, ENOMEM]

  /// Restricts this process, which must not have a second thread yet. Returns what the log is to say. A kernel that
  /// cannot do it, or a sandbox that forbids it, is no reason not to mount. A lack of descriptors or memory is one:
  /// code in a process of the user's could bring it about.
  static func begin(_ places: ServerPlaces) throws(ServerError) -> String {
    let version = csystem_landlock_version()
    let error = Errno.current
    if version >= 0, version < leastVersion {
      return unrestricted("version \(version), and \(leastVersion) is needed")
    }
    do throws(Errno) {
      if version < 0 { throw error }
      try restrict(to: places, version)
    } catch {
      if [ENOSYS, EOPNOTSUPP, EPERM].contains(error.rawValue) { return unrestricted("\(error)") }
      throw .failed("cannot restrict the server to the files that it needs (Landlock): \(error)")
    }
    // SQLite's temporary files; it would take /var/tmp or /tmp.
    setenv("SQLITE_TMPDIR", places.store, 1)
    return "the server has only the files that it needs (Landlock, version \(version))"
  }

  private static func restrict(to places: ServerPlaces, _ version: Int32) throws(Errno) {
    let rules = FileDescriptor(owning: try retrying { csystem_landlock_begin(version) })
    for (paths, writes) in [(places.written, true), (places.read, false)] {
      for path in paths {
        do throws(Errno) {
          let place = FileDescriptor(owning: try retrying { csystem_open_place(path) })
          _ = try retrying { csystem_landlock_allow(rules.rawValue, version, place.rawValue, writes ? 1 : 0) }
        } catch  where error == .notFound || (!writes && !Self.lacks.contains(error.rawValue)) {
          continue  // it has just been removed, or its filesystem does not answer
        }
      }
    }
    _ = try retrying { csystem_landlock_end(rules.rawValue) }
  }

  private static func unrestricted(_ why: String) -> String {
    "the server has all files that its user has: the kernel restricts nothing (Landlock: \(why))"
  }
}
