import Base
import Control
import Glibc
import Manifest
import Server
import TestSupport
import Testing

@testable import Storing

/// A catalog that a disk, or another program, has changed: it is read, or refused as damaged; nothing traps, nothing
/// goes round in circles, and what is read of it makes sense.
@Suite("Hostile catalogs")
struct CatalogFuzzTests {
  private static let boot = Array("boot".utf8)

  /// The lines of the list.
  private static let lines = (0..<8).map {
    "http://h/\($0)\n dir=a/\($0 % 3)\n out=\($0 < 2 ? "x" : "file \($0).mp4")\n"
  }

  /// Something of everything: folders, partial and complete files, one that changed, a problem, an alias, notes.
  private static func make(_ path: String) throws {
    let catalog = try Catalog.open(path: path, access: .readWrite, bootID: boot)
    let reader = ManifestReader(bytes: Array(lines.joined().utf8), name: "x")
    _ = try catalog.importManifest(reader, fingerprint: [1], strict: false) { _ in }
    for number in 0..<6 {
      let key = ResourceKey(url: "http://h/\(number)")
      var record = GenerationRecord(
        id: try catalog.changes.nextID(), key: key,
        validators: Validators(etag: "\"\(number)\"", etagIsWeak: number == 1, lastModified: 1_600_000_000),
        size: number == 2 ? nil : 100_000, mediaType: "video/mp4")
      var stored = ByteRangeSet(ByteRange(0, 1000))
      stored.insert(ByteRange(5000, 9000))
      try catalog.changes.apply(
        [
          .learned(record),
          .extents(generation: record.id, stored: stored, synced: ByteRangeSet(ByteRange(0, 500))),
          .continues(generation: record.id, number == 3), .used(generation: record.id, at: Int64(number)),
          .problem(key, number == 4 ? "the origin does not have it" : nil),
        ], durably: false)
      let copy = LibraryCopy(path: "a/\(number)", size: 100_000, modified: 1, changed: 2, device: 3, inode: 4)
      if number == 5 {
        try catalog.changes.apply([.placed(generation: record.id, copy, adopted: false)], durably: false)
      }
      if number == 4 { try catalog.changes.apply([.placing(generation: record.id, path: "a/4")], durably: false) }
      if number == 0 {
        let former = record
        record.id = try catalog.changes.nextID()
        _ = try catalog.changes.supersede(former, by: record)
      }
    }
    let host = HostNote(
      name: "http://h", lanes: 2, connectionRate: 1e6, rate: 2e6, roundTrip: 0.1, httpVersion: 11, at: 1_600_000_000)
    let kind = KindNote(name: "mp4", head: 1000, tail: 1000, files: 3, at: 1_600_000_000)
    try catalog.changes.apply(
      [.host(host), .kind(kind), .gainedExtension(ResourceKey(url: "http://h/1"), "mp4")], durably: true)
    _ = try catalog.tree.applyPendingExtensions()
    try catalog.close()
  }

  private static let columns = [
    "entry": ["id", "inode", "parent", "kind", "listed", "name", "wanted", "key_high", "key_low", "line", "source"],
    "generation": [
      "id", "key_high", "state", "continues", "size", "last_modified", "etag", "etag_weak", "media_type", "used_at",
      "synced", "synced_bytes", "recent", "recent_bytes", "recent_boot", "placing", "copy_path", "copy_size",
      "copy_modified", "copy_inode",
    ],
    "meta": ["value"], "gained": ["extension", "applied"], "alias": ["parent", "name", "entry"],
    "old_inode": ["inode", "entry", "generation"], "problem": ["message", "at"], "numbering": ["next"],
    "host": ["name", "lanes", "connection_rate", "rate", "round_trip", "http_version", "at"],
    "kind": ["name", "head", "tail", "files", "at"],
  ]
  private static let values = [
    "-1", "-5000", "0", "1", "2", "7", "9223372036854775807", "-9223372036854775808", "NULL", "''", "'x'", "'..'",
    "'a/../b'",
    "x''", "x'00'", "x'ff'", "x'ffffffffffffffff7f'", "x'0a05'", "1.5", "1e300", "'\u{301}'", "randomblob(40)",
    "zeroblob(100000)", "char(0)",
  ]

