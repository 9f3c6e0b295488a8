import Base
import CFuse
import Glibc

/// What the kernel and mediafs agree on in INIT, the kernel's first request.
///
/// The thread of ``FuseSession/run(ready:)`` answers INIT and writes here while it does. Afterwards it starts the loop
/// threads and the notifier, and nothing here changes any more.
final class Handshake: @unchecked Sendable {
  // @unchecked: the variables are written before the first request after INIT is read. The loop threads and the
  // notifier start after that. Every other thread that reads them got its ticket from such a request, through a lock.

  let options: MountOptions
  /// Whether libfuse called its `init` function: it accepted the kernel's INIT.
  private(set) var isDone = false
  /// Whether the kernel's INIT offers passthrough.
  private(set) var isOfferedPassthrough = false
  /// Whether the next reply is the one to INIT.
  private var answersInit = false
  /// Whether the kernel has had that reply from an earlier server of the mount.
  private var repeatsInit = false
  /// Whether `amend` has to request passthrough in it.
  private var addsPassthrough = false
  /// Whether the reply to INIT requested passthrough, so that mediafs may use it.
  private(set) var hasPassthrough = false

  init(options: MountOptions) { self.options = options }

  /// Reads the kernel's INIT before libfuse does. `again`: an earlier server answered it.
  func receive(_ request: UnsafeRawBufferPointer, again: Bool) {
    isOfferedPassthrough = offersPassthrough(request)
    answersInit = true
    repeatsInit = again
  }

  /// Chooses among what the kernel offers in `connection`.
  func choose(_ connection: UnsafeMutablePointer<fuse_conn_info>) {
    cfuse_choose_features(connection)
    // libfuse derives the longest READ from this (max_pages). mediafs accepts no write: see `amend`.
    connection.pointee.max_write = UInt32(max(options.maxRead, 4096))
    connection.pointee.max_readahead = min(connection.pointee.max_readahead, UInt32(options.maxReadahead))
    // The kernel counts parked read-ahead as background requests. Two waiting readers use up the default of 12, and
    // then readers of stored files wait too. 256 KiB of read-ahead are 4 READs, twice (the window in use and the next):
    // 1024 is enough for 128 such readers.
    connection.pointee.max_background = 1024
    connection.pointee.congestion_threshold = 1024
    if options.passthroughDepth > 0, isOfferedPassthrough {
      hasPassthrough = cfuse_want_passthrough(connection, options.passthroughDepth)
      addsPassthrough = !hasPassthrough
    }
    isDone = true
  }

  /// Changes the reply to INIT, a header and a body, before it is sent. False: the reply must not be sent.
  @inline(__always)
  func mayWriteReply(_ parts: UnsafeMutablePointer<iovec>, _ count: Int) -> Bool {
    answersInit ? amend(parts, count) : true
  }

  private func amend(_ parts: UnsafeMutablePointer<iovec>, _ count: Int) -> Bool {
    answersInit = false
    guard count == 2 else { return !repeatsInit }
    let body = UnsafeMutableRawBufferPointer(start: parts[1].iov_base, count: parts[1].iov_len)
    limitWrites(in: body)
    if addsPassthrough { hasPassthrough = acceptPassthrough(in: body, depth: options.passthroughDepth) }
    return !repeatsInit
  }
}

/// The operation code of INIT in a request's header (linux/fuse.h).
let initOperation: UInt32 = 26

/// The operation code of the request in `bytes`: the second word of the 40-byte header.
func operation(of bytes: UnsafeRawBufferPointer) -> UInt32? {
  bytes.count >= 40 ? bytes.loadUnaligned(fromByteOffset: 4, as: UInt32.self) : nil
}

/// What passthrough uses of the INIT messages (linux/fuse.h, 7.40): offsets from the end of the header, and bits.
private enum InitMessage {
  static let requestHeader = 40
  static let flags = 12
  static let requestFlags2 = 16
  static let replyMaxWrite = 20
  static let replyFlags2 = 32
  static let replyStackDepth = 36
  static let replyLength = 64
  /// FUSE_INIT_EXT: a second word of flags is valid.
  static let extended: UInt32 = 1 << 30
  /// FUSE_PASSTHROUGH, in the second word.
  static let passthrough: UInt32 = 1 << (37 - 32)
}

/// Whether the kernel's INIT request offers passthrough.
func offersPassthrough(_ request: UnsafeRawBufferPointer) -> Bool {
  let body = InitMessage.requestHeader
  guard operation(of: request) == initOperation, request.count >= body + InitMessage.requestFlags2 + 4 else {
    return false
  }
  let flags = request.loadUnaligned(fromByteOffset: body + InitMessage.flags, as: UInt32.self)
  let more = request.loadUnaligned(fromByteOffset: body + InitMessage.requestFlags2, as: UInt32.self)
  return flags & InitMessage.extended != 0 && more & InitMessage.passthrough != 0
}

/// The least that the kernel takes as the largest WRITE. It demands request buffers that hold one, and those of the
/// session memory are small.
private let leastWrite: UInt32 = 4096

/// Lowers the largest WRITE in the reply to INIT.
private func limitWrites(in reply: UnsafeMutableRawBufferPointer) {
  guard reply.count >= InitMessage.replyMaxWrite + 4 else { return }
  reply.storeBytes(of: leastWrite, toByteOffset: InitMessage.replyMaxWrite, as: UInt32.self)
}

/// Requests passthrough in the reply to INIT, for a libfuse that has no interface for it. `depth` is 1 when the copies
/// are on an ordinary filesystem, 2 when on a stacked one. Returns false if the reply has an unknown layout.
func acceptPassthrough(in reply: UnsafeMutableRawBufferPointer, depth: UInt32) -> Bool {
  guard reply.count >= InitMessage.replyLength else { return false }
  func add(_ bits: UInt32, at offset: Int) {
    let old = reply.loadUnaligned(fromByteOffset: offset, as: UInt32.self)
    reply.storeBytes(of: old | bits, toByteOffset: offset, as: UInt32.self)
  }
  add(InitMessage.extended, at: InitMessage.flags)
  add(InitMessage.passthrough, at: InitMessage.replyFlags2)
  reply.storeBytes(of: depth, toByteOffset: InitMessage.replyStackDepth, as: UInt32.self)
  return true
}
