import Base
import Storing

/// What a file manager or a script may ask of a file besides its bytes. Any thread may ask, and waits for the disk.
struct ExtendedAttributes {
  private let room: ReadingRoom

  init(_ room: ReadingRoom) { self.room = room }

  private static let names = [
    "user.mime_type", "user.xdg.origin.url", "user.mediafs.state", "user.mediafs.stored", "user.mediafs.error",
  ]

  /// The value of an extended attribute; ENODATA when the node has none of that name.
  func value(of name: String, _ inode: Inode) throws(Errno) -> [UInt8] {
    guard Self.names.contains(name), let value = try text(of: name, inode) else { throw .noData }
    return Array(value.utf8)
  }

  /// The names of its extended attributes.
  func names(of inode: Inode) throws(Errno) -> [String] {
    guard let node = try node(inode), node.kind == .file else { return [] }
    var names: [String] = []
    for name in Self.names where try text(of: name, inode) != nil { names.append(name) }
    return names
  }

  private func node(_ inode: Inode) throws(Errno) -> Node? {
    try room.io { () throws(StoreError) in try room.store.tree.node(inode) }
  }

  private func text(of name: String, _ inode: Inode) throws(Errno) -> String? {
    guard let node = try node(inode), node.kind == .file else { return nil }
    switch name {
    case "user.xdg.origin.url":
      let entry = try room.io { () throws(StoreError) in try room.store.tree.entry(inode) }
      return entry?.source.urls.first.map(Log.redacted(url:))
    case "user.mime_type":
      if let content = room.table.withLock({ $0.current[node.key] }) {
        return content.guarded.withLock { $0.held.generation?.mediaType }
      }
      return try room.io { () throws(StoreError) in try room.store.generations.current(of: node.key) }?
        .mediaType
    case "user.mediafs.state": return try FileReports(room).report(on: node).state.rawValue
    case "user.mediafs.stored": return String(try FileReports(room).report(on: node).stored)
    case "user.mediafs.error": return try FileReports(room).report(on: node).error
    default: return nil
    }
  }
}