  /// Changes rows behind the catalog's back, as no disk does, and no row can be trusted to be.
  private static func changeRows(_ path: String, _ random: inout SeededRandom) throws {
    let connection = try SQLiteConnection(path: path, mode: .readWrite)
    for _ in 0..<Int.random(in: 1...4, using: &random) {
      guard let (table, names) = columns.sorted(by: { $0.key < $1.key }).randomElement(using: &random),
        let name = names.randomElement(using: &random), let value = values.randomElement(using: &random)
      else { continue }
      let rows = random.oneIn(4) ? "" : " WHERE abs(random()) % 3 = 0"
      // What a constraint forbids does not happen.
      do throws(StoreError) { try connection.run("UPDATE OR IGNORE \(table) SET \(name) = \(value)\(rows)") } catch {
        continue
      }
    }
  }

  @Test func everyCatalogIsReadOrRefused() throws {
    try Fuzzing.withFolder { folder in
      let path = folder.file("catalog.sqlite")
      try Self.make(path)
      let good = try contents(of: path)
      var read = 0
      var refused = 0
      try Fuzzing("catalog", cases: 200).run { random, place in
        for ending in ["-wal", "-shm", "-journal", "-new"] { unlink(path + ending) }
        var bytes = good
        let isDamagedDisk = random.oneIn(2)
        if isDamagedDisk {
          for _ in 0..<Int.random(in: 1...12, using: &random) {
            bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
          }
          if random.oneIn(8) { bytes.removeSubrange(Int.random(in: 0..<bytes.count, using: &random)...) }
        }
        try folder.write(bytes, to: "catalog.sqlite")
        if !isDamagedDisk {
          try Self.changeRows(path, &random)
          Self.showStatus(folder.path, "\(place)")
        }
        do throws(StoreError) {
          let catalog = try Catalog.open(
            path: path, access: random.oneIn(2) ? .readOnly : .readWrite, bootID: Self.boot)
          try Self.use(catalog, "\(place)")
          read += 1
        } catch {
          refused += 1
          #expect(!error.description.isEmpty, "\(place)")
        }
      }
      #expect(read > 0 && refused > 0)
    }
  }

  /// The numbers of each table, and which rows get another one.
  private static let numbers: [(table: String, rows: String, columns: [String])] = [
    ("entry", "kind = 0", ["id", "inode", "parent", "kind", "listed", "key_high", "key_low", "line"]),
    ("entry", "kind = 1", ["id", "inode", "parent", "listed", "line"]),
    (
      "generation", "true",
      [
        "id", "key_high", "key_low", "state", "size", "last_modified", "used_at", "synced_bytes", "recent_bytes",
        "copy_size", "copy_modified", "copy_changed", "copy_device", "copy_inode",
      ]
    ),
    ("meta", "name = 'next_id'", ["value"]), ("meta", "name = 'epoch'", ["value"]),
    ("meta", "name = 'names'", ["value"]), ("meta", "name = 'files'", ["value"]),
    ("alias", "true", ["parent", "entry"]), ("old_inode", "true", ["inode", "entry", "generation"]),
    ("problem", "true", ["at"]), ("numbering", "true", ["next"]),
    ("host", "true", ["lanes", "connection_rate", "rate", "round_trip", "http_version", "at"]),
    ("kind", "true", ["head", "tail", "files", "at"]),
  ]

  @Test("Every number of a row may be the least one, the greatest one, or that of a folder")
  func everyNumberIsReadOrRefused() throws {
    try Fuzzing.withFolder { folder in
      let path = folder.file("catalog.sqlite")
      try Self.make(path)
      let good = try contents(of: path)
      for (table, rows, columns) in Self.numbers {
        for column in columns {
          for value in [Int64.min, 2, .max] {
            for ending in ["-wal", "-shm", "-journal", "-new"] { unlink(path + ending) }
            try folder.write(good, to: "catalog.sqlite")
            let change = "UPDATE OR IGNORE \(table) SET \(column) = \(value) WHERE \(rows)"
            try SQLiteConnection(path: path, mode: .readWrite).run(change)
            Self.showStatus(folder.path, "\(change)")
            do throws(StoreError) {
              let catalog = try Catalog.open(path: path, access: .readWrite, bootID: Self.boot)
              try Self.use(catalog, "\(change)")
            } catch {
              #expect(!error.description.isEmpty, "\(change)")
            }
          }
        }
      }
    }
  }

