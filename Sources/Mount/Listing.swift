import Base
import CFuse
import Reading

/// What a listing contains for each name.
enum ListingStyle {
  /// READDIR: the name and its inode.
  case names
  /// READDIRPLUS: also the reply to a lookup of the name.
  case entries
}

/// One buffer of a folder's listing.
///
/// An offset (telldir(3)) says where to continue: 1 is after `.`, 2 after `..`, and an item's cookie + 2 after that
/// item. So offsets stay valid as long as the cookies do, also over a rewind, a seek and a new server.
struct Listing {
  private let request: OpaquePointer
  private let buffer: UnsafeMutableRawBufferPointer
  private let style: ListingStyle
  /// Bytes used.
  private(set) var count = 0

  init(request: OpaquePointer, buffer: UnsafeMutableRawBufferPointer, style: ListingStyle) {
    self.request = request
    self.buffer = buffer
    self.style = style
  }

  /// Adds as many names after `offset` as fit. Throws EINVAL if not even one fits.
  mutating func fill(_ operations: Operations, _ folder: Inode, from offset: Int64) throws(Errno) {
    let (fileSystem, appearance) = (operations.fileSystem, operations.appearance)
    var isFull = false
    if offset < 1 { isFull = !addFolder(appearance, ".", folder, offset: 1) }
    if offset < 2 && !isFull { isFull = !addFolder(appearance, "..", fileSystem.parent(of: folder), offset: 2) }
    if !isFull {
      var filling = self
      let hidden = operations.waker.hidden(in: folder)
      try fileSystem.list(folder, after: max(0, offset - 2)) { item in
        if let hidden, hidden.contains(Array(item.name.utf8)) { return true }
        isFull = !filling.add(appearance, item)
        return !isFull
      }
      self = filling
    }
    if isFull && count == 0 { throw .invalid }
  }

  /// Adds `.` or `..`. The kernel knows their inodes, so they are names only in either style (inode 0 in an entry: no
  /// lookup).
  private mutating func addFolder(_ appearance: Appearance, _ name: String, _ inode: Inode, offset: Int64) -> Bool {
    let attributes = Attributes(inode: inode, isFolder: true, size: 0, modified: 0, isFinal: false)
    var entry = appearance.entry(attributes)
    entry.ino = 0
    return add(name, &entry, offset: offset)
  }

  private mutating func add(_ appearance: Appearance, _ item: DirectoryItem) -> Bool {
    var entry = appearance.entry(item.attributes)
    return add(item.name, &entry, offset: item.cookie &+ 2)
  }

  private mutating func add(_ name: String, _ entry: inout fuse_entry_param, offset: Int64) -> Bool {
    let rest = UnsafeMutableRawBufferPointer(rebasing: buffer[count...])
    let bytes = rest.baseAddress?.assumingMemoryBound(to: CChar.self)  // C's type for bytes
    let needed = name.withCString { name in
      switch style {
      case .names: fuse_add_direntry(request, bytes, rest.count, name, &entry.attr, off_t(offset))
      case .entries: fuse_add_direntry_plus(request, bytes, rest.count, name, &entry, off_t(offset))
      }
    }
    if needed > rest.count { return false }
    count += needed
    return true
  }
}
