import Base
import Glibc
import Reading
import Sharing
import Storing

/// Gathers a server's numbers. Any thread may ask, and waits for the disk.
final class MetricsSource: Sendable {
  private let fileSystem: MediaFileSystem
  private let catalog: Catalog
  private let folder: StoreFolder
  private let isFirst: Bool
  private let sharing: Lock<MemberReport>?
  private let startedAt = Int64(time(nil))

  /// `isFirst`: whether the mount had no server before this one.
  init(
    fileSystem: MediaFileSystem, catalog: Catalog, folder: StoreFolder, isFirst: Bool,
    sharing: Lock<MemberReport>? = nil
  ) {
    self.fileSystem = fileSystem
    self.catalog = catalog
    self.folder = folder
    self.isFirst = isFirst
    self.sharing = sharing
  }

  /// What is told of the fleet; nil: the mount shares with nobody.
  var share: MemberReport? { sharing?.withLock { $0 } }

  /// The numbers in Prometheus' text format.
  func text() throws(StoreError) -> String {
    MetricsText.make(
      MetricsText.Facts(
        room: fileSystem.metrics(), cache: try catalog.generations.sums(), files: try catalog.tree.counts().files,
        startedAt: startedAt, isFirst: isFirst, residentBytes: Self.residentBytes(),
        freeBytes: try? Int64(clamping: folder.space().available),  // a disk that does not tell has no such line
        share: share))
  }

  /// The second number of /proc/self/statm, in pages; 0 if there is no /proc.
  private static func residentBytes() -> Int64 {
    guard let file = try? FileDescriptor.open("/proc/self/statm", O_RDONLY) else { return 0 }
    return withUnsafeTemporaryAllocation(byteCount: 128, alignment: 1) { buffer in
      guard let count = try? file.read(at: 0, into: buffer) else { return 0 }
      let words = String(decoding: buffer[..<count], as: UTF8.self).split(separator: " ")
      return (words.count > 1 ? Int64(words[1]) ?? 0 : 0) * Int64(sysconf(Int32(_SC_PAGESIZE)))
    }
  }
}
