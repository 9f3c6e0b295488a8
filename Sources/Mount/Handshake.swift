import Base
import CFuse
import Glibc

/// What INIT, the kernel's first request, agrees on.
///
/// The thread of ``FuseSession/run(ready:)`` answers INIT alone and writes here while it does; it starts the other
/// threads after that, and then nothing here changes.
final class Handshake: @unchecked Sendable {
  // @unchecked: what is not constant is written before a second thread exists, as said above.

  let options: MountOptions
  /// Whether libfuse's `init` was called: the kernel's INIT fits.
  private(set) var isDone = false
  /// Whether the kernel's INIT offers passthrough.
  private(set) var isOfferedPassthrough = false
  /// Whether the reply to INIT, the next one, is to ask for passthrough.
  private var amendsReply = false
  /// Whether passthrough was asked for, and so may be used.
  private(set) var hasPassthrough = false

  init(options: MountOptions) { self.options = options }

  /// Looks at the kernel's INIT, before libfuse does.
  func receive(_ request: UnsafeRawBufferPointer) { isOfferedPassthrough = offersPassthrough(request) }

  /// Chooses among what the kernel offers in `connection`.
  func choose(_ connection: UnsafeMutablePointer<fuse_conn_info>) {
    cfuse_choose_features(connection)
    // Nothing is written, but the kernel takes the longest READ from it as well (max_pages).
    connection.pointee.max_write = UInt32(max(options.maxRead, 4096))
    connection.pointee.max_readahead = min(connection.pointee.max_readahead, UInt32(options.maxReadahead))
    // Parked read-ahead counts as background. 12, the default, is used up by one reader that waits, and then readers of
    // stored files wait too. A megabyte of read-ahead is 8 READs, twice (the window in use and the next): 64 such
    // readers.
    connection.pointee.max_background = 1024
    connection.pointee.congestion_threshold = 1024
    if options.passthroughDepth > 0, isOfferedPassthrough {
      hasPassthrough = cfuse_want_passthrough(connection, options.passthroughDepth)
      amendsReply = !hasPassthrough
    }
    isDone = true
  }

  /// Changes what is about to be sent: the reply to INIT, which is a header and a body.
  @inline(__always)
  func amend(_ parts: UnsafeMutablePointer<iovec>, _ count: Int) {
    if !amendsReply { return }
    amendsReply = false
    guard count == 2 else { return }
    let body = UnsafeMutableRawBufferPointer(start: parts[1].iov_base, count: parts[1].iov_len)
    hasPassthrough = acceptPassthrough(in: body, depth: options.passthroughDepth)
  }
}

/// The operation code of INIT in a request's header (linux/fuse.h).
let initOperation: UInt32 = 26

/// The operation code of the request in `bytes`: a header is 40 bytes, the code its second word.
func operation(of bytes: UnsafeRawBufferPointer) -> UInt32? {
  bytes.count >= 40 ? bytes.loadUnaligned(fromByteOffset: 4, as: UInt32.self) : nil
}

/// The INIT messages as far as passthrough is concerned (linux/fuse.h, 7.40): offsets behind the header, and bits.
private enum InitMessage {
  static let requestHeader = 40
  static let flags = 12
  static let requestFlags2 = 16
  static let replyFlags2 = 32
  static let replyStackDepth = 36
  static let replyLength = 64
  /// FUSE_INIT_EXT: there are further flags.
  static let extended: UInt32 = 1 << 30
  /// FUSE_PASSTHROUGH, among the further ones.
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

/// Asks for passthrough in the reply to INIT, for a libfuse that has no interface for it. `depth`: 1 when the copies
/// are on an ordinary filesystem, 2 when on a stacked one. False when the reply is not of the known kind.
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
