import Base
import Glibc
import Reading

/// What a loop thread owns. The thread makes it, and no other uses it. C callbacks find it through the thread's
/// specific value.
final class LoopThread {
  /// The thread's number, and its buffer for requests, in the session memory.
  let index: Int
  let request: UnsafeMutableRawBufferPointer
  /// The buffer for replies: READ's bytes, listings. Whole pages, `maxRead` bytes.
  let reply: UnsafeMutableRawBufferPointer
  /// Tickets whose interrupt libfuse reported during the current request.
  var interrupted: [Ticket] = []
  /// The request that is being served.
  var current = UnsafeRawBufferPointer(start: nil, count: 0)
  /// Whether the last server had taken ``current``.
  var isLeft = false
  /// The slot that ``current`` is in, if the last server parked it; nil once it has its ticket.
  var again: Int?

  init(_ index: Int, _ memory: SessionMemory, maxRead: Int) {
    self.index = index
    request = memory.buffer(index)
    reply = .allocate(byteCount: max(maxRead, 4096), alignment: 4096)
    keepResident(reply)
    // Unretained: `deinit` clears the value, on the same thread.
    pthread_setspecific(loopThreadKey, Unmanaged.passUnretained(self).toOpaque())
  }

  deinit {
    pthread_setspecific(loopThreadKey, nil)
    munlock(reply.baseAddress, reply.count)
    reply.deallocate()
  }

  /// The kernel's number of the current request, the slot that it has already, and whether the last server took it.
  @inline(__always)
  func beginTicket() -> (unique: UInt64, again: Int?, isLeft: Bool) {
    defer { again = nil }
    return (current.loadUnaligned(fromByteOffset: RequestHeader.uniqueAt, as: UInt64.self), again, isLeft)
  }

  /// The calling thread's; nil if it is not a loop thread.
  @inline(__always)
  static var current: Unmanaged<LoopThread>? {
    pthread_getspecific(loopThreadKey).map { Unmanaged.fromOpaque($0) }
  }

  /// The kernel's number of the request that the calling loop thread serves.
  static var currentUnique: UInt64 {
    current?._withUnsafeGuaranteedRef {
      $0.current.loadUnaligned(fromByteOffset: RequestHeader.uniqueAt, as: UInt64.self)
    } ?? 0
  }

  /// Calls `body` with `size` bytes for a reply, from the calling thread's own buffer. For a request longer than
  /// `maxRead`, a temporary buffer: the kernel takes a short answer for the end of the file.
  @inline(__always)
  static func withReplyBuffer(_ size: Int, _ body: (UnsafeMutableRawBufferPointer) -> Void) {
    guard let thread = current else { return }
    thread._withUnsafeGuaranteedRef { thread in
      if size <= thread.reply.count { return body(UnsafeMutableRawBufferPointer(rebasing: thread.reply[..<size])) }
      let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 4096)
      defer { buffer.deallocate() }
      body(buffer)
    }
  }
}

private let loopThreadKey: pthread_key_t = {
  var key = pthread_key_t()
  let result = pthread_key_create(&key, nil)
  precondition(result == 0, "pthread_key_create: error \(result)")
  return key
}()
