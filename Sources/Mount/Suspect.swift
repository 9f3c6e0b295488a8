import Base
import Reading

/// A request in whose service a thread died of a signal of its own, and how many servers died so.
///
/// A request that waits for its answer is none, nor is one of a server that another process killed: the thread's record
/// says that the thread raised the signal itself, and the request is what the thread executed.
struct Suspect: Equatable {
  /// So many deaths, and the request is not served again in this mount.
  static let mostDeaths: UInt32 = 2

  var operation: UInt32
  var inode: Inode
  /// What tells requests of one operation for one inode apart: a READ's range, a place in a folder, a hash of a name.
  var place: Range<UInt64>
  var deaths: UInt32 = 1

  /// The request in `bytes`; nil if it is none that has an answer.
  init?(_ bytes: UnsafeRawBufferPointer) {
    guard bytes.count >= RequestHeader.length else { return nil }
    operation = bytes.loadUnaligned(fromByteOffset: RequestHeader.operationAt, as: UInt32.self)
    inode = bytes.loadUnaligned(fromByteOffset: RequestHeader.inodeAt, as: UInt64.self)
    let body = UnsafeRawBufferPointer(rebasing: bytes[RequestHeader.length...])
    switch Operation(rawValue: operation) {
    case .forget, .batchForget, .interrupt, .release, .releaseFolder: return nil
    case .read, .readFolder, .readFolderPlus:
      guard body.count >= 20 else { return nil }  // fuse_read_in: the handle, the offset, the size
      let offset = body.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
      let size = body.loadUnaligned(fromByteOffset: 16, as: UInt32.self)
      let isRead = operation == Operation.read.rawValue
      place = offset..<max(offset, offset.addingClamped(isRead ? UInt64(size) : 1))
    case .lookup, .attribute:
      // Before an attribute's name is the size of the buffer for it.
      let name = operation == Operation.lookup.rawValue ? body.dropFirst(0) : body.dropFirst(8)
      let hash = name.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 } >> 1
      place = hash..<hash + 1
    case nil: place = 0..<1
    }
  }

  init(operation: UInt32, inode: Inode, place: Range<UInt64>, deaths: UInt32) {
    (self.operation, self.inode, self.place, self.deaths) = (operation, inode, place, deaths)
  }

  /// Whether the other request asks for some of the same.
  func overlaps(_ other: Suspect) -> Bool {
    operation == other.operation && inode == other.inode && place.overlaps(other.place)
  }

  /// Counts another death. What both requests asked for is more likely to be the cause than the rest.
  func with(_ other: Suspect) -> Suspect {
    Suspect(operation: operation, inode: inode, place: place.clamped(to: other.place), deaths: deaths &+ 1)
  }

  /// The request, for the log.
  var text: String {
    operation == Operation.read.rawValue
      ? "a read of bytes \(place.lowerBound) to \(place.upperBound)" : "a request (number \(operation))"
  }

  /// The kernel's numbers (linux/fuse.h).
  private enum Operation: UInt32 {
    case lookup = 1
    case forget = 2
    case read = 15
    case release = 18
    case attribute = 22
    case readFolder = 28
    case releaseFolder = 29
    case interrupt = 36
    case batchForget = 42
    case readFolderPlus = 44
  }
}

extension UInt64 {
  fileprivate func addingClamped(_ other: UInt64) -> UInt64 {
    let (sum, overflow) = addingReportingOverflow(other)
    return overflow ? .max : sum
  }
}
