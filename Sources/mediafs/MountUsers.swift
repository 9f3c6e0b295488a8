import Base
import Glibc

/// A process that uses a mount.
struct MountUser: CustomStringConvertible, Equatable {
  let process: Int32
  let name: String

  init(process: Int32) {
    self.process = process
    name = TerminalText.plain(MountUsers.firstLine("/proc/\(process)/comm"))
  }

  var description: String { "\(name) (\(process))" }
}

/// Searches /proc for processes, and ignores those that this user may not read.
enum MountUsers {
  /// The process id of the mount helper of `mountpoint`. With `owner`, only a process of root or of `owner` counts,
  /// because anyone can give a process such a name and such arguments.
  static func helper(of mountpoint: String, owner: uid_t? = nil) -> Int32? {
    processes().first { process in
      var status = stat()
      guard stat("/proc/\(process)", &status) == 0, owner == nil || status.st_uid == 0 || status.st_uid == owner,
        let bytes = try? Files.read("/proc/\(process)/cmdline", limit: 1 << 20)
      else { return false }
      let words = bytes.split(separator: 0, omittingEmptySubsequences: false)
      guard words.first.map({ String(decoding: $0, as: UTF8.self) }) == "mount-helper",
        let option = words.firstIndex(of: Array("--mountpoint".utf8)[...]), option + 1 < words.count
      else { return false }
      // The helper's guard has the helper's arguments, and a name of its own.
      return words[option + 1].elementsEqual(mountpoint.utf8) && firstLine("/proc/\(process)/comm") != "mount-guard"
    }
  }

  static func processes() -> [Int32] { names(in: "/proc").compactMap { Int32($0) } }

  static func names(in folder: String) -> [String] {
    guard let stream = opendir(folder) else { return [] }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {
      names.append(
        withUnsafePointer(to: &entry.pointee.d_name) {
          // d_name is an array of 256 that ends with a zero.
          $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        })
    }
    return names
  }

  /// Where a link of /proc leads; nil if this user may not see it.
  static func target(of link: String) -> String? {
    var target = [CChar](repeating: 0, count: 4096)
    let count = readlink(link, &target, target.count)
    return count > 0 ? String(decoding: target[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self) : nil
  }

  static func children(of parent: Int32) -> [Int32] {
    processes().filter { process in
      // The name in parentheses, which may contain anything, then the state and the parent.
      guard let bytes = try? Files.read("/proc/\(process)/stat", limit: 4096), let name = bytes.lastIndex(of: 0x29)
      else { return false }
      let fields = bytes[(name + 1)...].split(separator: 0x20)
      return fields.count > 1 && fields[1].elementsEqual("\(parent)".utf8)
    }
  }

  static func firstLine(_ path: String) -> String {
    guard let bytes = try? Files.read(path, limit: 4096) else { return "?" }
    return String(decoding: bytes.prefix { $0 != 10 }, as: UTF8.self)
  }
}
