import Base
import Glibc

extension StoreFolder {
  /// The default store of a mountpoint: a separate folder in the user's data folder.
  ///
  /// That is `$XDG_DATA_HOME/mediafs/NAME`, else `~/.local/share/mediafs/NAME`, else (root without a home)
  /// `/var/lib/mediafs/NAME`. NAME is the mountpoint's last component in plain characters, and a hash of its absolute
  /// path. Throws `.invalid` for a user without a home.
  package static func defaultPath(
    mountpoint: String, environment: [String: String], uid: uid_t
  ) throws(StoreError) -> String {
    guard let base = DataFolders.writable(environment: environment, uid: uid) else {
      throw StoreError(
        kind: .invalid, message: "there is no folder for the store: HOME is not set; name a folder with --store")
    }
    return try base + "/" + MountpointName.fileName(for: MountpointName.absolute(mountpoint))
  }
}

/// The folders of a user's stores and records of mounts.
enum DataFolders {
  static let systemFolder = "/var/lib/mediafs"

  /// The folder to write to, nil if there is none. A variable that is not an absolute path counts as not set (XDG Base
  /// Directory Specification, "Basics").
  static func writable(environment: [String: String], uid: uid_t) -> String? {
    all(environment: environment, uid: uid).first
  }

  /// The folders to search. A shell, a service and /etc/fstab provide different environments: root's mount from fstab
  /// has no HOME, but the shell from which root asks about it has one.
  static func all(environment: [String: String], uid: uid_t) -> [String] {
    var folders: [String] = []
    if let data = absolute(environment["XDG_DATA_HOME"]) { folders.append(data + "/mediafs") }
    let home = absolute(environment["HOME"]) ?? (uid == 0 ? nil : home(of: uid))
    if let home { folders.append(home + "/.local/share/mediafs") }
    if uid == 0 { folders.append(systemFolder) }
    return folders
  }

  private static func absolute(_ path: String?) -> String? {
    guard let path, isAbsolutePath(path) else { return nil }
    return pathComponents(path).filter { !$0.isEmpty }.map { "/" + $0 }.joined()
  }

  /// The home folder in the user database (getpwuid_r(3)).
  private static func home(of uid: uid_t) -> String? {
    var entry = passwd()
    var found: UnsafeMutablePointer<passwd>?
    // sysconf(_SC_GETPW_R_SIZE_MAX) is only a hint; no real user has a larger entry.
    var strings = [CChar](repeating: 0, count: 64 << 10)
    guard getpwuid_r(uid, &entry, &strings, strings.count, &found) == 0, found != nil, let home = entry.pw_dir else {
      return nil
    }
    return absolute(String(cString: home))
  }
}

/// Creates the folder at `path` and its parents if they are missing: before a server is restricted to its folders.
package func makeFolder(_ path: String, mode: mode_t) throws(StoreError) {
  do throws(Errno) { try Folder.makeAll(path, mode: mode) } catch {
    throw .file(error, "cannot create the folder \(path)")
  }
}

/// Names that identify mountpoints.
package enum MountpointName {
  /// The absolute path of a mountpoint: the same for every spelling. It resolves symbolic links, also one at the end,
  /// but never queries the folder itself, because a dead mount may be on it.
  package static func absolute(_ mountpoint: String) -> String {
    var path = isAbsolutePath(mountpoint) ? mountpoint : (resolvedPath(".") ?? "") + "/" + mountpoint
    // readlink(2) on a mountpoint returns EINVAL from the name cache; the kernel does not ask the mounted filesystem.
    for _ in 0..<40 {  // as many links as the kernel follows (ELOOP)
      path = resolvingParent(path)
      guard let target = linkTarget(path) else { return path }
      path = isAbsolutePath(target) ? target : Folder.parent(of: path) + "/" + target
    }
    return path
  }

  /// The name of files about the mountpoint at that absolute path: readable, and different for each mountpoint.
  static func fileName(for path: String) throws(StoreError) -> String {
    let last = pathComponents(path).last { !$0.isEmpty } ?? "root"
    var slug = ""
    for scalar in last.unicodeScalars.prefix(40) {
      let isPlain = scalar.isASCII && (scalar.properties.isAlphabetic || scalar.properties.numericType != nil)
      if isPlain {
        slug.unicodeScalars.append(scalar)
      } else if !slug.hasSuffix("-") && !slug.isEmpty {
        slug += "-"
      }
    }
    if slug.hasSuffix("-") { slug.removeLast() }
    if slug.isEmpty { slug = "media" }
    // 48 bits: no two of a user's mountpoints collide by accident.
    let hash = try Digester.digest(of: path, .sha256).prefix(6)
    return slug + "-" + hexadecimal(hash)
  }

  /// The path with its last component as it is and the rest resolved; by its text alone if that does not exist.
  private static func resolvingParent(_ path: String) -> String {
    var parts = pathComponents(path).filter { !$0.isEmpty && $0 != "." }
    guard let last = parts.popLast() else { return "/" }
    let text = "/" + parts.joined(separator: "/")
    if last == ".." { return Folder.parent(of: resolvingParent(text)) }
    let parent = resolvedPath(text) ?? resolvingParent(text)
    return parent == "/" ? "/" + last : parent + "/" + last
  }

  private static func linkTarget(_ path: String) -> String? {
    var target = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = readlink(path, &target, target.count)
    guard count > 0 else { return nil }
    return String(decoding: target[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}

/// Lowercase hexadecimal digits.
func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
  bytes.map { byte in
    let digits = String(byte, radix: 16)
    return byte < 16 ? "0" + digits : digits
  }.joined()
}
