import Base
import Glibc
import TestSupport

/// A change of a store, as Tests/DiskShim recorded it.
struct DiskChange: Sendable {
  /// What was done: enum operation of the shim.
  enum Operation: UInt32, Sendable {
    case write = 1
    case sync, truncate, create, rename, unlink, syncFolder, makeFolder, times
  }

  var operation: Operation
  /// Below the store; of a rename the old path.
  var path: String
  /// The new path of a rename.
  var second: String
  /// Which file, by inode; 0 where the name alone counts.
  var inode: UInt64
  /// Where bytes were written, the new length, or the new mtime in seconds.
  var offset: Int64
  var data: [UInt8]

  /// Reads a record to its end; what a kill cut short at its end is left out.
  static func read(_ path: String) throws -> [DiskChange] {
    let bytes = try readFile(path)
    var changes: [DiskChange] = []
    var at = 0
    func number<Number: FixedWidthInteger>(_ offset: Int, _: Number.Type) -> Number {
      bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: at + offset, as: Number.self) }
    }
    while at + 32 <= bytes.count {
      let lengths = (0..<4).map { Int(number($0 * 4, UInt32.self)) }
      guard let operation = Operation(rawValue: UInt32(lengths[0])) else {
        throw CrashFailure(description: "no record")
      }
      let (inode, offset) = (number(16, UInt64.self), number(24, Int64.self))
      var next = at + 32
      guard next + lengths[1] + lengths[2] + lengths[3] <= bytes.count else { break }
      func part(_ length: Int) -> ArraySlice<UInt8> {
        defer { next += length }
        return bytes[next..<next + length]
      }
      let (path, second) = (
        String(decoding: part(lengths[1]), as: UTF8.self), String(decoding: part(lengths[2]), as: UTF8.self)
      )
      let data = Array(part(lengths[3]))
      changes.append(
        DiskChange(operation: operation, path: path, second: second, inode: inode, offset: offset, data: data))
      at = next
    }
    return changes
  }
}

/// What a power loss may leave of a store: everything that was synced, and of the rest what chance wants.
///
/// A write of a file is durable with the next sync of that file. A name (made, renamed, removed) is durable with the
/// next sync of a folder it is in; names that are not may be there or not, each for itself, but no later change of a
/// name outlives an earlier one of it. A rename happens wholly or not at all, as on every journalling filesystem.
struct PowerModel {
  /// What becomes of what was not synced.
  enum Loss: CaseIterable, Sendable {
    /// It is gone.
    case dropped
    /// Names and lengths are there, the bytes are zeros: what a filesystem leaves that writes them later.
    case zeroed
    /// Each write for itself is there, gone, zeros, or half of it.
    case random
  }

  private struct File {
    var durable: [UInt8] = []
    var pending: [DiskChange] = []
    var modified: Int64?
  }

  private enum Name {
    case make(String, UInt64)
    case folder(String)
    case rename(String, String)
    case remove(String)

    var paths: [String] {
      switch self {
      case .make(let path, _), .folder(let path), .remove(let path): [path]
      case .rename(let from, let to): [from, to]
      }
    }
  }

  private var files: [Int: File] = [:]
  /// An inode's number may be given again: the file that has it now.
  private var current: [UInt64: Int] = [:]
  private var count = 0
  /// The names that are durable: files by their number, folders as nil.
  private var durable: [String: Int?] = [:]
  private var pending: [(name: Name, file: Int?)] = []

  /// Follows one change.
  mutating func apply(_ change: DiskChange) {
    switch change.operation {
    case .create:
      count += 1
      current[change.inode] = count
      files[count] = File()
      pending.append((.make(change.path, change.inode), count))
    case .write, .truncate, .times:
      guard let file = current[change.inode] else { return }
      files[file]?.pending.append(change)
    case .sync:
      guard let file = current[change.inode] else { return }
      for write in files[file]?.pending ?? [] { Self.apply(write, to: &files[file, default: File()]) }
      files[file]?.pending = []
    case .makeFolder: pending.append((.folder(change.path), nil))
    case .rename: pending.append((.rename(change.path, change.second), nil))
    case .unlink: pending.append((.remove(change.path), nil))
    case .syncFolder:
      // What came before a change of the same name must be durable too, so that the order stays.
      var isKept = [Bool](repeating: true, count: pending.count)
      var needed: Set<String> = []
      for index in pending.indices.reversed() {
        let paths = pending[index].name.paths
        guard paths.contains(where: { Self.folder(of: $0) == change.path || needed.contains($0) }) else { continue }
        needed.formUnion(paths)
        isKept[index] = false
      }
      for index in pending.indices where !isKept[index] { Self.apply(pending[index], to: &durable) }
      pending = pending.indices.filter { isKept[$0] }.map { pending[$0] }
    }
  }

  private static func folder(of path: String) -> String {
    path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ""
  }

  private static func apply(_ step: (name: Name, file: Int?), to names: inout [String: Int?]) {
    switch step.name {
    case .make(let path, _): names[path] = .some(step.file)
    case .folder(let path): names[path] = .some(nil)
    case .remove(let path): names[path] = nil
    case .rename(let from, let to):
      if let file = names.removeValue(forKey: from) { names[to] = file }
    }
  }

  private static func apply(_ change: DiskChange, to file: inout File, zeroed: Bool = false, half: Bool = false) {
    switch change.operation {
    case .truncate:
      let length = Int(change.offset)
      if file.durable.count > length { file.durable.removeLast(file.durable.count - length) }
      if file.durable.count < length { file.durable += [UInt8](repeating: 0, count: length - file.durable.count) }
    case .times: file.modified = change.offset
    default:
      let start = Int(change.offset)
      let end = start + change.data.count
      if file.durable.count < end { file.durable += [UInt8](repeating: 0, count: end - file.durable.count) }
      if zeroed { return }
      // A disk tears a write between sectors.
      let count = half ? change.data.count / 2 / 512 * 512 : change.data.count
      file.durable.replaceSubrange(start..<start + count, with: change.data[..<count])
    }
  }

  /// Makes the folder that a power loss at this moment leaves.
  func write(to folder: TemporaryFolder, _ name: String, _ loss: Loss, random: inout SeededRandom) throws {
    var names = durable
    var lost: Set<String> = []
    for step in pending {
      let paths = step.name.paths
      // A name of which an earlier change was lost keeps its old state.
      let isLost =
        loss == .dropped || paths.contains(where: lost.contains) || (loss == .random && random.oneIn(2))
      if isLost { lost.formUnion(paths) } else { Self.apply(step, to: &names) }
    }
    try folder.makeFolder(name)
    for path in names.keys.sorted() {
      guard let entry = names[path] else { continue }
      guard let number = entry else {
        try folder.makeFolder("\(name)/\(path)")
        continue
      }
      var file = files[number] ?? File()
      for change in file.pending {
        switch loss {
        case .dropped: break
        case .zeroed: Self.apply(change, to: &file, zeroed: true)
        case .random:
          switch Int.random(in: 0..<4, using: &random) {
          case 0: break
          case 1: Self.apply(change, to: &file, zeroed: true)
          case 2: Self.apply(change, to: &file, half: true)
          default: Self.apply(change, to: &file)
          }
        }
      }
      let written = try folder.write(file.durable, to: "\(name)/\(path)", mode: 0o600)
      if let modified = file.modified {
        let times = [timespec(tv_sec: Int(modified), tv_nsec: 0), timespec(tv_sec: Int(modified), tv_nsec: 0)]
        guard utimensat(AT_FDCWD, written, times, 0) == 0 else { throw Errno.current }
      }
    }
  }
}
