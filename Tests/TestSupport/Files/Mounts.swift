/// The mounts that this process sees.
package enum Mounts {
  /// One line of /proc/self/mountinfo (proc(5)).
  package struct Entry: Sendable, Equatable {
    /// The mount's id.
    package let id: Int
    /// The device as `major:minor`.
    package let device: String
    /// Where it is mounted, its escapes undone.
    package let mountpoint: String
    /// The options of the mount (`rw`, `nosuid`, …).
    package let options: [String]
    /// The type, with the subtype if any: `fuse.mediafs`.
    package let type: String
    /// What is mounted.
    package let source: String
    /// The options of the filesystem (`user_id=0`, …).
    package let superOptions: [String]
  }

  /// All of them, in the order they were mounted. Never touches a filesystem other than /proc, so a dead mount cannot
  /// hang it.
  package static func current() -> [Entry] {
    text(of: "/proc/self/mountinfo").split(separator: "\n").compactMap { entry(of: $0) }
  }

  /// Those at `path` or below it (a path without links and without a slash at its end).
  package static func below(_ path: String) -> [Entry] {
    current().filter { $0.mountpoint == path || $0.mountpoint.hasPrefix(path + "/") }
  }

  /// Whether something is mounted at exactly `path`.
  package static func isMounted(_ path: String) -> Bool { current().contains { $0.mountpoint == path } }

  static func entry(of line: Substring) -> Entry? {
    // Behind the sixth field stand optional ones, up to a lone `-`.
    let fields = line.split(separator: " ", omittingEmptySubsequences: false)
    guard fields.count > 6, let id = Int(fields[0]), let dash = fields[6...].firstIndex(of: "-"),
      fields.count > dash + 3
    else { return nil }
    return Entry(
      id: id, device: String(fields[2]), mountpoint: unescaped(fields[4]), options: list(fields[5]),
      type: unescaped(fields[dash + 1]), source: unescaped(fields[dash + 2]), superOptions: list(fields[dash + 3]))
  }

  private static func list(_ field: Substring) -> [String] { field.split(separator: ",").map(String.init) }

  /// Undoes `\040` and its like.
  private static func unescaped(_ field: Substring) -> String {
    var result: [UInt8] = []
    var rest = Array(field.utf8)[...]
    while let byte = rest.popFirst() {
      let digits = rest.prefix(3)
      if byte == UInt8(ascii: "\\"), digits.count == 3,
        let value = UInt8(String(decoding: digits, as: UTF8.self), radix: 8)
      {
        result.append(value)
        rest = rest.dropFirst(3)
      } else {
        result.append(byte)
      }
    }
    return String(decoding: result, as: UTF8.self)
  }
}
