import Glibc
import Reading

/// What a loop thread owns. The thread makes it, and no other uses it. C callbacks find it through the thread's
/// specific value.
final class LoopThread {
  /// The buffer for requests. The kernel demands room for the largest WRITE, though mediafs accepts none.
  let request: UnsafeMutableRawBufferPointer
  /// The buffer for replies: READ's bytes, listings. Whole pages, `maxRead` bytes.
  let reply: UnsafeMutableRawBufferPointer
  /// Tickets whose interrupt libfuse reported during the current request.
  var interrupted: [Ticket] = []

  init(maxRead: Int) {
    // 4096 bytes for the headers, as in libfuse itself; at least 8192 (FUSE_MIN_READ_BUFFER).
    request = .allocate(byteCount: max(maxRead, 4096) + 4096, alignment: 4096)
    reply = .allocate(byteCount: max(maxRead, 4096), alignment: 4096)
    // Unretained: `deinit` clears the value, on the same thread.
    pthread_setspecific(loopThreadKey, Unmanaged.passUnretained(self).toOpaque())
  }

  deinit {
    pthread_setspecific(loopThreadKey, nil)
    request.deallocate()
    reply.deallocate()
  }

  /// The calling thread's; nil if it is not a loop thread.
  @inline(__always)
  static var current: Unmanaged<LoopThread>? {
    pthread_getspecific(loopThreadKey).map { Unmanaged.fromOpaque($0) }
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
