import Base
import Glibc
import Manifest
import TestSupport
import Testing

@testable import Storing

/// A list that is imported again: only what differs is written, and whoever shows the tree is told of it.
@Suite struct ListReloadTests {
  @Test("A difference gives the tree that a whole import gives")
  func differenceIsAsAWhole() throws {
    var random = SeededRandom.fromEnvironment()
    for _ in 0..<12 {
      let (one, other) = (CatalogFolder(), CatalogFolder())
      let (compared, whole) = (try one.open(), try other.open())
      var list = (0..<UInt64.random(in: 1...40, using: &random)).map { Self.entry(UInt64($0), &random) }
      for _ in 0..<8 {
        let (reports, wholes) = (Lock<[String]>([]), Lock<[String]>([]))
        let size = Int.random(in: 1...9, using: &random)
        let first = try compared.reload(
          list, batch: size, report: { problem in reports.withLock { $0.append(problem.message) } })
        let second = try whole.reload(
          list, mostCompared: -1, report: { problem in wholes.withLock { $0.append(problem.message) } })
        #expect(try compared.listing() == whole.listing())
        #expect(try compared.lines() == whole.lines())
        #expect(try compared.lines() == Self.lines(of: list))
        #expect(first == second)
        #expect(reports.withLock { $0.sorted() } == wholes.withLock { $0.sorted() })
        Self.edit(&list, &random)
      }
    }
  }

  private static func entry(_ number: UInt64, _ random: inout SeededRandom) -> ManifestEntry {
    let folder = ["", "", "x/", "x/y/", "z/"].randomElement(using: &random)!
    let name = Bool.random(using: &random) ? "a\(number % 7)" : "b\(number)"
    return line("\(folder)\(name)", number)
  }

  private static func edit(_ list: inout [ManifestEntry], _ random: inout SeededRandom) {
    for _ in 0..<Int.random(in: 0...6, using: &random) {
      let place = Int.random(in: 0..<list.count, using: &random)
      switch Int.random(in: 0..<6, using: &random) {
      case 0: list.insert(entry(.random(in: 0...60, using: &random), &random), at: place)
      case 1: if list.count > 1 { list.remove(at: place) }
      case 2: list[place].urls = ["https://example.com/other/\(UInt64.random(in: 0...3, using: &random))"]
      case 3: list.swapAt(place, Int.random(in: 0..<list.count, using: &random))
      case 4: list.append(list[place])  // a line that is repeated
      default: list[place] = entry(.random(in: 0...60, using: &random), &random)
      }
    }
  }

  /// The line of each entry: of one that is repeated, of the first.
  private static func lines(of list: [ManifestEntry]) -> [Int] {
    var seen: Set<String> = []
    return list.indices.filter { index in
      let entry = list[index]
      return seen.insert((entry.folder + [entry.name, "\(entry.key.low)"]).joined(separator: "/")).inserted
    }.map { $0 + 1 }
  }

  @Test("A file that is shown with another size is asked for anew by the kernel; others are not")
  func shownAnew() throws {
    let catalog = try CatalogFolder().open()
    func list(_ sizes: [Int64?], date: Int64? = nil) -> [ManifestEntry] {
      sizes.enumerated().map { index, size in
        var entry = line("\(index)", UInt64(index + 1))
        var facts = EntryFacts()
        (facts.size, facts.date) = (size, date)
        if size != nil { entry.facts = facts }
        return entry
      }
    }
    try catalog.load(list([1000, nil, 1000, 1000]))
    #expect(try catalog.look("0")?.listedSize == 1000)
    var next = list([2000, 2000, 1000, 2000], date: 1_600_000_000)
    next[2].urls = ["https://example.com/elsewhere"]
    // The origin has answered for the last one: stat shows its size.
    let answered = GenerationRecord(
      id: try catalog.changes.nextID(), key: next[3].key, validators: Validators(etag: "\"1\""), size: 1500,
      mediaType: nil)
    try catalog.changes.apply([.learned(answered)], durably: false)
    let changes = try #require(try catalog.reload(next).changes)
    #expect(changes.tree == [.replaced(parent: rootInode, name: "0")] && changes.relinked == 1)
    #expect(changes.resources == [next[0].key, next[2].key, next[3].key])
    #expect(try catalog.look("0")?.listedSize == 2000 && catalog.look("1")?.listedSize == 2000)
    #expect(try catalog.look("3")?.listedSize == nil)
    #expect(try catalog.reload(next).changes?.isEmpty == true)
  }

