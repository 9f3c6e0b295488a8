import Base
import Glibc

/// Raises the kernel's read-ahead of a mount, which only root may do. Reads of stored data then take fewer round trips
/// to the server. `max_read` keeps each READ small, so that a reader on a slow line never waits for a whole window.
enum ReadAhead {
  /// Two windows (the current and the next one) are what a short look at a file may cost: 512 KiB. With 1024, reads of
  /// stored data would be about a tenth faster, but a library scan would download up to 2 MiB a file in vain.
  private static let kibibytes = 256

  /// `device`: the minor device number of the mount (the major one is 0). Call it after the reply to INIT: the kernel
  /// then takes the smaller of its own value and the reply's, and it offered only its default.
  static func raise(device: UInt32) {
    guard geteuid() == 0, device != 0 else { return }
    let path = "/sys/class/bdi/0:\(device)/read_ahead_kb"
    do throws(Errno) {
      let file = try FileDescriptor.open(path, O_WRONLY)
      let text = Array("\(kibibytes)".utf8)
      _ = try retrying { write(file.rawValue, text, text.count) }
    } catch {
      Log.debug("cannot raise the read-ahead: \(path): \(error)")  // in a container without /sys, reads are slower
    }
  }
}
