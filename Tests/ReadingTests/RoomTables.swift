import Base
import Testing

@testable import Reading
@testable import Storing

/// The contents in memory, by inode and by resource.
@Suite struct RoomTables {
  private func content() -> Content {
    let entry = Bench.entry("a.mp4", 1)
    let node = Node(entry: 2, inode: 2, parent: rootInode, kind: .file, name: entry.name, key: entry.key)
    return Content(record: EntryRecord(node: node, path: entry.name, source: entry), held: FileState())
  }

  /// Where the contents by inode are in memory.
  private static func place(of table: Table) -> UInt { unsafeBitCast(table.contents, to: UInt.self) }

  @Test("A content that is removed takes the inodes along that lead to it, and no others")
  func removes() {
    var table = Table()
    let (old, new) = (content(), content())
    let first = [table.insert(old, inode: 2), table.insert(new, inode: 3)]
    #expect(first.allSatisfy { $0 === old }, "two contents of one version")
    table.note(old, inode: 4)
    table.current[new.key] = new
    table.note(new, inode: 4)
    table.note(new, inode: 5)
    let departures = table.departures
    let place = Self.place(of: table)
    table.remove(old)
    #expect(Self.place(of: table) == place, "a search through all contents copied them")
    #expect(Set(table.contents.keys) == [4, 5] && table.current[new.key] === new)
    table.note(new, inode: 2)
    table.remove(old)  // as for who comes too late
    #expect(Set(table.contents.keys) == [2, 4, 5])
    table.remove(new)
    #expect(table.contents.isEmpty && table.current.isEmpty && table.departures == departures + 3)
  }
}