  @Test("What came, went, and has other links")
  func whatChanged() throws {
    let catalog = try CatalogFolder().open()
    try catalog.load([line("a", 1), line("x/b", 2), line("x/y/c", 3), line("d", 4), line("e", 5)])
    let before = try catalog.listing()
    var linked = line("d", 4)
    linked.urls = ["https://example.com/elsewhere"]
    let report = try catalog.reload([line("a", 1), line("z/f", 6), linked, line("e", 7)])
    let changes = try #require(report.changes)
    let after = try catalog.listing()
    let (x, y, z) = (before["x"]!.inode, before["x/y"]!.inode, after["z"]!.inode)
    #expect(
      Array(changes.tree) == [
        .replaced(parent: rootInode, name: "e"), .removed(parent: y, name: "c", isFolder: false),
        .removed(parent: x, name: "y", isFolder: true), .removed(parent: x, name: "b", isFolder: false),
        .removed(parent: rootInode, name: "x", isFolder: true), .added(parent: rootInode, name: "z", isFolder: true),
        .added(parent: z, name: "f", isFolder: false),
      ])
    #expect(changes.resources == [key(2), key(3), key(4), key(5), key(6), key(7)])
    #expect((changes.added, changes.removed, changes.relinked) == (2, 4, 2))
    #expect(changes.losses == [ListLoss(removed: changes.removed, names: 7)])
    #expect(before["a"]?.inode == after["a"]?.inode && before["d"]?.inode == after["d"]?.inode)
    #expect(try catalog.reload([line("a", 1), line("z/f", 6), linked, line("e", 7)]).changes == ListChanges(names: 5))
  }

  @Test("Names that differ only in their normalization are two names")
  func normalization() throws {
    let (composed, decomposed) = ("\u{e9}.mkv", "e\u{301}.mkv")
    let catalog = try CatalogFolder().open()
    try catalog.load([line("a", 1), line(composed, 2)])
    let changes = try #require(try catalog.reload([line("a", 1), line(decomposed, 3)]).changes)
    #expect((changes.added, changes.removed, changes.relinked) == (1, 1, 0))
    #expect(changes.tree.count == 2)
    // As the next server has the kernel forget them.
    let names = try catalog.lastChanges().map { change in
      if case .replaced(_, let name) = change { Array(name.utf8) } else { [UInt8]() }
    }
    #expect(names == [Array(composed.utf8), Array(decomposed.utf8)])
  }

  @Test("A catalog's other writers do not wait while a list is compared")
  func writersGoOn() throws {
    let catalog = try CatalogFolder().open()
    let list = (0..<100).map { line("\($0)", UInt64($0)) }
    try catalog.load(list)
    let written = Signal()
    var hasWritten = false
    _ = try catalog.reload(
      list + [line("new", 1000)], batch: 10,
      each: {
        let writer = OwnedThread(name: "writer") {
          do { try catalog.remember("limit", 1) } catch { Issue.record(error) }
          written.raise()
        }
        hasWritten = written.wait(seconds: 20)
        if hasWritten { writer.join() } else { writer.detach() }
      })
    #expect(hasWritten)
  }

  @Test("Ten lines of many cost as many statements of the writer, wherever the others move")
  func costFollowsTheDifference() throws {
    let catalog = try CatalogFolder().open()
    let list = (0..<5000).map { line("\($0 % 9)/\($0)", UInt64($0)) }
    try catalog.load(list)
    let before = try catalog.writes()
    var changed = list
    for index in stride(from: 7, to: 5000, by: 500) { changed[index] = line("new/\(index)", UInt64(10_000 + index)) }
    try catalog.reload(changed)
    let cost = try catalog.writes() - before
    #expect(cost < 300, "\(cost) statements")
    // A line more at the start gives each row another number.
    let moved = [line("first", 20_000)] + changed
    try catalog.reload(moved)
    #expect(try catalog.writes() - before - cost < 100)
    #expect(try catalog.lines() == Array(1...5001))
    #expect(try catalog.importedFingerprint() == [1])
  }

  @Test("What a long list lacks goes, and nothing else, wherever its rows and lines lie")
  func longLists() throws {
    var random = SeededRandom.fromEnvironment()
    let catalog = try CatalogFolder().open()
    let list = (0..<3000).map { line("\($0 % 7)/\($0)", UInt64($0)) }
    try catalog.load(list)
    var kept = list.filter { $0.key.low % 11 != 0 }
    for size in [1, 200, 3000] {
      kept.shuffle(using: &random)
      let before = try catalog.listing().count
      let last = kept.removeLast()
      // Batches are no larger. The rows were read with the lines: none is left to read after the last one.
      if size <= ImportBatch.most { #expect(try catalog.stepsAfterLastLine(of: kept, batch: size) < 100) }
      let changes = try #require(try catalog.reload(kept, batch: size).changes)
      let names = Set(kept.flatMap { [$0.folder[0], "\($0.folder[0])/\($0.name)"] })
      #expect(try Set(catalog.listing().keys) == names, "without \(last.name)")
      #expect(changes.removed == before - names.count && changes.added == 0)
      #expect(try catalog.lines() == Array(1...kept.count))
    }
  }

  @Test("Who gave a list hears that it is shown at once, also at a first import: before the numbers of many lines")
  func taken() throws {
    let catalog = try CatalogFolder().open()
    let list = (0..<2100).map { line("\($0)", UInt64($0)) }
    var seen: [(files: Int64, isDone: Bool)] = []
    func look() {
      do {
        let isDone = try catalog.importedFingerprint() == [1]
        seen.append((try catalog.tree.counts().files, isDone))
      } catch {
        Issue.record(error)
      }
    }
    try catalog.load(list, taken: look)
    // The numbers of more rows change than are written with the tree.
    try catalog.load([line("first", 5000)] + list, taken: look)
    try catalog.reload(list, taken: look)
    #expect(seen.map(\.files) == [2100, 2101, 2100] && seen.map(\.isDone) == [true, false, false], "\(seen)")
    #expect(try catalog.importedFingerprint() == [1] && catalog.lines() == Array(1...2100))
    #expect(throws: StoreError.self) { try catalog.load([], taken: look) }
    #expect(seen.count == 3, "a list that is refused was not taken")
  }

  @Test("Rows whose ids or lines are damaged cost the shift of many lines nothing")
  func damagedNumbers() throws {
    let catalog = try CatalogFolder().open()
    func damage(_ change: String) throws {
      try catalog.connections.withWriter { (connection, _) throws(StoreError) in
        try connection.run("UPDATE entry SET \(change)")
      }
    }
    var list = (0..<2100).map { line("\($0)", UInt64($0)) }
    try catalog.load(list)
    try damage("id = 10000000 WHERE name = '2099'")
    list.insert(line("first", 5000), at: 0)
    let before = try catalog.writes()
    try catalog.reload(list)
    #expect(try catalog.writes() - before < 100)
    #expect(try catalog.lines() == Array(1...2101))
    try damage("id = 9223372036854775807, line = 5 WHERE name = '2099'")
    list.insert(line("second", 5001), at: 0)
    try catalog.reload(list)
    #expect(try catalog.lines() == Array(1...2102))
  }

  @Test("Whoever shows the tree can refuse all of it")
  func refused() throws {
    let catalog = try CatalogFolder().open()
    try catalog.load([line("a", 1), line("b", 2)])
    let before = try (catalog.listing(), catalog.lines())
    let error = storeError {
      try catalog.reload([line("c", 3)], beforeCommit: { _ throws(StoreError) in throw StoreError(.invalid, "no") })
    }
    #expect(error?.message == "no")
    #expect(try catalog.listing() == before.0 && catalog.lines() == before.1)
  }

  @Test("What failed is forgotten with the link that failed")
  func forgivesNewLinks() throws {
    let catalog = try CatalogFolder().open()
    try catalog.load([line("a", 1), line("b", 2)])
    try catalog.changes.apply([.problem(key(1), "HTTP 403"), .problem(key(2), "HTTP 404")], durably: false)
    var linked = line("a", 1)
    linked.urls = ["https://example.com/1?signature=new"]
    try catalog.reload([linked, line("b", 2)])
    #expect(try catalog.notes.problem(of: key(1)) == nil)
    #expect(try catalog.notes.problem(of: key(2)) != nil)
  }
}

