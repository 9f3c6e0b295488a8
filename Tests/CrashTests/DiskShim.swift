import Base
import Glibc
import TestSupport

/// The test's end of Tests/DiskShim: what a server's operations on its store do, and what they have done.
///
/// Any thread may call: every field is a word of shared memory that the server's threads change by atomic steps, and
/// the test reads them when the server is dead, or sets them one at a time.
final class DiskShim: @unchecked Sendable {
  // @unchecked: `page` never changes; what it leads to is shared with another process anyway.

  /// What an operation is done to: enum disk_kind.
  enum Kind: Int, CaseIterable, Sendable {
    case partial, log, database, rename, sync, unlink, other, read
  }

  /// When an operation kills its process: enum disk_phase.
  enum Phase: Int64, CaseIterable, Sendable {
    case before, half, after
  }

  private let page: UnsafeMutablePointer<Int64>
  private let control: String
  private let store: String
  /// Where changes are recorded, nil when they are not.
  var record: String?
  /// A file with the boot id that the server is to see, nil for the machine's.
  var bootID: String?

  // The fields' places, in words: struct disk_control.
  private static let done = Kind.allCases.count
  private static let killKind = 2 * Kind.allCases.count
  private static let words = 2 * Kind.allCases.count + 12

  /// The control page in `folder`, for the store at `store`.
  init(in folder: TemporaryFolder, store: String) throws {
    control = try folder.write([UInt8](repeating: 0, count: 4096), to: "disk-control")
    self.store = store
    let file = try FileDescriptor.open(control, O_RDWR)
    guard let memory = mmap(nil, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.rawValue, 0), memory != MAP_FAILED
    else { throw Errno.current }
    page = memory.bindMemory(to: Int64.self, capacity: Self.words)
    clear()
  }

  deinit { munmap(page, 4096) }

  /// What a server must have in its environment.
  var environment: [String: String?] {
    var variables: [String: String?] = [
      "LD_PRELOAD": builtProduct("libdisk-shim.so"), "MEDIAFS_DISK_CONTROL": control, "MEDIAFS_DISK_STORE": store,
    ]
    variables["MEDIAFS_DISK_RECORD"] = record
    variables["MEDIAFS_DISK_BOOT"] = bootID
    return variables
  }

  /// Nothing kills, nothing fails, nothing is counted.
  func clear() {
    for index in 0..<Self.words { page[index] = 0 }
    page[Self.killKind] = -1
  }

  /// Kills the server in its operation number `countdown` (from 0) of that kind from now on.
  func kill(in kind: Kind, after countdown: Int, _ phase: Phase) {
    page[Self.killKind + 1] = Int64(countdown)
    page[Self.killKind + 2] = phase.rawValue
    page[Self.killKind] = Int64(kind.rawValue)
  }

  /// Whether the shim has killed the server.
  var hasKilled: Bool { page[Self.killKind + 3] != 0 }

  /// Whether the server was within an operation of that kind when it died.
  func wasWithin(_ kind: Kind) -> Bool { page[kind.rawValue] > 0 }

  /// How many operations of that kind were done.
  func count(_ kind: Kind) -> Int64 { page[Self.done + kind.rawValue] }

  /// Lets every operation of those kinds fail with `error`, until told otherwise.
  func fail(_ kinds: [Kind], with error: Int32) {
    page[Self.killKind + 5] = kinds.reduce(0) { $0 | 1 << Int64($1.rawValue) }
    page[Self.killKind + 4] = Int64(error)
  }

  /// Lets every operation succeed again.
  func succeed() { page[Self.killKind + 4] = 0 }

  /// Shows the server a wall clock that is that many seconds ahead.
  func moveClock(_ seconds: Int64) { page[Self.killKind + 6] = seconds }

  /// Whether a sync that fails loses what was written to its partial file since the last one: Linux may drop it.
  var losesUnsynced: Bool {
    get { page[Self.killKind + 10] != 0 }
    set { page[Self.killKind + 10] = newValue ? 1 : 0 }
  }

  /// What becomes of a read of a partial file.
  enum Fate: Int64 {
    case reads, hangs, crashes, losesPages
  }

  /// Lets the next `count` reads of the byte at `offset` of a partial file never return, or kill their server by a
  /// signal that the reading thread raises, or by the SIGBUS of a disk that fails under a mapped file.
  func fate(_ fate: Fate, ofReadsAt offset: Int64, count: Int) {
    page[Self.killKind + 7] = 0
    page[Self.killKind + 8] = Int64(count)
    page[Self.killKind + 9] = offset
    page[Self.killKind + 7] = fate.rawValue
  }

  /// How many reads had their fate of the last ``fate(_:ofReadsAt:count:)``.
  func fated(of count: Int) -> Int { count - max(0, Int(page[Self.killKind + 8])) }
}
