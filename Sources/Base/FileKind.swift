import CSystem
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

/// Why a file that has to be a plain one was not read.
package enum PlainFileError: Error, CustomStringConvertible {
  /// A system call failed.
  case system(Errno)
  /// It is something else.
  case kind(FileKind)

  /// The reason, for a message that names the file.
  package var description: String {
    switch self {
    case .system(let error): error.description
    case .kind(let kind): "it is \(kind), no plain file"
    }
  }
}

extension FileDescriptor {
  /// Opens a plain file for reading and refuses everything else. Never waits: without O_NONBLOCK, open(2) of a FIFO
  /// waits until a program opens it for writing. Without `links`, no part of the path may be a symbolic link.
  package static func openPlain(_ path: String, links: Bool = true) throws(PlainFileError) -> FileDescriptor {
    let kind: FileKind
    let flags = O_RDONLY | O_NOCTTY | O_NONBLOCK
    do throws(Errno) {
      let file =
        links
        ? try open(path, flags)
        : FileDescriptor(owning: try retrying { csystem_open_without_links(path, flags | O_CLOEXEC) })
      kind = FileKind(try file.status())
      if kind == .plain { return file }
    } catch {
      throw .system(error)
    }
    throw .kind(kind)
  }
}
