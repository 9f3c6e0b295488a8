import Base
import CSystem
import Glibc
import Server

/// Paths and small files, as the commands need them.
enum Files {
  /// The bytes of a small file or of a pipe; EFBIG when it has more than `limit`.
  static func read(_ path: String, limit: Int) throws(Errno) -> [UInt8] {
    try contents(of: try FileDescriptor.open(path, O_RDONLY), limit: limit)
  }

  /// The bytes of a small file that root opens with no other rights than `user`'s. It must be a plain file: that user
  /// could make root wait for a FIFO.
  static func read(_ path: String, limit: Int, as user: String) throws(PlainFileError) -> [UInt8] {
    let kind: FileKind
    do throws(Errno) {
      let file = FileDescriptor(owning: try retrying { csystem_open_as(user, path) })
      kind = FileKind(try file.status())
      if kind == .plain { return try contents(of: file, limit: limit) }
    } catch {
      throw .system(error)
    }
    throw .kind(kind)
  }

  private static func contents(of file: consuming FileDescriptor, limit: Int) throws(Errno) -> [UInt8] {
    var bytes: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = try retrying { Glibc.read(file.rawValue, &piece, piece.count) }
      if count == 0 { return bytes }
      bytes += piece[..<count]
      if bytes.count > limit { throw Errno(rawValue: EFBIG) }
    }
  }

  /// The descriptor of this process that `path` names, as a shell's `<(…)` does; nil if it names none.
  static func ownDescriptor(_ path: String) -> Int32? {
    if path == "/dev/stdin" { return STDIN_FILENO }
    let folder = ["/dev/fd/", "/proc/self/fd/"].first { path.hasPrefix($0) }
    return folder.flatMap { Int32(path.dropFirst($0.count)) }
  }

  /// The absolute path: a relative path gets the current folder in front. Symbolic links are not resolved.
  static func absolute(_ path: String) throws(CommandError) -> String {
    guard let path = AbsolutePath.of(path) else { throw .failed(AbsolutePath.folderIsGone) }
    return path
  }

  /// realpath(3): absolute, without symbolic links; nil if it fails (``Errno/current`` says why).
  static func canonical(_ path: String) -> String? {
    guard let resolved = realpath(path, nil) else { return nil }
    defer { free(resolved) }
    return String(cString: resolved)
  }

  /// Resolves the part of the path that exists, as ``canonical(_:)`` does, and appends the rest unchanged.
  static func canonicalWhereItExists(_ path: String) -> String {
    var parent = path
    var rest = ""
    while true {
      if let resolved = canonical(parent) { return resolved == "/" && !rest.isEmpty ? rest : resolved + rest }
      let (folder, name) = split(parent)
      if folder == parent { return path }
      rest = "/" + name + rest
      parent = folder
    }
  }

  /// An absolute path's folder and last component. Slashes at the end are ignored.
  static func split(_ path: String) -> (folder: String, name: String) {
    // By scalars: to a String, a slash with a combining accent behind it is another character; to the kernel it is not.
    var trimmed = path.unicodeScalars[...]
    while trimmed.count > 1, trimmed.last == "/" { trimmed.removeLast() }
    guard let slash = trimmed.lastIndex(of: "/") else { return (".", String(trimmed)) }
    let folder = trimmed[..<slash]
    return (folder.isEmpty ? "/" : String(folder), String(trimmed[trimmed.index(after: slash)...]))
  }

  /// Whether `path` is `folder` or lies in it (both canonical).
  static func isInside(_ path: String, _ folder: String) -> Bool {
    path.utf8.elementsEqual(folder.utf8) || path.utf8.starts(with: (folder == "/" ? "/" : folder + "/").utf8)
  }

  /// The folder that this program lies in.
  static func programFolder() -> (program: String, folder: String)? {
    guard let program = canonical("/proc/self/exe") else { return nil }
    return (program, split(program).folder)
  }
}
