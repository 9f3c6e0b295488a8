import Glibc

/// What a file is. A type of its own, because extensions of `stat` (which is a function, too) are not seen in other
/// modules.
package enum FileKind: Sendable, CustomStringConvertible {
  case plain, folder, symbolicLink, pipe, socket, device

  /// As lstat(2) or fstat(2) says.
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

  /// For a message.
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
