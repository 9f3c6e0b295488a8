import Base
import CSQLite

extension StoreError {
  /// The initializer without labels, because there are many calls.
  init(_ kind: Kind, _ message: String) { self.init(kind: kind, message: message) }

  /// What SQLite's `code` means for the store. `doing` and `path` say what failed and where. `detail` is SQLite's
  /// message.
  static func sqlite(_ code: Int32, doing: String, path: String, detail: String, system: Int32) -> StoreError {
    let what = "catalog \(path): \(doing): \(detail)"
    switch code & 0xff {
    case SQLITE_CORRUPT, SQLITE_NOTADB:
      return damaged(path, "\(doing): \(detail)")
    case SQLITE_FULL:
      return StoreError(.full, "\(what); free space on its disk")
    case SQLITE_BUSY, SQLITE_LOCKED:
      return StoreError(.busy(holder: "another program"), "\(what); another program has it open")
    case SQLITE_NOMEM:
      return StoreError(.io(Errno(rawValue: 12)), what)  // ENOMEM
    default:
      let reason = Errno(rawValue: system)
      if reason.isFullDisk {
        return StoreError(.full, "\(what): \(reason); free space on its disk")
      }
      if system != 0 { return StoreError(.io(reason), "\(what): \(reason)") }
      let refused = [SQLITE_READONLY, SQLITE_PERM, SQLITE_AUTH].contains(code & 0xff)
      return StoreError(.io(refused ? .accessDenied : .io), what)
    }
  }

  /// The catalog is unusable as it is; the message tells the user what to do.
  static func damaged(_ path: String, _ detail: String) -> StoreError {
    StoreError(
      .corrupt,
      "catalog \(path) is damaged (\(detail)); move it away and mount again: mediafs creates a new one; copies in the"
        + " library stay, and mediafs downloads partly stored files again")
  }
}
