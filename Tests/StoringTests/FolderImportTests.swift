import Base
import Glibc
import Manifest
import TestSupport
import Testing

@testable import Storing

/// What servers list, imported without the list that names their folders.
@Suite struct FolderImportTests {
  @Test("Folders that are imported alone give the tree that a whole import gives")
  func foldersAreAsAWhole() throws {
    var random = SeededRandom.fromEnvironment()
    var (alone, mixed) = (0, 0)
    for _ in 0..<30 {
      let folders = (CatalogFolder(), CatalogFolder())
      let (one, other) = (try folders.0.open(), try folders.1.open())
      let server = Listings()
      var shown = Shown()
      var list = ""
      for step in 0..<25 {
        let mostCompared = Int.random(in: 0..<4, using: &random) == 0 ? -1 : ListComparison.mostBytes
        if step % 8 == 0 {
          list = Self.list(&random)
          shown.take(try one.whole(list, server))
          _ = try other.whole(list, server)
        } else {
          let news = server.change(&random)
          let whole = try #require(try other.whole(list, server).changes)
          if shown.isMixed(news) {
            mixed += 1
            shown.take(try one.whole(list, server))
          } else {
            alone += 1
            var reports: [ImportReport] = []
            for depth in 0..<6 {
              let roots = shown.roots(news, at: depth)
              if roots.isEmpty { continue }
              let report = try #require(try one.folders(roots, shown, server, mostCompared: mostCompared))
              shown.take(also: report)
              reports.append(report)
            }
            if reports.count == 1, let changes = reports[0].changes {
              #expect(
                (changes.added, changes.removed, changes.relinked) == (whole.added, whole.removed, whole.relinked))
              #expect(changes.losses == whole.losses && changes.resources == whole.resources)
              #expect(changes.tree.count == whole.tree.count)
            }
          }
        }
        try #require(try one.state() == other.state())
        #expect(try one.tree.counts() == other.tree.counts())
      }
      let last = try one.whole(list, server)
      #expect(try #require(last.changes).isEmpty)
      #expect(last.servers == shown.folders && last.mixed.isSubset(of: shown.mixed))
    }
    #expect(alone > 100 && mixed > 20, "\(alone) \(mixed)")
  }

  /// Lists with folders of the server, and sometimes with lines of their own in those.
  private static func list(_ random: inout SeededRandom) -> String {
    var lines = ["http://h/t/\n  out=t\n"]
    if Bool.random(using: &random) { lines.append("http://h/s/\n  out=u/s\n") }
    if Int.random(in: 0..<4, using: &random) == 0 { lines.append("http://h/t/x/\n  out=t/y\n") }
    for number in 0..<Int.random(in: 0...6, using: &random) {
      let folders = ["", "u/", "v/"] + (Int.random(in: 0..<4, using: &random) == 0 ? ["t/", "t/x/", "t/x/y/"] : [])
      let path = (folders.randomElement(using: &random) ?? "") + (["a", "b", "x"].randomElement(using: &random) ?? "")
      lines.append("http://h/own/\(number)\n  out=\(path)\n")
    }
    return lines.shuffled(using: &random).joined()
  }

  @Test("A folder that comes costs nothing for the lines of the list, nor for other folders")
  func costFollowsTheFolder() throws {
    func cost(lines: Int, folders: Int) throws -> (reads: Int, writes: Int) {
      let catalog = try CatalogFolder().open()
      let server = Listings()
      server.set("http://h/t/", (0..<folders).map { "d\($0)/" })
      for number in 1..<folders { server.set("http://h/t/d\(number)/", ["a", "b"]) }
      let own = (0..<lines).map { "http://h/own/\($0)\n  out=v/\($0 / 10)/\($0)\n" }
      let list = own.joined() + "http://h/t/\n  out=t\n"
      var shown = Shown()
      shown.take(try catalog.whole(list, server))
      server.set("http://h/t/d0/", ["new", "a"])
      let before = (catalog.connections.steps, try catalog.writes())
      let report = try #require(try catalog.folders(shown.roots(["http://h/t/d0/"], at: 2), shown, server))
      #expect(report.changes?.added == 2)
      return (catalog.connections.steps - before.0, try catalog.writes() - before.1)
    }
    let (few, many) = (try cost(lines: 10, folders: 3), try cost(lines: 3000, folders: 300))
    #expect(many.reads < few.reads + 300 && many.writes < few.writes + 20, "\(few) \(many)")
  }

  @Test("A tree that is not as it was shown is left to an import of the list")
  func anotherTree() throws {
    let catalog = try CatalogFolder().open()
    let server = Listings()
    server.set("http://h/t/", ["x/"])
    var shown = Shown()
    shown.take(try catalog.whole("http://h/t/\n  out=t\n", server))
    _ = try catalog.whole("http://h/t/\n  out=elsewhere\n", server)
    let before = try catalog.state()
    #expect(try catalog.folders(shown.roots(["http://h/t/"], at: 1), shown, server) == nil)
    #expect(try catalog.state() == before)
  }

  @Test("A folder whose name is reserved is imported alone under the name that it has")
  func reservedName() throws {
    let catalog = try CatalogFolder().open()
    let server = Listings()
    server.set("http://h/t/", ["a"])
    var shown = Shown()
    shown.take(try catalog.whole("http://h/t/\n  out=.mediafs-incoming\n", server))
    server.set("http://h/t/", ["a", "b"])
    #expect(try catalog.folders(shown.roots(["http://h/t/"], at: 1), shown, server)?.changes?.added == 1)
    let names = ["_mediafs-incoming", "_mediafs-incoming/a", "_mediafs-incoming/b"]
    #expect(try catalog.listing().keys.sorted() == names)
  }

  @Test("Counts that make no sense, and folders that lie in each other, end no import")
  func damagedRows() throws {
    let catalog = try CatalogFolder().open()
    let server = Listings()
    server.set("http://h/t/", ["a", "x/"])
    server.set("http://h/t/x/", ["b"])
    var shown = Shown()
    shown.take(try catalog.whole("http://h/t/\n  out=t\n", server))
    func damage(_ changes: String) throws {
      try catalog.connections.withWriter { (connection, _) throws(StoreError) in try connection.run(changes) }
    }
    for (names, files) in [(Int64.min, Int64.max), (Int64.max, Int64.min)] {
      try damage(
        """
        UPDATE meta SET value = \(names) WHERE name = 'names'; UPDATE meta SET value = \(files) WHERE name = 'files'
        """)
      server.set("http://h/t/", ["a", "x/", "\(files)"])
      #expect(try catalog.folders(shown.roots(["http://h/t/"], at: 1), shown, server) != nil)
    }
    // A folder that leaves the list is the root, which contains that folder.
    try damage("UPDATE entry SET id = 1 WHERE name = 'x'")
    server.set("http://h/t/", ["a"])
    let error = storeError { _ = try catalog.folders(shown.roots(["http://h/t/"], at: 1), shown, server) }
    #expect(error?.kind == .corrupt)
  }

  @Test("What a folder loses counts against all names, and against those of its list")
  func losses() throws {
    let catalog = try CatalogFolder().open()
    let server = Listings()
    server.set("http://h/t/", ["a", "b", "x/"])
    server.set("http://h/t/x/", ["c", "d"])
    var shown = Shown()
    shown.take(try catalog.whole("http://h/own/1\n  out=v/1\nhttp://h/t/\n  out=t\n", server, lists: ["t"]))
    server.set("http://h/t/", ["a", "b"])
    let report = try catalog.folders(shown.roots(["http://h/t/"], at: 1), shown, server, lists: ["t"])
    let losses = try #require(report?.changes?.losses)
    #expect(losses == [ListLoss(removed: 3, names: 8), ListLoss(folder: "t", removed: 3, names: 5)])
    #expect(report?.files == 3 && report?.folders == 2)
  }
}

