import Base
import Storing

/// What a file manager or a script may ask of a file besides its bytes. Any thread may ask, and waits for the disk.
struct ExtendedAttributes {
  private let room: ReadingRoom

  init(_ room: ReadingRoom) { self.room = room }

  private static let names = [
    "user.mime_type", "user.xdg.origin.url", "user.mediafs.state", "user.mediafs.stored", "user.mediafs.error",
    "user.mediafs.duration", "user.mediafs.holds_to", "user.mediafs.plays_from",
  ]

  /// The value of an extended attribute; ENODATA when the node has none of that name.
  func value(of name: String, _ inode: Inode) throws(Errno) -> [UInt8] {
    guard Self.names.contains(name), let value = try text(of: name, inode, readsIndex: true) else { throw .noData }
    return Array(value.utf8)
  }

  /// The names of its extended attributes. A listing of many files asks for them: no index is read for that.
  func names(of inode: Inode) throws(Errno) -> [String] {
    guard let node = try node(inode), node.kind == .file else { return [] }
    var names: [String] = []
    for name in Self.names where try text(of: name, inode, readsIndex: false) != nil { names.append(name) }
    return names
  }

  private func node(_ inode: Inode) throws(Errno) -> Node? {
    try room.io { () throws(StoreError) in try room.store.tree.node(inode) }
  }

  private func text(of name: String, _ inode: Inode, readsIndex: Bool) throws(Errno) -> String? {
    guard let node = try node(inode), node.kind == .file else { return nil }
    func film() throws(Errno) -> FilmReport? {
      try FileReports(room).report(on: node, readsIndex: readsIndex).film
    }
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
    case "user.mediafs.duration": return try film()?.duration.seconds
    case "user.mediafs.holds_to": return try film()?.holdsTo.seconds
    case "user.mediafs.plays_from": return try film()?.playsFrom?.seconds
    default: return nil
    }
  }
}

extension Double {
  /// Seconds with tenths, as the attributes tell them.
  fileprivate var seconds: String { String((self * 10).rounded() / 10) }
}
