import Base
import Control
import Fetching
import Glibc
import Manifest
import Reading
import Storing
import Testing

@testable import Server

/// Calls `body` with what answers the control socket of a running file system over a store. No kernel and no helper is
/// there.
func withService(
  of catalog: Catalog, _ folder: StoreFolder, _ library: LibraryFolder, _ body: (ControlService) throws -> Void
) throws {
  let store = StoreAccess(catalog: catalog, folder: folder, library: library)
  let loop = try TransferLoop(options: TransferOptions())
  let system = try MediaFileSystem(store: store, options: ReadingOptions(), wake: { loop.wake() })
  system.start()
  try loop.run { system.makeClient(port: NoKernel(), service: $0) }
  defer {
    system.beginEnding()
    loop.stop()
    system.stop()
  }
  system.commit()  // waits for the keeper's first jobs, which read the catalog: tests count its statements
  let handover = Handover(HelperLink(owning: dup(STDIN_FILENO)), failedUpgrade: nil) {}  // no helper
  try body(
    ControlService(
      fileSystem: system, catalog: catalog, library: library,
      settings: SettingService(
        request: MountRequest(mountpoint: "/m", manifest: "/l"), maximumSize: .max, catalog: catalog),
      handover: handover,
      facts: MountFacts(store: folder.path, library: library.path, list: nil, log: nil),
      numbers: MetricsSource(fileSystem: system, catalog: catalog, folder: folder, isFirst: true),
      events: EventHub(),
      list: try ListKeeper(
        MountRequest(mountpoint: "/m", manifest: "-"), helper: nil, imported: nil, catalog,
        TreeUpdate(prepare: { _ in }, announce: { _ in }, forget: { _ in }, settle: {}))
    ) {})
}

/// A kernel that has asked for nothing.
private final class NoKernel: ReplyPort {
  func reply(_ ticket: Ticket, data: UnsafeRawBufferPointer) { Issue.record("\(ticket) is no request") }
  func reply(_ ticket: Ticket, attributes: Attributes) { Issue.record("\(ticket) is no request") }
  func reply(_ ticket: Ticket, opened mode: OpenMode, inode: Inode) -> Bool {
    Issue.record("\(ticket) is no request")
    return false
  }
  func reply(_ ticket: Ticket, error: Errno) { Issue.record("\(ticket) is no request") }
  func invalidate(parent: Inode, name: String, isChanged: Bool) {}
  func forgetPages(of inode: Inode, _ range: ByteRange) {}
}