/// The servers' folders that a tree shows.
private struct Shown {
  var folders: [Inode: ManifestFolder] = [:]
  var mixed: Set<Inode> = []
  var hidden: Set<String> = []

  mutating func take(_ report: ImportReport) {
    (folders, mixed, hidden) = (report.servers, report.mixed, report.hidden)
  }

  mutating func take(also report: ImportReport) {
    for folder in report.gone { folders[folder] = nil }
    folders.merge(report.servers) { _, new in new }
  }

  func isMixed(_ urls: Set<String>) -> Bool {
    !hidden.isDisjoint(with: urls) || mixed.contains { folders[$0].map { urls.contains($0.source.url) } ?? false }
  }

  /// The folders that show these URLs, so many folders below the top: none is in another one.
  func roots(_ urls: Set<String>, at depth: Int) -> [Inode] {
    folders.filter { urls.contains($0.value.source.url) && $0.value.path.count == depth }.map(\.key)
  }
}

/// A file with that text.
private func file(_ text: String) throws -> FileDescriptor {
  let folder = try TemporaryFolder()
  defer { try? folder.remove() }
  return try FileDescriptor.open(folder.write(text, to: "text"), O_RDONLY)
}

/// A server's folders, which change.
private final class Listings: ServerFolders {
  private let pages = Lock<[String: (names: [String], url: String)]>([:])