/// What a difference leaves in the catalog's log.
@Suite struct ListLogTests {
  @Test("The log is short again after a large difference, whether it was compared to its end or not")
  func large() throws {
    let long = String(repeating: "a long name ", count: 18)
    for mostCompared in [ListComparison.mostBytes, 0] {
      let folder = CatalogFolder()
      let catalog = try folder.open()
      func lines(each step: UInt64) -> [ManifestEntry] {
        stride(from: 1, to: 90_000, by: Int(step)).map { line("folder/\(long)\($0)", UInt64($0)) }
      }
      func length() throws -> Int64 {
        var status = stat()
        try #require(stat(folder.catalog + "-wal", &status) == 0)
        return Int64(status.st_size)
      }
      try catalog.load(lines(each: 1))
      try catalog.reload(lines(each: 500), batch: 200, mostCompared: mostCompared)
      #expect(try length() <= 16 << 20)
    }
  }
}

/// Several lists, each in a folder of its own, and one at the top.
@Suite struct ListLossTests {
  @Test("Each of several lists loses names of its own")
  func several() throws {
    let catalog = try CatalogFolder().open()
    let top = zip(["p", "q", "r", "x/1", "x/2"], 100...).map { line($0, $1) }
    let films = (0..<4 as Range<UInt64>).map { line("films/deep/\($0)", 200 + $0) }
    let talks = (0..<30 as Range<UInt64>).map { line("talks/\($0)", 300 + $0) }
    try catalog.load(top + films + talks)
    // One film goes, and one has another name; of the top nothing but a folder and what is in it; no talk.
    let next = Array(top[..<3]) + [line("films/deep/1", 201), line("films/deep/new", 299)] + talks
    for mostCompared in [ListComparison.mostBytes, 0] {
      var compared: [ListLoss] = []
      var written: [ListLoss] = []
      #expect(throws: StoreError.self) {
        try catalog.reload(
          next, mostCompared: mostCompared, lists: ["films", "talks"], compared: { compared = $0 },
          beforeCommit: { changes throws(StoreError) in
            written = changes.losses
            throw StoreError(kind: .invalid, message: "no")
          })
      }
      // A new name may be one of those that go, until all are known.
      let atLeast = [
        ListLoss(removed: 5, names: 43), ListLoss(folder: "", removed: 3, names: 6),
        ListLoss(folder: "films", removed: 2, names: 4),
      ]
      #expect(compared == (mostCompared == 0 ? [] : atLeast))
      #expect(
        written == [
          ListLoss(removed: 6, names: 43), ListLoss(folder: "", removed: 3, names: 6),
          ListLoss(folder: "films", removed: 3, names: 5),
        ])
      #expect(written.count == 3 && !written[1].isMost && written[2].isMost)
    }
    #expect(try catalog.reload(next).changes?.losses == [ListLoss(removed: 6, names: 43)])
  }
}

