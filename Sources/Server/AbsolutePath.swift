import Glibc

/// Paths from the root.
package enum AbsolutePath {
  /// Why ``of(_:)`` has no answer.
  package static let folderIsGone = "the current folder does not exist any more: give absolute paths"

  /// The path with the current folder in front if it is relative; nil when that folder is gone. Nothing is resolved.
  package static func of(_ path: String) -> String? {
    if path.utf8.first == UInt8(ascii: "/") { return path }
    guard let folder = realpath(".", nil) else { return nil }
    defer { free(folder) }
    let name = String(cString: folder)
    return name == "/" ? "/" + path : name + "/" + path
  }
}
