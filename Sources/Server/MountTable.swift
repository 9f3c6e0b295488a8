import Base
import Control
import Glibc

/// One mount in the mount namespace of this process.
package struct MountTableEntry: Equatable, Sendable {
  /// The kernel's number of the mount.
  package var id: UInt64
  /// The minor device number, which differs between FUSE mounts (the major one is 0).
  package var device: UInt32
  /// The path of the mountpoint.
  package var mountpoint: String
  /// The filesystem's type, such as `fuse.mediafs`.
  package var type: String
  /// The source; for a mount of mediafs, the manifest.
  package var source: String
  /// The filesystem's own options, such as `user_id=1000`.
  package var options: String

  /// Whether it is a mount of mediafs.
  package var isMediafs: Bool { type == "fuse.mediafs" }

  /// The user who mounted, for the kernel; nil for another filesystem than FUSE.
  package var owner: uid_t? {
    let owner = options.split(separator: ",").first { $0.hasPrefix("user_id=") }
    return owner.flatMap { uid_t($0.dropFirst("user_id=".count)) }
  }
}

/// The kernel's table of mounts (proc(5), mountinfo). The kernel asks no filesystem for it, so a dead one cannot block.
package enum MountTable {
  /// Every mount, in the table's order, as a process sees it. Of two mounts at one mountpoint, the later is on top.
  package static func read(of process: String = "self") throws(Errno) -> [MountTableEntry] {
    let file = try FileDescriptor.open("/proc/\(process)/mountinfo", O_RDONLY)
    var text: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 16)
    while true {
      let count = try retrying { Glibc.read(file.rawValue, &piece, piece.count) }
      if count == 0 { break }
      text += piece[..<count]
    }
    return parse(text)
  }

  /// Whether a path leads to a FUSE or network filesystem, whose server may hang; true of every path if the table
  /// cannot be read. It asks no such filesystem.
  package static var mayHang: (String) -> Bool {
    guard let table = try? read() else { return { _ in true } }  // whoever needs the table reads it, and reports why
    return mayHang(table)
  }

  static func mayHang(_ table: [MountTableEntry]) -> (String) -> Bool {
    let mountpoints = table.filter { entry in
      // A root that hangs leaves nobody to ask.
      entry.mountpoint != "/" && (entry.type.hasPrefix("fuse") || remoteTypes.contains(entry.type))
    }
    .map(\.mountpoint)
    return { MountPath.resolve($0, from: "/", mountpoints: mountpoints, readLink: linkTarget) != nil }
  }

  /// The types of network filesystems, and of those that are mounted when somebody looks.
  private static let remoteTypes: Set = [
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "afs", "ncpfs", "coda", "autofs",
  ]

  /// Where the symbolic link at a path leads; nil if it is none.
  package static func linkTarget(_ path: String) -> String? {
    var target = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = readlink(path, &target, target.count)
    guard count > 0 else { return nil }
    return String(decoding: target[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  /// The topmost mount at `path`; nil if there is none. `path` is absolute and without symbolic links.
  package static func entry(at path: String) throws(Errno) -> MountTableEntry? {
    try read().last { $0.mountpoint.utf8.elementsEqual(path.utf8) }
  }

  /// Parses the text of a mountinfo file. Skips lines that are not entries.
  package static func parse(_ text: [UInt8]) -> [MountTableEntry] {
    text.split(separator: UInt8(ascii: "\n")).compactMap { line in
      // id parent major:minor root mountpoint options [tags...] - type source options
      // A source may be empty.
      let fields = line.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
      guard fields.count >= 10, let dash = fields[6...].firstIndex(of: [UInt8(ascii: "-")]),
        fields.count > dash + 2
      else { return nil }
      let numbers = string(fields[2]).split(separator: ":")
      return MountTableEntry(
        id: UInt64(string(fields[0])) ?? 0,
        device: numbers.count == 2 ? UInt32(numbers[1]) ?? 0 : 0, mountpoint: string(fields[4]),
        type: string(fields[dash + 1]), source: string(fields[dash + 2]),
        options: fields.count > dash + 3 ? string(fields[dash + 3]) : "")
    }
  }

  /// Replaces the escapes `\ooo`, which stand for space, tab, newline and backslash.
  private static func string(_ field: ArraySlice<UInt8>) -> String {
    var bytes: [UInt8] = []
    var rest = field
    while let byte = rest.popFirst() {
      let digits = rest.prefix(3)
      let code = digits.count == 3 ? UInt8(String(decoding: digits, as: UTF8.self), radix: 8) : nil
      if byte == UInt8(ascii: "\\"), let code {
        bytes.append(code)
        rest.removeFirst(3)
      } else {
        bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}