  func set(_ url: String, _ names: [String], at answer: String? = nil) {
    pages.withLock { $0[url] = (names, answer ?? url) }
  }

  /// Changes some of what the server lists. Returns the URLs.
  func change(_ random: inout SeededRandom) -> Set<String> {
    var urls: Set<String> = []
    for _ in 0..<Int.random(in: 1...3, using: &random) {
      let place = ["", "x/", "y/", "x/y/", "x/x/"].randomElement(using: &random) ?? ""
      let url = "http://h/\(Bool.random(using: &random) ? "t" : "s")/\(place)"
      var names = ["a", "b", "x", "y", "a (2)", "x (2)"].shuffled(using: &random)
      names.removeLast(Int.random(in: 0...6, using: &random))
      names = names.map { Int.random(in: 0..<($0 == "x" || $0 == "y" ? 3 : 1), using: &random) == 0 ? $0 : $0 + "/" }
      // Another answer: all URLs below change; sometimes the folder is in itself.
      let answers = [url, url, url, url, "http://h/elsewhere/", "http://h/t/"]
      set(url, names, at: answers.randomElement(using: &random))
      urls.insert(url)
    }
    return urls
  }

  func listing(of folder: ServerFolder) throws(Errno) -> FolderListing? {
    guard let page = pages.withLock({ $0[folder.url] }) else { return nil }
    let objects = page.names.map { name in
      name.hasSuffix("/")
        ? #"{"name":"\#(name.dropLast())","type":"directory"}"# : #"{"name":"\#(name)","type":"file","size":7}"#
    }
    do {
      return FolderListing(
        file: try file("[\(objects.joined(separator: ","))]"), url: page.url, mediaType: "application/json")
    } catch {
      throw .io
    }
  }
}

/// What an entry shows.
private struct Shape: Equatable {
  var kind: Node.Kind
  var key: ResourceKey
  var size: Int64?
  var source: ManifestEntry?
}

extension Catalog {
  fileprivate func whole(_ list: String, _ server: Listings, lists: [String] = []) throws -> ImportReport {
    let reader = try ManifestReader(descriptor: try file(list), name: "list", folders: server)
    return try importManifest(
      reader, fingerprint: [1], strict: false, report: { _ in }, watcher: watcher(lists))
  }

  fileprivate func folders(
    _ roots: [Inode], _ shown: Shown, _ server: Listings, lists: [String] = [],
    mostCompared: Int = ListComparison.mostBytes
  ) throws -> ImportReport? {
    let scope = ImportScope(roots, shown: { shown.folders[$0] }, server, resolver: nil, name: "list")
    do throws(StoreError) {
      return try importBatches(
        fingerprint: [], strict: false, report: { _ in }, watcher: watcher(lists), mostCompared: mostCompared,
        scope: scope
      ) { () throws(StoreError) in try scope.next() }
    } catch {
      if scope.isUnfit { return nil }
      throw error
    }
  }

  private func watcher(_ lists: [String]) -> ImportWatcher {
    ImportWatcher(lists: lists, beforeCommit: { _ throws(StoreError) in }, committed: { _ in })
  }

  /// All that shows, without numbers that say how it came.
  fileprivate func state() throws -> [String: Shape] {
    try listing().mapValues { node in
      Shape(
        kind: node.kind, key: node.key, size: node.listedSize,
        source: node.kind == .file ? try tree.entry(node.inode)?.source : nil)
    }
  }

  fileprivate func writes() throws -> Int {
    try connections.withWriter { (connection, _) throws(StoreError) in connection.runs }
  }
}
