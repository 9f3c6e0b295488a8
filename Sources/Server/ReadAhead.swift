import Base
import Glibc

/// The kernel's read-ahead of a mount, raised where that is allowed (as root): fewer round trips to the server for what
/// is stored. `max_read` keeps single READs small, so that a slow line's reader never waits for a whole window.
enum ReadAhead {
  /// As much as two windows (the one that is read and the next) may cost a look that is no play: 512 KiB. 1024 would
  /// read what is stored about a tenth faster, and fetch up to 2 MiB that a scan of a library never looks at.
  private static let kibibytes = 256

  /// `device`: the mount's device number (minor; the major is 0). To be called once INIT was answered: the kernel then
  /// takes the smaller one of what the mount has and what the answer says, and had offered no more than its default.
  static func raise(device: UInt32) {
    guard geteuid() == 0, device != 0 else { return }
    let path = "/sys/class/bdi/0:\(device)/read_ahead_kb"
    do throws(Errno) {
      let file = try FileDescriptor.open(path, O_WRONLY)
      let text = Array("\(kibibytes)".utf8)
      _ = try retrying { write(file.rawValue, text, text.count) }
    } catch {
      Log.debug("read-ahead stays as it is: \(path): \(error)")  // a container without /sys: slower, not wrong
    }
  }
}
