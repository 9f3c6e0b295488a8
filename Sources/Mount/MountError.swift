import Base
import Glibc

/// Why a mount is not, or no longer, served.
package enum MountError: Error, Equatable, CustomStringConvertible {
  /// libfuse made no session: what it refused, and its error when it gave one.
  case session(String, Errno?)
  /// A call on /dev/fuse failed: which, and with what.
  case device(String, Errno)
  /// The kernel's part did not open with an INIT that this libfuse speaks.
  case handshake

  /// What failed, why, and what to do.
  package var description: String {
    switch self {
    case .session(let step, let error):
      return "libfuse refused to \(step)" + (error.map { ": \($0)" } ?? "; its own message is above")
    case .device(let call, let error) where error.rawValue == EPERM:
      return "\(call) on /dev/fuse failed: \(error). The descriptor belongs to no mount; mount first, then hand it over"
    case .device(let call, let error):
      return "\(call) on /dev/fuse failed: \(error)"
    case .handshake:
      return "the kernel did not begin with an INIT that libfuse understands. "
        + "Is the descriptor from a fresh mount, and does libfuse fit the kernel?"
    }
  }
}