  /// Asks for what `mediafs status` shows without a server.
  private static func showStatus(_ folder: String, _ place: Comment) {
    let mount = MountRecord(mountpoint: "/m", store: folder, library: folder + "/library", manifest: "-")
    do throws(ControlFailure) {
      let sums = try CatalogStatus(mount).totals(StatusQuery())
      #expect(sums.files >= 0 && sums.remote >= 0 && sums.unknownSizes >= 0, place)
    } catch {
      #expect(!error.description.isEmpty, place)
    }
  }

  /// Asks for everything that a mount and its commands ask for; closes it.
  private static func use(_ catalog: Catalog, _ place: Comment) throws(StoreError) {
    var failure: StoreError?
    // Each by itself: one that is refused must not hide the others.
    func attempt(_ body: () throws(StoreError) -> Void) {
      do throws(StoreError) { try body() } catch { failure = error }
    }
    attempt { () throws(StoreError) in _ = try catalog.integrityProblems(limit: 5) }
    attempt { () throws(StoreError) in try walk(catalog, place) }
    var ids: [Int64] = []
    attempt { () throws(StoreError) in ids = try catalog.generations.ids(limit: 100, after: 0) }
    for id in ids {
      attempt { () throws(StoreError) in if let record = try catalog.generations.find(id) { check(record, place) } }
    }
    attempt { () throws(StoreError) in
      for record in try catalog.generations.continuing(limit: 100, after: 0) { check(record, place) }
    }
    attempt { () throws(StoreError) in
      for record in try catalog.generations.superseded(limit: 100, after: 0) { check(record, place) }
    }
    attempt { () throws(StoreError) in for (record, _) in try catalog.generations.placements() { check(record, place) }
    }
    attempt { () throws(StoreError) in _ = try catalog.generations.partialsByUse() }
    attempt { () throws(StoreError) in
      _ = try catalog.known(after: nil, limit: 100)
    }
    attempt { () throws(StoreError) in _ = try catalog.tree.counts() }
    attempt { () throws(StoreError) in _ = try catalog.changes.nextID() }
    attempt { () throws(StoreError) in _ = try catalog.tree.applyPendingExtensions() }
    attempt { () throws(StoreError) in _ = try catalog.generations.sums() }
    attempt { () throws(StoreError) in for note in try catalog.notes.hosts() { #expect(note.at >= 0, place) } }
    attempt { () throws(StoreError) in _ = try catalog.notes.kinds() }
    // The list whose rows these are, the same with a line more, and in another order; then another list.
    let lists: [[String]] = [
      lines, ["http://h/new\n"] + lines, lines.reversed(), ["http://h/1\n out=y\nhttp://h/9\n dir=a/1\n"],
    ]
    for list in lists {
      attempt { () throws(StoreError) in
        let reader = ManifestReader(bytes: Array(list.joined().utf8), name: "x")
        let watcher = ImportWatcher(lists: ["a"], beforeCommit: { (_) throws(StoreError) in }, committed: { _ in })
        _ = try catalog.importManifest(reader, fingerprint: [2], strict: false, report: { _ in }, watcher: watcher)
      }
    }
    attempt { () throws(StoreError) in try walk(catalog, place) }
    attempt { () throws(StoreError) in try catalog.close() }
    if let failure { throw failure }
  }

  /// Lists folders (not for ever, should one lie in itself), and finds each name again or not.
  private static func walk(_ catalog: Catalog, _ place: Comment) throws(StoreError) {
    var folders = [rootInode]
    var listed = 0
    while let folder = folders.popLast(), listed < 200 {
      _ = try catalog.tree.path(of: folder)
      for node in try catalog.tree.list(folder, after: 0, limit: 50) {
        listed += 1
        _ = try catalog.tree.path(of: node.inode)
        _ = try catalog.tree.entry(node.inode)
        _ = try catalog.generations.superseded(inode: node.inode)
        if let record = try catalog.generations.current(of: node.key) { check(record, place) }
        if let size = node.size { #expect(size >= 0, place) }
        if node.kind == .folder { folders.append(node.inode) }
      }
    }
  }

  /// What the reading room counts with.
  private static func check(_ record: GenerationRecord, _ place: Comment) {
    var end: Int64 = -1
    for range in record.stored.ranges {
      #expect(range.start > end && range.end > range.start, place)
      end = range.end
    }
    if let size = record.size { #expect(size >= 0 && end <= size, place) }
    if let copy = record.copy { #expect(copy.size == record.size, place) }
  }
}
