/// A place in a mount, as a user's path argument named it.
package struct MountPath: Sendable, Equatable {
  /// The mountpoint, one of those that were given.
  package var mountpoint: String
  /// The path in the mount, without a leading slash; empty for the mountpoint itself.
  package var path: String

  /// That place.
  package init(mountpoint: String, path: String) {
    self.mountpoint = mountpoint
    self.path = path
  }

  /// Where `argument` points, when that is at or below one of `mountpoints` (absolute, without links); nil when it is
  /// elsewhere.
  ///
  /// Links are followed as the kernel does, but nothing at or below a mountpoint is ever looked at: the server behind
  /// it may be dead, and then a look would fail or hang. Inside, `..` only takes a component away.
  ///
  /// - Parameters:
  ///   - folder: what a relative argument starts from: an absolute path.
  ///   - readLink: what the link at a path says; nil when there is no link at it.
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

  /// A path argument that is relative to a mount, made normal; nil when it leads out of it.
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

/// A path's components, without empty ones and `.`. By bytes: to a String, a slash with a combining accent behind it is
/// another character than a slash; to the kernel it is not.
func pathParts(_ path: String) -> [Substring] {
  path.utf8.split(separator: UInt8(ascii: "/")).map { Substring($0) }.filter { $0 != "." }
}
