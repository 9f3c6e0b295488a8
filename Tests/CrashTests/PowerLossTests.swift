import Base
import Glibc
import TestSupport
import Testing

@testable import Storing

/// Power loss, by simulation: what a server wrote and synced is recorded, and replayed up to some moment without what
/// was not synced by then. The store is opened as in another boot (promises P4 and P6).
@Suite(.serialized) struct PowerLossTests {
  @Test func nothingIsBelievedThatWasNotSynced() throws {
    try withWatchdog(600) {
      var random = SeededRandom.fromEnvironment(for: "power loss")
      try withOrigin { origin in
        try withServedStore { store in
          let changes = try record(store, origin, &random)
          try replay(changes, in: store.folder, &random)
        }
      }
    }
  }

  /// Lets a server (killed once on the way) fetch and complete files, and records what it does to its store. Two large
  /// files grow slowly, so that something is always unsynced.
  private func record(_ store: ServedStore, _ origin: Origin, _ random: inout SeededRandom) throws -> [DiskChange] {
    var shelf = Shelf(origin: origin)
    var files: [Int] = []
    for _ in 0..<6 { files.append(shelf.add(size: Int64.random(in: 1...300_000, using: &random))) }
    let slow = (0..<2).map { _ in shelf.add(size: 4_000_000) }
    origin.configure { $0.lineRate = 700_000 }
    store.shim.record = store.folder.file("record")
    // Another boot's, as seen from the test.
    store.shim.bootID = try store.folder.write("00000000-1111-2222-3333-444444444444\n", to: "boot")
    for turn in 0..<3 {
      // The manifest changes, too.
      try store.list((turn == 0 ? Array(files[..<3]) + slow : files + slow).map { shelf.line($0) })
      try #require(try store.start(["--continue", "always"]), "\(store.errors)")
      if turn == 2 { origin.configure { $0.lineRate = nil } }
      for index in slow + (turn == 0 ? Array(files[..<3]) : files) {
        _ = try store.read(Shelf.name(index), at: 0, count: 1000)
      }
      if turn == 0 {
        try store.waitForCompletion(files[..<3].map(Shelf.name))
        // Some commits of what is not synced yet.
        sleep(seconds: 2.5)
        store.kill()
        try store.waitForEnd()
      } else {
        try store.waitForCompletion(files.map(Shelf.name))
        if turn == 1 { origin.nextGeneration(Shelf.path(slow[0])) }
        sleep(seconds: 1.5)
        if turn == 2 { try store.waitForCompletion([Shelf.name(slow[1])]) }
        try store.unmount()
      }
    }
    return try DiskChange.read(store.folder.file("record"))
  }

  private func replay(_ changes: [DiskChange], in folder: TemporaryFolder, _ random: inout SeededRandom) throws {
    var model = PowerModel()
    // What is complete when all that was not synced is gone must stay so, whatever a later loss leaves besides.
    var complete: Set<Int64> = []
    // So must what is stored, whether its file is partial, being placed or complete: the number of bytes, by
    // generation.
    var safe: [Int64: Int64] = [:]
    var compared: Int64 = 0
    var losses = 0
    var partial: Int64 = 0
    let every = max(1, changes.count / 120)
    var next = 0
    for (index, change) in changes.enumerated() {
      model.apply(change)
      // Chosen at random, and around what matters: a rename and what follows it, and new names that became durable.
      let isCritical =
        change.operation == .rename || (index > 0 && changes[index - 1].operation == .rename)
        || (change.operation == .syncFolder && change.path == "partial")
      guard index >= next || isCritical else { continue }
      if index >= next { next = index + Int.random(in: 1...2 * every, using: &random) }
      for loss in PowerModel.Loss.allCases {
        let name = "lost"
        try model.write(to: folder, name, loss, random: &random)
        let path = folder.file(name)
        losses += 1
        var audit = StoreAudit(complete: complete)
        do {
          try open(path)
          try audit.look(at: path, boot: "another boot", stamps: false, everything: true)
        } catch {
          Issue.record("after change \(index) (\(change.operation) of \(change.path)), \(loss): \(error)")
        }
        if !audit.problems.isEmpty {
          Issue.record("after change \(index) (\(change.operation) of \(change.path)), \(loss): \(audit.problems)")
        }
        for (id, bytes) in audit.claimed where bytes < safe[id] ?? 0 {
          Issue.record(
            """
            after change \(index) (\(change.operation) of \(change.path)), \(loss): \(bytes) bytes of generation \(id) are \
            left of \(safe[id] ?? 0) that were safe
            """)
        }
        if loss == .dropped {
          complete = audit.complete
          safe = audit.claimed
        }
        compared += audit.compared
        partial += audit.claimed.values.reduce(0, +)
        try Command.succeed(["rm", "-rf", path])
        try #require(audit.problems.isEmpty)
      }
    }
    Figures.add("simulated power losses", losses)
    print(
      """
      power loss: \(losses) losses among \(changes.count) changes of a store, \(compared) bytes compared, \(partial) of \
      them in partial files, \(complete.count) files complete in the end
      """)
    #expect(losses > 100 && complete.count >= 7 && partial > 0)
  }

  /// What the next mount does first: the store must open, and recover.
  private func open(_ path: String) throws {
    guard access(path + "/catalog.sqlite", F_OK) == 0 else { return }
    let folder = try StoreFolder.open(path, mountpoint: "/nowhere", wait: 0)
    let catalog = try Catalog.open(path: folder.catalogPath, access: .readWrite, bootID: Array("another boot".utf8))
    // A number that names a file must not be given again.
    let (largest, next) = (try folder.partialIDs().last ?? 0, try catalog.changes.nextID())
    #expect(largest < next, "partial file \(largest) is there, and the next number is \(next)")
    try StoreRecovery.run(catalog: catalog, folder: folder, library: try LibraryFolder(folder.defaultLibraryPath))
    try catalog.close()
  }
}
