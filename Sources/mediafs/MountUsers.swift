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
  /// The process id of the mount helper of `mountpoint`. `owner`: the user whom the mount names, or nil for this user.
  ///
  /// Anyone can give a process such a name and such arguments. So the helper is one of root's, as that of a `user=`
  /// mount is; only if root has none, it is one of the owner's, who may say of a mount of their own what they like.
  static func helper(of mountpoint: String, owner: uid_t? = nil) -> Int32? {
    helper(of: mountpoint, user: 0) ?? helper(of: mountpoint, user: owner ?? geteuid())
  }

  /// The process id of the mount helper of `mountpoint` among the processes of `user`. Nothing that another user's
  /// process has set is read.
  static func helper(of mountpoint: String, user: uid_t) -> Int32? {
    processes().first { process in
      guard isStarted(process, by: user), hasHelperProgram(process),
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

  /// Whether `user` started the process: its real user. A setuid program of root's, started by NAME with arguments of
  /// NAME's, has root as its effective user alone.
  private static func isStarted(_ process: Int32, by user: uid_t) -> Bool {
    guard let bytes = try? Files.read("/proc/\(process)/status", limit: 1 << 16) else { return false }
    // Uid: real effective saved filesystem. The program's name, in the first line, contains no newline.
    let line = bytes.split(separator: 0x0A).first { $0.starts(with: "Uid:\t".utf8) } ?? []
    let numbers = line.dropFirst(5).split(separator: 0x09)
    return numbers.first.map { $0.elementsEqual("\(user)".utf8) } ?? false
  }

  /// Whether the program's file has the helper's name; true if this user may not know it. Some setuid programs (sudo)
  /// take root's real user too, and keep the arguments.
  private static func hasHelperProgram(_ process: Int32) -> Bool {
    guard let file = target(of: "/proc/\(process)/exe") else { return true }
    let name = Files.split(file).name
    return name == "mount-helper" || name == "mount-helper (deleted)"
  }

  /// How much the mount helper may say of its state, in bytes.
  static let stateLength = 400

  /// Why no server serves `mountpoint`, as the mount helper says; nil if one serves, or if the helper is not found.
  /// Process lists have it, so it is there also when the store is not.
  static func state(of mountpoint: String, owner: uid_t? = nil) -> String? {
    guard let helper = helper(of: mountpoint, owner: owner),
      let words = try? Files.read("/proc/\(helper)/cmdline", limit: 1 << 20).split(separator: 0),
      let option = words.firstIndex(of: Array("--state".utf8)[...]), option + 1 < words.count
    else { return nil }
    let text = String(decoding: words[option + 1], as: UTF8.self).split(separator: " ").joined(separator: " ")
    return text.isEmpty ? nil : TerminalText.plain(text)
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
