import Base
import CSystem
import Glibc

/// The space of a filesystem (statvfs(3)), in bytes unless stated otherwise.
package struct StoreSpace: Sendable, Equatable {
  /// The total size.
  package var total: UInt64
  /// Free space, including what is reserved for root.
  package var free: UInt64
  /// Free space for an ordinary user.
  package var available: UInt64

  /// What filesystems give a file at once, in bytes.
  package static let block: Int64 = 4096

  /// Queries the filesystem of an open file.
  static func measure(descriptor: Int32) throws(Errno) -> StoreSpace {
    var status = statvfs()
    _ = try retrying { fstatvfs(descriptor, &status) }
    return StoreSpace(status)
  }

  /// What the filesystem says of itself.
  package init(_ status: statvfs) {
    // f_frsize is the unit of the counts. If a filesystem leaves it 0, f_bsize is the unit.
    let unit = UInt64(status.f_frsize == 0 ? status.f_bsize : status.f_frsize)
    func bytes(_ blocks: UInt64) -> UInt64 {
      // Network filesystems report "no limit" as the largest number.
      let (product, overflow) = blocks.multipliedReportingOverflow(by: unit)
      return overflow ? .max : product
    }
    total = bytes(UInt64(status.f_blocks))
    free = bytes(UInt64(status.f_bfree))
    available = bytes(UInt64(status.f_bavail))
  }
}
