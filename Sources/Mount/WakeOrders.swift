import Base
import Reading

/// What the waker is to do for a list of changes (mount-helper/PROTOCOL.md, "Watchers").
///
/// It makes or removes each name, and touches each file that another one replaces. Where more than ``mostNames`` change
/// in a folder, or a new name is not hidden, it only touches the folder. Of what is in a new folder, or was in a
/// removed one, nobody is told: to a program that watches, the folder itself comes or goes.
struct WakeOrders {
  /// The most changes of a folder, and of all folders, that programs are told one by one.
  static let mostNames = 1_000
  static let mostInAll = 10_000
  /// The most bytes of orders for one waker. It has five seconds for them.
  static let packetLimit = 8_000

  /// The orders, in pieces for one waker each.
  private(set) var packets: [[UInt8]] = []
  /// The names to remove, and whether they are folders.
  private(set) var removed: [TreeName: Bool] = [:]
  /// The folders and files to touch; of a file what stat(2) shows.
  private(set) var touched: [Inode: Attributes?] = [:]
  /// The names of these files.
  private(set) var replaced: [TreeName] = []
  /// Changed names for which the waker does nothing.
  private(set) var untold: [TreeName] = []
  /// The folders in which something changed.
  private(set) var folders: [Inode] = []

  init(_ changes: [TreeChange], _ fileSystem: any Served, isHidden: (TreeName) -> Bool) {
    var byFolder: [Inode: [TreeChange]] = [:]
    for change in changes {
      if byFolder[change.parent] == nil { folders.append(change.parent) }
      byFolder[change.parent, default: []].append(change)
    }
    let new = Set(changes.compactMap { $0.isAdded && $0.isFolder ? fileSystem.attributes(of: $0)?.inode : nil })
    var places: [(path: String, folder: Inode)] = []
    for folder in folders {
      if !new.contains(folder), let path = fileSystem.path(of: folder) {
        places.append((path, folder))
      } else {
        untold += (byFolder[folder] ?? []).map { TreeName($0) }
      }
    }
    var left = Self.mostInAll
    for place in places.sorted(by: { $0.path < $1.path }) {
      let changes = byFolder[place.folder] ?? []
      let isTold = changes.allSatisfy { !$0.isAdded || isHidden(TreeName($0)) }
      if isTold, changes.count <= min(Self.mostNames, left) {
        left -= changes.count
        append(changes.compactMap { order(for: $0, fileSystem) }, at: place.path)
      } else {
        untold += changes.map { TreeName($0) }
        touched[place.folder] = .some(nil)
        append([Self.order("t", "")], at: place.path)
      }
    }
  }

  private mutating func order(for change: TreeChange, _ fileSystem: any Served) -> [UInt8]? {
    switch change {
    case .added(_, let name, let isFolder): return Self.order(isFolder ? "m" : "c", name)
    case .removed(_, let name, let isFolder):
      removed[TreeName(change)] = isFolder
      return Self.order(isFolder ? "r" : "u", name)
    case .replaced(_, let name):
      guard let attributes = fileSystem.attributes(of: change), !attributes.isFolder else {
        untold.append(TreeName(change))
        return nil
      }
      touched[attributes.inode] = attributes
      replaced.append(TreeName(change))
      return Self.order("a", name)
    }
  }

  /// Appends orders for a folder to the last piece, or begins another one.
  private mutating func append(_ orders: [[UInt8]], at path: String) {
    let place = Self.order("p", path)
    var isThere = false
    for order in orders {
      let needed = order.count + (isThere ? 0 : place.count)
      if packets.isEmpty || packets[packets.count - 1].count + needed > Self.packetLimit {
        packets.append([])
        isThere = false
      }
      packets[packets.count - 1] += (isThere ? [] : place) + order
      isThere = true
    }
  }

  /// An order: a letter, and a text that ends with a zero byte.
  static func order(_ letter: Unicode.Scalar, _ text: String) -> [UInt8] {
    [UInt8(ascii: letter)] + Array(text.utf8) + [0]
  }
}

extension Served {
  /// What a change is about, if the catalog has it.
  fileprivate func attributes(of change: TreeChange) -> Attributes? {
    var name = change.name
    return name.withUTF8 { bytes in
      do throws(Errno) { return try find(bytes, in: change.parent) } catch { return nil }
    }
  }
}
