import Glibc

/// Makes paths absolute.
package enum AbsolutePath {
  /// The message for a nil result of ``of(_:)``.
  package static let folderIsGone = "the current folder no longer exists: use absolute paths"

  /// The absolute path: a relative path gets the current folder in front. Nil if that folder no longer exists. Symbolic
  /// links in `path` are not resolved.
  package static func of(_ path: String) -> String? {
    if path.utf8.first == UInt8(ascii: "/") { return path }
    guard let folder = realpath(".", nil) else { return nil }
    defer { free(folder) }
    let name = String(cString: folder)
    return name == "/" ? "/" + path : name + "/" + path
  }
}
