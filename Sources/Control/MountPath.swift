/// A place in a mount that a path argument names.
package struct MountPath: Sendable, Equatable {
  /// The mountpoint, as the caller of ``resolve(_:from:mountpoints:readLink:)`` gave it.
  package var mountpoint: String
  /// The path in the mount, without a leading slash; empty for the mountpoint itself.
  package var path: String

  package init(mountpoint: String, path: String) {
    self.mountpoint = mountpoint
    self.path = path
  }

  /// The place that `argument` names, if it is at or below one of `mountpoints` (absolute, without symbolic links); nil
  /// if it is elsewhere.
  ///
  /// This follows symbolic links as the kernel does, but makes no system call on a path at or below a mountpoint: its
  /// server may be dead, and the call would fail or hang. There, `..` only removes a component.
  ///
  /// - Parameters:
  ///   - folder: the absolute path from which a relative argument starts.
  ///   - readLink: the target of the symbolic link at a path; nil if it is not a symbolic link.
  package static func resolve(
    _ argument: String, from folder: String, mountpoints: [String], readLink: (String) -> String?
  ) -> MountPath? {
    let absolute = argument.hasPrefix("/") ? argument : folder + "/" + argument
    let mounts = mountpoints.map { (whole: $0, parts: pathParts($0)) }.sorted { $0.parts.count > $1.parts.count }
    func mount(of path: [Substring]) -> (whole: String, parts: [Substring])? {
      mounts.first { mount in
        path.starts(with: mount.parts) { $0.utf8.elementsEqual($1.utf8) }
      }  // the deepest comes first
    }

    var waiting = Array(pathParts(absolute).reversed())
    var resolved: [Substring] = []
    var links = 0
    while let part = waiting.popLast() {
      if part == ".." {
        _ = resolved.popLast()
        continue
      }
      resolved.append(part)
      guard mount(of: resolved) == nil, links < 40 else { continue }  // 40 links: the kernel's own limit
      if let target = readLink("/" + resolved.joined(separator: "/")) {
        links += 1
        resolved.removeLast()
        if target.hasPrefix("/") { resolved = [] }
        waiting += pathParts(target).reversed()
      }
    }
    guard let found = mount(of: resolved) else { return nil }
    return MountPath(
      mountpoint: found.whole, path: resolved.dropFirst(found.parts.count).joined(separator: "/"))
  }

  /// Normalizes a path argument that is relative to a mount; nil if it leads out of the mount.
  package static func relative(_ argument: String) -> String? {
    var kept: [Substring] = []
    for part in pathParts(argument) {
      if part == ".." {
        guard kept.popLast() != nil else { return nil }
      } else {
        kept.append(part)
      }
    }
    return kept.joined(separator: "/")
  }
}

/// The components of a path, without empty ones and `.`. This splits by bytes: to a String, a slash before a combining
/// accent is another character than a slash; to the kernel it is a slash.
func pathParts(_ path: String) -> [Substring] {
  path.utf8.split(separator: UInt8(ascii: "/")).map { Substring($0) }.filter { $0 != "." }
}