extension ListChanges {
  fileprivate init(names: Int64) {
    self.init()
    losses = [ListLoss(removed: 0, names: names)]
  }
}

extension Catalog {
  /// Imports a list again under a mount. `each` is called before each batch.
  @discardableResult
  fileprivate func reload(
    _ entries: [ManifestEntry], batch size: Int = 4, mostCompared: Int = ListComparison.mostBytes,
    lists: [String] = [], compared: @escaping ([ListLoss]) -> Void = { _ in }, each: () -> Void = {},
    beforeCommit: @escaping (ListChanges) throws(StoreError) -> Void = { _ in },
    report: (ManifestProblem) -> Void = { _ in }, taken: () -> Void = {}
  ) throws -> ImportReport {
    var index = 0
    let watcher = ImportWatcher(
      lists: lists, compared: compared, beforeCommit: beforeCommit, committed: { _ in })
    return try importBatches(
      fingerprint: [1], strict: false, report: report, watcher: watcher, mostCompared: mostCompared, taken: taken
    ) { () throws(StoreError) in
      each()
      return Self.batch(of: entries, from: &index, size)
    }
  }

  /// The next entries, numbered as lines; nil at the end.
  private static func batch(of entries: [ManifestEntry], from index: inout Int, _ size: Int) -> ImportBatch? {
    guard index < entries.count else { return nil }
    var batch = ImportBatch()
    for _ in 0..<size where index < entries.count {
      var entry = entries[index]
      index += 1
      entry.line = index
      batch.append(.entry(entry))
    }
    return batch
  }

  /// How many steps SQLite takes to find what the list lacks, once its last line has been compared.
  fileprivate func stepsAfterLastLine(of entries: [ManifestEntry], batch size: Int) throws -> Int {
    var index = 0
    var before = 0
    return try connections.read(snapshot: true) { (connection) throws(StoreError) in
      _ = try ListComparison.run(
        connection, strict: false, most: ListComparison.mostBytes, report: { _ in }
      ) { () throws(StoreError) in
        let batch = Self.batch(of: entries, from: &index, size)
        if batch == nil { before = connection.steps }
        return batch
      }
      return connection.steps - before
    }
  }

  /// The lines of all listed files, in their order.
  fileprivate func lines() throws -> [Int] {
    try listing().values.filter { $0.kind == .file }.compactMap { try tree.entry($0.inode)?.source.line }.sorted()
  }

  /// How many statements the writer has run.
  fileprivate func writes() throws -> Int {
    try connections.withWriter { (connection, _) throws(StoreError) in connection.runs }
  }
}
