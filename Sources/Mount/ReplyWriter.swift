import Base
import CFuse
import Glibc

/// Writes what libfuse sends to the kernel: replies to the device, notifications to the helper.
final class ReplyWriter: Sendable {
  private let handshake: Handshake
  private let memory: SessionMemory
  /// The socket to the helper's thread that writes notifications; nil: this process writes them itself.
  private let notices: FileDescriptor?
  private let notifier: Notifier

  init(handshake: Handshake, memory: SessionMemory, notifier: Notifier, notices: consuming FileDescriptor?) {
    self.handshake = handshake
    self.memory = memory
    self.notifier = notifier
    self.notices = notices
  }

  /// Sends one reply or notification: as writev(2), all of it or an error. Adds to the reply to INIT what this libfuse
  /// cannot put there, and drops it when the kernel has had it from an earlier server.
  @inline(__always)
  func write(_ device: Int32, _ parts: UnsafeMutablePointer<iovec>, _ count: Int32) -> Int {
    // fuse_out_header: the length, the error, and the number of the request, 0 in a notification.
    let unique = parts[0].iov_base.load(fromByteOffset: 8, as: UInt64.self)
    if unique == 0 { return notify(device, parts, count) }
    if !handshake.mayWriteReply(parts, Int(count)) { return length(parts, Int(count)) }
    let written = writev(device, parts, count)
    if written >= 0 { memory.countAnswer(ofThread: LoopThread.current?._withUnsafeGuaranteedRef { $0.index }) }
    return written
  }

  /// The kernel may block who writes a notification until a request is answered. A thread of a killed server that
  /// waited there would keep the server's locks, so the helper writes it. The kernel may hold the helper's thread, too:
  /// then this waits until the socket takes more, or the server ends.
  private func notify(_ device: Int32, _ parts: UnsafeMutablePointer<iovec>, _ count: Int32) -> Int {
    switch notices {
    case .none: return writev(device, parts, count)
    case .some(let socket):
      var message = msghdr()
      message.msg_iov = parts
      message.msg_iovlen = Int(count)
      while true {
        let count = sendmsg(socket.rawValue, &message, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
        if count >= 0 || (errno != EAGAIN && errno != EINTR) { return count }
        if !notifier.wait(for: socket.rawValue) {
          errno = ENODEV  // as after the end of the mount: nobody is told
          return -1
        }
      }
    }
  }

  private func length(_ parts: UnsafeMutablePointer<iovec>, _ count: Int) -> Int {
    (0..<count).reduce(0) { $0 + parts[$1].iov_len }
  }
}
