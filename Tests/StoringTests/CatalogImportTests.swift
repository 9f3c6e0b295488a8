import Base
import Glibc
import Manifest
import TestSupport
import Testing

@testable import Storing

@Suite struct CatalogImportTests {
  private func names(_ catalog: Catalog) throws -> [String: UInt64] {
    try catalog.listing().filter { $0.value.kind == .file }.mapValues { $0.key.low }
  }

  @Test func aTreeIsLookedUpAndListed() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    let report = try catalog.load([
      line("b.mp3", 1), line("music/a/x.flac", 2), line("music/y.flac", 3), line("a.mp3", 1),
    ])
    #expect(report == ImportReport(epoch: 1, files: 4, folders: 2, problems: 0, duplicates: 0))
    #expect(try catalog.tree.counts() == CatalogCounts(names: 6, files: 4))
    // The manifest's order, by id.
    #expect(try catalog.tree.list(rootInode, after: 0, limit: 10).map(\.name) == ["b.mp3", "music", "a.mp3"])
    let music = try #require(try catalog.look("music"))
    #expect(music.kind == .folder)
    #expect(Int64(music.inode) == music.entry)
    #expect(try catalog.tree.parent(of: music.inode) == rootInode)
    let inner = try #require(try catalog.look("a", in: music.inode))
    #expect(try catalog.tree.parent(of: inner.inode) == music.inode)
    let x = try #require(try catalog.tree.find(path: "/music//a/x.flac"))
    #expect(x.parent == inner.inode)
    #expect(try catalog.tree.path(of: x.inode) == "music/a/x.flac")
    #expect(try catalog.tree.path(of: rootInode) == "")
    #expect(try catalog.tree.node(rootInode)?.kind == .folder)
    #expect(try catalog.tree.node(x.inode) == x)
    #expect(try catalog.tree.node(999) == nil)
    #expect(try catalog.tree.find(path: "music/b.mp3") == nil)
    #expect(try catalog.look("") == nil)
    let noText: [UInt8] = [0xff, 0xfe]
    #expect(try noText.withUnsafeBufferPointer { try catalog.tree.lookup(parent: rootInode, name: $0) } == nil)
    #expect(try catalog.tree.entries(of: key(1)).map(\.path).sorted() == ["a.mp3", "b.mp3"])
  }

  @Test("What mediafs has at the library's top, no file and no folder there is called")
  func reservedNames() throws {
    for own in [LibraryFolder.incoming, LibraryMarker.name] {
      let plain = own.dropFirst()
      let catalog = try CatalogFolder().open()
      try catalog.load([line(own, 1), line("_\(plain)", 2), line(own.uppercased(), 3), line("\(own)s", 4)])
      #expect(
        try names(catalog) == ["_\(plain)": 1, "_\(plain) (2)": 2, "_\(plain.uppercased())": 3, "\(own)s": 4])
      try catalog.load([line("\(own)/a", 5), line("b/\(own)", 6)])
      let paths = try catalog.listing().filter { $0.value.kind == .file }.values.map { node in
        try catalog.tree.path(of: node.inode) ?? ""
      }
      #expect(paths.contains("b/\(own)") && !paths.contains { $0.hasPrefix(".") })
    }
  }

  @Test func entriesOfOneNameAreNumberedAndRemembered() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load([line("a.mp3", 1), line("a.mp3", 2), line("a (2).mp3", 3), line("a.mp3", 4)])
    let first = try catalog.listing()
    #expect(try names(catalog) == ["a.mp3": 1, "a (3).mp3": 2, "a (2).mp3": 3, "a (4).mp3": 4])
    // Another order, one gone, one new: names stay with their resource, and its inode too.
    try catalog.load([line("a.mp3", 5), line("a.mp3", 4), line("a.mp3", 2)])
    #expect(try names(catalog) == ["a.mp3": 5, "a (3).mp3": 2, "a (4).mp3": 4])
    #expect(try catalog.listing()["a (3).mp3"]?.inode == first["a (3).mp3"]?.inode)
    // The first one comes back, and its name is taken; the numbers given are not given again.
    try catalog.load([line("a.mp3", 1), line("a.mp3", 5)])
    #expect(try names(catalog) == ["a.mp3": 5, "a (5).mp3": 1])
    #expect(try catalog.listing()["a (5).mp3"]?.entry == first["a.mp3"]?.entry)
  }

  @Test func whoWentAndComesBackIsTheSame() throws {
    let folder = CatalogFolder()
    var catalog = try folder.open()
    try catalog.load([line("f/a", 1), line("f/a", 2), line("b", 3)])
    let before = try catalog.listing()
    try catalog.load([line("b", 3)])
    #expect(try Set(catalog.listing().keys) == ["b"])
    #expect(try catalog.tree.counts() == CatalogCounts(names: 1, files: 1))
    // A handle that is open still has its node.
    let inode = try #require(before["f/a"]?.inode)
    #expect(try catalog.tree.node(inode)?.name == "a")
    try catalog.close()
    catalog = try folder.open()
    try catalog.load([line("f/a", 2), line("b", 3), line("f/a", 1)])
    #expect(try catalog.listing() == before)
  }

  @Test func fileAndFolderOfOneName() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load([line("a", 1), line("a/x", 2), line("b/x", 3), line("b", 4)])
    let tree = try catalog.listing()
    #expect(Set(tree.keys) == ["a", "a (2)", "a (2)/x", "b", "b/x", "b (2)"])
    #expect(tree["a"]?.kind == .file && tree["a (2)"]?.kind == .folder)
    #expect(tree["b"]?.kind == .folder && tree["b (2)"]?.key == key(4))
    // What the manifest said is told apart from what is shown.
    #expect(try catalog.tree.entries(of: key(2)).first?.source.folder == ["a"])
    #expect(try catalog.tree.entries(of: key(2)).first?.path == "a (2)/x")
    try catalog.load([line("a/x", 2), line("b", 4), line("a", 1), line("b/x", 3)])
    #expect(try catalog.listing() == tree)
  }

  @Test func aLineTwiceIsOneEntry() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    let entries = [line("a", 1), line("a", 2), line("a", 1), line("a", 2), line("b", 1), line("a", 2)]
    for _ in 0..<2 {
      var reported: [(Int, String)] = []
      let report = try catalog.load(entries) { reported.append(($0.line, $0.message)) }
      #expect(report.duplicates == 3)
      #expect(report.problems == 3)
      #expect(reported.map(\.0).sorted() == [3, 4, 6])
      for (line, message) in reported { #expect(message.contains(line == 3 ? "line 1;" : "line 2;")) }
      #expect(try names(catalog) == ["a": 1, "a (2)": 2, "b": 1])
      #expect(try catalog.tree.counts() == CatalogCounts(names: 3, files: 3))
    }
  }

  @Test func aFailedImportChangesNothing() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    let problem = ManifestItem.problem(ManifestProblem(line: 2, severity: .error, message: "no URL"))
    let warning = ManifestItem.problem(ManifestProblem(line: 3, severity: .warning, message: "a playlist"))
    func load(_ items: [ManifestItem], strict: Bool) throws -> ImportReport {
      var rest = items[...]
      return try catalog.importItems(fingerprint: [9], strict: strict, report: { _ in }) { rest.popFirst() }
    }
    for _ in 0..<2 {  // an empty catalog, then one that is not
      let before = try catalog.listing()
      let fingerprint = try catalog.importedFingerprint()
      #expect(storeError { _ = try load([], strict: false) }?.kind == .invalid)
      #expect(storeError { _ = try load([problem], strict: false) }?.kind == .invalid)
      #expect(
        storeError { _ = try load([.entry(line("z", 9)), problem], strict: true) }?.message.contains("line 2") == true)
      #expect(try catalog.listing() == before)
      #expect(try catalog.importedFingerprint() == fingerprint)
      try catalog.load([line("a", 1)], fingerprint: [1])
    }
    #expect(try load([.entry(line("z", 9, line: 1)), warning], strict: true).problems == 1)
    #expect(try load([.entry(line("z", 9, line: 1)), problem], strict: false).problems == 1)
    #expect(try catalog.importedFingerprint() == [9])
    #expect(try Set(catalog.listing().keys) == ["z"])
  }

  @Test func aPathThatLinuxCannotHaveIsAProblem() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    let deep = String(repeating: "0123456789/", count: 372)
    var problems: [ManifestProblem] = []
    let report = try catalog.load([line(deep + "abc", 1), line(deep + "abcd", 2), line("b", 3)]) { problems.append($0) }
    #expect(report.files == 2)
    #expect(problems.map(\.line) == [2])
    #expect(problems.first?.severity == .error)
    let node = try #require(try catalog.tree.find(path: deep + "abc"))
    #expect(try catalog.tree.path(of: node.inode)?.utf8.count == 4095)
  }

  @Test func aRealManifestIsImported() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    let text = "# list\nhttps://example.com/a.mp3\n\tnonsense\nhttps://example.com/b.mp3\n  dir=x\n  out=c.mp3\n"
    let report = try catalog.importManifest(
      ManifestReader(bytes: Array(text.utf8), name: "test"), fingerprint: [7], strict: false, report: { _ in })
    #expect(report.files == 2)
    #expect(try catalog.tree.find(path: "x/c.mp3") != nil)
    try catalog.close()
    #expect(try folder.open().importedFingerprint() == [7])
  }

  @Test func aHundredThousandOfOneName() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    let entries = (1...100_000).map { line("talk.mp4", $0) }
    #expect(try catalog.load(entries).files == 100_000)
    #expect(try catalog.look("talk (100000).mp4")?.key == key(100_000))
    #expect(try catalog.load(entries + [line("talk.mp4", 200_000)]).files == 100_001)
    #expect(try catalog.look("talk (100001).mp4")?.key == key(200_000))
  }

  /// Long names that a number cuts to one: each would try the numbers of all others.
  @Test func manyLongNamesThatAreCutToOne() throws {
    let catalog = try CatalogFolder().open()
    let stem = String(repeating: "a", count: 248)
    let entries = (1...9_999).flatMap { (number: Int) -> [ManifestEntry] in
      let name = "\(stem)\(1_000_000 + number)"
      return [line(name, UInt64(number)), line(name, UInt64(10_000 + number))]
    }
    let report = try withWatchdog(180, "the numbers of long names") { try catalog.load(entries) }
    #expect(report.files == 19_998)
    let cut = String(repeating: "a", count: 247)
    #expect(try catalog.look("\(cut) (10000)")?.key == key(19_999))
    // The numbers only increase.
    try catalog.load([line("\(stem)1000001", 1), line("\(stem)1000001", 30_000)])
    #expect(try catalog.look("\(cut) (10001)")?.key == key(30_000))
  }

  @Test func longNamesThatNoNumberCutsHaveTheirOwnNumbers() throws {
    let catalog = try CatalogFolder().open()
    let names = ["a", "b"].map { String(repeating: "x", count: 250) + $0 }
    let entries = names.enumerated().flatMap { (place, name) -> [ManifestEntry] in
      [line(name, UInt64(place)), line(name, UInt64(10 + place))]
    }
    try catalog.load(entries)
    for (place, name) in names.enumerated() {
      #expect(try catalog.look("\(name) (2)")?.key == key(UInt64(10 + place)))
    }
  }

  @Test func readersSeeTheOldTreeOrTheNewOne() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    let old = (1...500).map { line("old \($0)", $0) }
    let new = (1...700).map { line("new \($0)", $0) }
    try catalog.load(old)
    let isDone = Lock(false)
    let seen = Lock<Set<Int>>([])
    let reader = OwnedThread(name: "reader") {
      while !isDone.withLock({ $0 }) {
        let count = (try? catalog.tree.list(rootInode, after: 0, limit: 10_000).count) ?? -1
        seen.withLock { _ = $0.insert(count) }
      }
    }
    for _ in 0..<5 {
      try catalog.load(new)
      try catalog.load(old)
    }
    isDone.withLock { $0 = true }
    reader.join()
    #expect(seen.withLock { $0 }.isSubset(of: [500, 700]))
  }

  // MARK: - Extensions

  @Test func anExtensionShowsFromTheNextMountOn() throws {
    let folder = CatalogFolder()
    var catalog = try folder.open()
    let entries = [
      line("talk", 1, mayGain: true), line("talk", 2, mayGain: true), line("fixed", 1),
      line("x/talk", 1, mayGain: true),
      line("talk.mp4", 3),
    ]
    try catalog.load(entries)
    let before = try catalog.listing()
    try catalog.changes.apply([.gainedExtension(key(1), ".mp4"), .gainedExtension(key(2), "mp4")], durably: false)
    try catalog.load(entries)
    #expect(try catalog.listing() == before)  // never under a mount, a reload included
    try catalog.close()
    catalog = try folder.open()
    #expect(try catalog.tree.applyPendingExtensions() == 3)
    let shown: [String: UInt64] = ["talk (2).mp4": 1, "talk (3).mp4": 2, "fixed": 1, "x/talk.mp4": 1, "talk.mp4": 3]
    #expect(try names(catalog) == shown)
    // The old names lead to the same inodes.
    #expect(try catalog.tree.find(path: "talk")?.inode == before["talk"]?.inode)
    #expect(try catalog.tree.find(path: "talk")?.name == "talk (2).mp4")
    #expect(try catalog.tree.find(path: "talk (2)")?.key == key(2))
    #expect(try catalog.tree.find(path: "x/talk")?.name == "talk.mp4")
    #expect(try catalog.tree.applyPendingExtensions() == 0)
    // Learned again, or imported again: nothing is gained twice.
    try catalog.changes.apply([.gainedExtension(key(1), "mp4")], durably: false)
    #expect(try catalog.tree.applyPendingExtensions() == 0)
    try catalog.load(entries)
    #expect(try names(catalog) == shown)
    // Another resource does not take a name by which one is still found, until that one is gone.
    try catalog.load(entries + [line("talk", 4)])
    #expect(try catalog.tree.find(path: "talk")?.key == key(1))
    #expect(try catalog.tree.entries(of: key(4)).first?.path == "talk (3)")
    try catalog.load([line("talk", 5)])
    #expect(try catalog.tree.find(path: "talk")?.key == key(5))
  }

  @Test func aNewNameOfAKnownResourceGainsItsExtensionToo() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    try catalog.load([line("a", 1, mayGain: true)])
    try catalog.changes.apply([.gainedExtension(key(1), "ogg")], durably: false)
    try catalog.load([line("b", 1, mayGain: true)])
    #expect(try catalog.tree.applyPendingExtensions() == 1)
    #expect(try Set(catalog.listing().keys) == ["b.ogg"])
    #expect(
      storeError { try catalog.changes.apply([.gainedExtension(key(1), "a/b")], durably: false) }?.kind == .invalid)
  }
}
