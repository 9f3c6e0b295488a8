import Base
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

  /// The paths of all FUSE mounts, whose servers may hang; none if the table cannot be read.
  package static var mountpoints: [String] {
    guard let table = try? read() else { return [] }  // whoever needs the table reads it, and reports why it cannot
    return table.filter { $0.type.hasPrefix("fuse") }.map(\.mountpoint)
  }

  /// The topmost mount at `path`; nil if there is none. `path` is absolute and without symbolic links.
  package static func entry(at path: String) throws(Errno) -> MountTableEntry? {
    try read().last { $0.mountpoint.utf8.elementsEqual(path.utf8) }
  }

  /// Parses the text of a mountinfo file. Skips lines that are not entries.
  package static func parse(_ text: [UInt8]) -> [MountTableEntry] {
    text.split(separator: UInt8(ascii: "\n")).compactMap { line in
      // id parent major:minor root mountpoint options [tags...] - type source options
      let fields = line.split(separator: UInt8(ascii: " "))
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
