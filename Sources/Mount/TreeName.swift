import Base

/// A name in a folder, by its bytes: as Strings, names that differ only in their normalization are equal.
struct TreeName: Hashable {
  var parent: Inode
  var bytes: [UInt8]

  init(_ parent: Inode, _ name: String) { (self.parent, bytes) = (parent, Array(name.utf8)) }

  init(_ parent: Inode, bytes: [UInt8]) { (self.parent, self.bytes) = (parent, bytes) }

  init(_ change: TreeChange) { self.init(change.parent, change.name) }

  var text: String { String(decoding: bytes, as: UTF8.self) }
}

extension TreeChange {
  /// The folder in which it is.
  package var parent: Inode {
    switch self {
    case .added(let parent, _, _), .removed(let parent, _, _), .replaced(let parent, _): parent
    }
  }

  var name: String {
    switch self {
    case .added(_, let name, _), .removed(_, let name, _), .replaced(_, let name): name
    }
  }

  var isFolder: Bool {
    switch self {
    case .added(_, _, let isFolder), .removed(_, _, let isFolder): isFolder
    case .replaced: false
    }
  }

  var isAdded: Bool { if case .added = self { true } else { false } }
}
