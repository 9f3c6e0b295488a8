import Glibc

/// The kind of a file. It is a type of its own because other modules do not see extensions of `stat`, which is also a
/// function.
package enum FileKind: Sendable, CustomStringConvertible {
  case plain, folder, symbolicLink, pipe, socket, device

  /// The kind in the result of lstat(2) or fstat(2).
  package init(_ status: stat) {
    switch status.st_mode & S_IFMT {
    case S_IFREG: self = .plain
    case S_IFDIR: self = .folder
    case S_IFLNK: self = .symbolicLink
    case S_IFIFO: self = .pipe
    case S_IFSOCK: self = .socket
    default: self = .device
    }
  }

  /// The kind in a message.
  package var description: String {
    switch self {
    case .plain: "a file"
    case .folder: "a folder"
    case .symbolicLink: "a symbolic link"
    case .pipe: "a FIFO"
    case .socket: "a socket"
    case .device: "a device"
    }
  }
}
