/// The offsets and sizes of what the session memory has (mount-helper/PROTOCOL.md). `mount-helper/session.h` declares
/// the same numbers for the helper.
///
/// A change of the layout is a new version of the helper's protocol: a helper gives one memory to all servers.
enum SessionLayout {
  /// "mediafsS", in the machine's byte order.
  static let magic: UInt64 = 0x5373_6661_6964_656D
  static let version: UInt32 = 4

  // The header: offsets.
  static let versionAt = 8
  static let initLengthAt = 12
  /// How many slots and handles were ever used: what lies behind them is zeros.
  static let slotMarkAt = 16
  static let handleMarkAt = 20
  static let firstIDAt = 24
  static let mountedAtAt = 32
  static let catalogIDAt = 40
  /// The marks again, and checksums of the INIT request and of the 24 bytes from `firstIDAt` on.
  static let secondSlotMarkAt = 48
  static let secondHandleMarkAt = 52
  static let initCheckAt = 56
  static let beginningCheckAt = 60
  static let initAt = 64
  static let longestInit = 1024
  /// The requests in whose service threads died.
  static let suspectStart = 1088
  static let suspectCount = 8
  static let suspectSize = 32

  /// One record for each thread (`struct csystem_record`): the loop threads first, then those of ``Worker``.
  static let threadStart = 2048
  static let threadSize = 64
  static let threadCount = 32

  /// A thread that serves no requests and has a record: which one behind those of the loop threads.
  enum Worker: Int {
    case transfers, keeper, finisher
  }

  /// One request buffer for each thread.
  static let bufferStart = 4096
  static let bufferCount = 16
  static let bufferSize = 8192

  /// Parked requests: the request's length, 0 in a free slot, a checksum, and at `slotRequest` its bytes.
  static let slotStart = bufferStart + bufferCount * bufferSize
  static let slotCount = 16_384
  static let slotSize = 128
  static let slotCheck = 4
  static let slotRequest = 16

  /// Open handles: the number of the OPEN, 0 for none; the inode; the backing id, 0 without passthrough; a checksum.
  static let handleStart = slotStart + slotCount * slotSize
  static let handleCount = 262_144
  static let handleSize = 32
  static let handleInode = 8
  static let handleBacking = 16
  static let handleCheck = 20

  static let size = handleStart + handleCount * handleSize
}

/// The kernel's request header (linux/fuse.h, fuse_in_header): offsets.
enum RequestHeader {
  static let length = 40
  static let operationAt = 4
  static let uniqueAt = 8
  static let inodeAt = 16
}

/// Tells whether bytes are as a server stored them (FNV-1a): an earlier server may have written where it should not.
func checksum(_ bytes: UnsafeRawBufferPointer) -> UInt32 {
  bytes.reduce(0x811C_9DC5) { ($0 ^ UInt32($1)) &* 0x0100_0193 }
}
