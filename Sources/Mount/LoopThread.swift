import Glibc
import Reading

/// What a loop thread owns: made on it, used on it alone, found again by C callbacks through the thread's specific
/// value.
final class LoopThread {
  /// Where requests are read. The kernel wants room for a WRITE of the largest size, though none is taken.
  let request: UnsafeMutableRawBufferPointer
  /// Where replies are made: READ's bytes, listings. Whole pages, `maxRead` of them.
  let reply: UnsafeMutableRawBufferPointer
  /// Tickets whose interrupt came up in the present request.
  var interrupted: [Ticket] = []

  init(maxRead: Int) {
    // 4096 bytes for the headers, as libfuse itself counts; at least 8192 (FUSE_MIN_READ_BUFFER).
    request = .allocate(byteCount: max(maxRead, 4096) + 4096, alignment: 4096)
    reply = .allocate(byteCount: max(maxRead, 4096), alignment: 4096)
    // Unretained: the value is taken back in `deinit`, on the same thread.
    pthread_setspecific(loopThreadKey, Unmanaged.passUnretained(self).toOpaque())
  }

  deinit {
    pthread_setspecific(loopThreadKey, nil)
    request.deallocate()
    reply.deallocate()
  }

  /// The calling thread's; nil when it is none of the loop's.
  @inline(__always)
  static var current: Unmanaged<LoopThread>? {
    pthread_getspecific(loopThreadKey).map { Unmanaged.fromOpaque($0) }
  }

  /// Calls `body` with `size` bytes to make a reply in: the calling thread's own, or for a request larger than was
  /// agreed on some that are allocated for it, as a short answer to READ would be taken for the end of the file.
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
