import Base
import Glibc

/// Why mediafs cannot serve a mount, or no longer.
package enum MountError: Error, Equatable, CustomStringConvertible {
  /// libfuse made no session: what it refused to do, and its error if it gave one.
  case session(String, Errno?)
  /// A call on /dev/fuse failed: which one, and its error.
  case device(String, Errno)
  /// The kernel did not begin with an INIT that this libfuse understands.
  case handshake
  /// Another system call failed: what it was to do, and its error.
  case system(String, Errno)
  /// The session memory that the helper gave is none of this version.
  case memory

  /// What failed, why, and what to do.
  package var description: String {
    switch self {
    case .session(let step, let error):
      return "libfuse refused to \(step)" + (error.map { ": \($0)" } ?? "; its own message is above")
    case .device(let call, let error) where error.rawValue == EPERM:
      return "\(call) on /dev/fuse failed: \(error). The descriptor belongs to no mount; mount first, then pass it on"
    case .device(let call, let error):
      return "\(call) on /dev/fuse failed: \(error)"
    case .handshake:
      return "the kernel did not begin with an INIT that libfuse understands. "
        + "Is the descriptor from a fresh mount, and does libfuse fit the kernel?"
    case .system(let call, let error): return "\(call) failed: \(error)"
    case .memory:
      return "The session memory from the helper has another version, or is damaged. Unmount, and mount again"
    }
  }
}
