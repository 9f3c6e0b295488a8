import Base
import Glibc
import Manifest
import TestSupport
import Testing

@testable import Storing

/// Manifests that mean harm, imported into a catalog: what the mount would show of them.
@Suite("Hostile manifests")
struct ManifestFuzzTests {
  private static let seeds: [[UInt8]] = [
    "http://h/a.mp4\n out=../../etc/passwd\n dir=/../..//x\nhttp://h/b\n dir=..\n",
    "http://h/%2e%2e/%2e%2e/%2Fetc%2fshadow\nhttp://h/x\n out=/abs/olute.mp3\n dir=a/b/c\n",
    "http://h/1\n dir=caf\u{E9}\n out=x\nhttp://h/2\n dir=cafe\u{301}\n out=x\n",
    "http://h/1\n out=a\nhttp://h/2\n dir=a\n out=b\nhttp://h/3\n out=a (2)\nhttp://h/4\n out=a\n",
    "#EXTM3U\n#EXTINF:1,../../x\nhttp://h/1.mp3\n#EXTINF:2,/\nhttp://h/2.mp3\n",
    "http://h/x\n out=CON\nhttp://h/x\n out=.\nhttp://h/x\n out=..\nhttp://h/x\n out=...\n",
  ].map { Array($0.utf8) }
  private static let words = tokens(
    "..", "../", "/..", "/", "//", ".", "\0", "%00", "%2f", "%2e%2e", "\n out=", "\n dir=", "\nhttp://h/", "\u{301}",
    "\u{E9}", "e\u{301}", "\u{202E}", "\u{85}", "\u{2028}", " (2)", "\\", "~", "$HOME", "`id`", "\u{7F}", "\u{1B}[2J",
    "\u{FEFF}", String(repeating: "x", count: 300), String(repeating: "d/", count: 40), "\r", "\t", "|", "C:", "@",
    "?a=b")

  @Test func everyNameIsFoundAndNoneEscapes() throws {
    try Fuzzing.withFolder { folder in
      var names = 0
      try Fuzzing("manifest", cases: 400).run { random, place in
        // Several manifests, one behind the other, in one catalog: names that went must not haunt those that came.
        if place.index % 8 == 0 { for file in ["", "-wal", "-shm"] { unlink(folder.file("catalog.sqlite") + file) } }
        let catalog = try Catalog.open(path: folder.file("catalog.sqlite"), access: .readWrite)
        let seed = Self.seeds.randomElement(using: &random) ?? []
        let text = random.mutated(seed + (Self.seeds.randomElement(using: &random) ?? []), tokens: Self.words)
        let reader = ManifestReader(bytes: text, name: random.oneIn(4) ? "x.m3u" : "x")
        do throws(StoreError) {
          _ = try catalog.importManifest(reader, fingerprint: [], strict: false) { problem in
            #expect(!problem.message.utf8.contains { $0 < 0x20 }, "\(place): \(problem.message.debugDescription)")
          }
        } catch {
          #expect(error.kind == .invalid, "\(place): \(error)")  // not a line of it could be used
        }
        names += try Self.check(catalog, "\(place)")
        try catalog.close()
      }
      #expect(names > 0)
    }
  }

  /// Every name of the tree is safe, found by lookup as the same node, and has a path that leads to it; how many there
  /// are.
  private static func check(_ catalog: Catalog, _ place: Comment) throws -> Int {
    var count = 0
    var folders = [rootInode]
    while let folder = folders.popLast() {
      let parentPath = try #require(try catalog.tree.path(of: folder), place)
      var seen: Set<[UInt8]> = []
      var cookie: Int64 = 0
      while true {
        let nodes = try catalog.tree.list(folder, after: cookie, limit: 16)
        guard let last = nodes.last else { break }
        cookie = last.entry
        for node in nodes {
          count += 1
          #expect(seen.insert(Array(node.name.utf8)).inserted, place)
          #expect(SafeName.isSafe(node.name), place)
          let bytes = Array(node.name.utf8)
          let found = try bytes.withUnsafeBufferPointer { try catalog.tree.lookup(parent: folder, name: $0) }
          #expect(found?.inode == node.inode, place)
          let path = parentPath.isEmpty ? node.name : parentPath + "/" + node.name
          #expect(try catalog.tree.find(path: path)?.inode == node.inode, "\(place): \(path.debugDescription)")
          #expect(node.parent == folder, place)
          if node.kind == .folder { folders.append(node.inode) }
        }
      }
    }
    return count
  }

  /// Names are bytes: two that only look alike are two, whatever order they come in, at the first import and later.
  @Test func namesThatDifferByNormalisationStayApart() throws {
    let composed = "caf\u{E9}"
    let decomposed = "cafe\u{301}"
    try withTemporaryFolder { folder in
      let catalog = try Catalog.open(path: folder.file("catalog.sqlite"), access: .readWrite)
      for round in 0..<2 {
        let lines = (0..<3).flatMap { number in
          [composed, decomposed].map {
            "http://h/\($0 == composed ? 1 : 2)\(number)\(round)\n dir=\($0)\n out=x\(number)\n"
          }
        }
        let text = Array(lines.joined().utf8)
        _ = try catalog.importManifest(ManifestReader(bytes: text, name: "x"), fingerprint: [], strict: false) { _ in }
        let folders = try catalog.tree.list(rootInode, after: 0, limit: 10)
        #expect(Set(folders.map { Array($0.name.utf8) }) == [Array(composed.utf8), Array(decomposed.utf8)])
        for node in folders {
          let names = try catalog.tree.list(node.inode, after: 0, limit: 10).map(\.name)
          #expect(names.sorted() == ["x0", "x1", "x2"])
        }
      }
      try catalog.close()
    }
  }

  /// A slash is a slash to the kernel whatever follows it; to a String, one with an accent behind it is another
  /// character.
  @Test func aSlashWithAnAccentBehindItIsASlash() throws {
    try withTemporaryFolder { folder in
      let catalog = try Catalog.open(path: folder.file("catalog.sqlite"), access: .readWrite)
      let text = Array("http://h/1\n dir=a\n out=\u{301}b\n".utf8)
      _ = try catalog.importManifest(ManifestReader(bytes: text, name: "x"), fingerprint: [], strict: false) { _ in }
      #expect(try catalog.tree.find(path: "a/\u{301}b")?.kind == .file)
      try catalog.close()
    }
  }
}
