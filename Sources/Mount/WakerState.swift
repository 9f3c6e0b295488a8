import Base
import Reading

/// What ``Waker`` knows: plain data, under its lock.
struct WakerState {
  struct Hidden {
    var isFolder: Bool
    /// The announcement that shows the name at its end.
    var round: Int
  }

  struct Leaving {
    var isFolder: Bool
    /// Whether the waker has been given another inode for the name.
    var isFound = false
  }

  /// By folder, and by the bytes of the name.
  private(set) var hidden: [Inode: [[UInt8]: Hidden]] = [:]
  /// What the waker is to remove.
  var leaving: [TreeName: Leaving] = [:]
  /// The folders and files that it is to touch; of a file what stat(2) shows.
  var touched: [Inode: Attributes?] = [:]
  /// A name that only the waker knows: who looks it up is the waker.
  var password: String?
  var process: Int32?
  /// The announcement that comes next.
  var round = 0
  /// Without a round: files that have changed meanwhile.
  var announced: [(round: Int?, changes: [TreeChange])] = []
  /// How many announcements are told.
  var told = 0
  /// How often folders were touched.
  var touches = 0
  var lastInode: Inode = 1 << 62
  var isEnding = false
  var isIdle: Bool { hidden.isEmpty && leaving.isEmpty && password == nil }

  func hidden(_ name: TreeName) -> Hidden? { hidden[name.parent]?[name.bytes] }

  /// The hidden names of which that is so.
  func hiddenNames(_ isMeant: (Hidden) -> Bool) -> [TreeName] {
    hidden.flatMap { folder, names in
      names.filter { isMeant($0.value) }.map { TreeName(folder, bytes: $0.key) }
    }
  }

  mutating func hide(_ name: TreeName, isFolder: Bool) {
    hidden[name.parent, default: [:]][name.bytes] = Hidden(isFolder: isFolder, round: round)
  }

  /// Names are hidden no more.
  mutating func show(_ isMeant: (Hidden) -> Bool) {
    hidden = hidden.compactMapValues { names in
      let rest = names.filter { !isMeant($0.value) }
      return rest.isEmpty ? nil : rest
    }
  }

  mutating func show(_ name: TreeName) {
    hidden[name.parent]?[name.bytes] = nil
    if hidden[name.parent]?.isEmpty == true { hidden[name.parent] = nil }
  }
}
