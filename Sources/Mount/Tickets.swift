import Base
import CFuse
import Reading

extension FuseSession {
  /// Gives `request` a ticket, and has libfuse say when the kernel interrupts it: before the filesystem is asked, as
  /// another thread may answer, and so free, the request before the call returns.
  @inline(__always)
  func begin(_ request: OpaquePointer) -> (Ticket, Caller) {
    let process = fuse_req_ctx(request)?.pointee.pid ?? 0
    let ticket = requests.withLock { $0.begin(request, process: process) }
    // The number travels in a pointer that is never followed.
    fuse_req_interrupt_func(request, onInterrupt, UnsafeMutableRawPointer(bitPattern: ticket.rawValue))
    return (ticket, Caller(process: process))
  }

  /// The filesystem answered at once: the request is ours to answer.
  @inline(__always)
  func settle(_ ticket: Ticket) { _ = requests.withLock { $0.settle(ticket, parked: false) } }

  /// The filesystem keeps the ticket: the request is not ours to touch any more.
  func park(_ ticket: Ticket) { deliver(requests.withLock { $0.settle(ticket, parked: true) }, ticket) }

  /// Calls `body` with `size` bytes to make a reply in: this thread's own, or for a request larger than was agreed on
  /// some that are allocated for it, as a short answer to READ would be taken for the end of the file.
  @inline(__always)
  func withReplyBuffer(_ size: Int, _ body: (UnsafeMutableRawBufferPointer) -> Void) {
    guard let thread = LoopThread.current else { return }
    thread._withUnsafeGuaranteedRef { thread in
      if size <= thread.reply.count { return body(UnsafeMutableRawBufferPointer(rebasing: thread.reply[..<size])) }
      let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 4096)
      defer { buffer.deallocate() }
      body(buffer)
    }
  }

  /// The answer to a question for a value or, with `size` 0, for its length (getxattr(2), listxattr(2)).
  func replySized(_ request: OpaquePointer, _ bytes: [UInt8], _ size: Int) {
    if size == 0 {
      fuse_reply_xattr(request, bytes.count)
    } else if bytes.count > size {
      refuse(request, .range)
    } else {
      bytes.withUnsafeBytes { raw in
        _ = fuse_reply_buf(request, raw.baseAddress?.assumingMemoryBound(to: CChar.self), raw.count)  // bytes, for C
      }
    }
  }
}
