import Base
import Glibc
import TestSupport
import Testing

@testable import Storing

/// Stores of former formats whose raise is killed: nothing is lost, and the next mount serves what is stored.
@Suite(.serialized) struct RaiseTests {
  @Test(arguments: [DiskShim.Kind.log, .database, .sync, .unlink], OldStore.all)
  func killedAtEachStep(_ kind: DiskShim.Kind, _ old: OldStore) throws {
    try withWatchdog(600) {
      // What is after one write is before the next.
      let phases: [DiskShim.Phase] = kind == .log || kind == .database ? [.before, .half] : [.before, .after]
      var kills = 0
      for phase in phases {
        for step in 0..<200 {
          guard try raiseIsKilled(old, kind, step, phase) else { break }
          kills += 1
        }
      }
      print("raise of \(old): \(kills) kills at a \(kind)")
      // A log is only written after the raise: by then there is nothing to kill.
      #expect(kind == .log ? kills == 0 : kills >= 4, "\(kills) kills")
    }
  }

  /// Mounts the store, and kills the server in its operation number `step`. False when the raise was over by then.
  private func raiseIsKilled(
    _ old: OldStore, _ kind: DiskShim.Kind, _ step: Int, _ phase: DiskShim.Phase
  ) throws -> Bool {
    try withServedStore { store in
      try old.unpack(into: store.folder)
      // Nobody answers there: what is read is what is stored.
      try store.folder.write(OldStore.manifest { "http://127.0.0.1:9\($0)" }, to: "urls.txt")
      store.shim.kill(in: kind, after: step, phase)
      if try store.start(["--continue", "never"]) { store.kill() }
      try store.waitForEnd()
      let isOver = try isRaised(store.store) || !store.shim.hasKilled
      // A mount takes longest: every sixth.
      try expectNothingLost(store, old, "\(old) \(kind) \(step) \(phase)", mounts: step % 6 == 0 || isOver)
      return !isOver
    }
  }

  /// Whether the raise is committed: the header has the new format, and no journal undoes it.
  private func isRaised(_ path: String) throws -> Bool {
    let header = try readPart(FileDescriptor.open(path + "/catalog.sqlite", O_RDONLY), at: 0, count: 100)
    return header.count == 100 && header[63] == UInt8(Catalog.format)
      && access(path + "/catalog.sqlite-journal", F_OK) != 0
  }

  private func expectNothingLost(_ store: ServedStore, _ old: OldStore, _ where: String, mounts: Bool) throws {
    // As the next mount opens it, but nothing is recovered yet: the superseded generation is still there.
    try Catalog.open(path: store.store + "/catalog.sqlite", access: .readWrite).close()
    #expect(try isRaised(store.store))
    var audit = StoreAudit(complete: [old.complete])
    try audit.look(at: store.store, boot: "another boot", stamps: false, everything: true)
    #expect(audit.problems.isEmpty, "\(`where`): \(audit.problems)")
    // A server that was killed behind the raise may have forgotten what it superseded.
    let kept = audit.claimed.merging([old.superseded: 6_000]) { _, known in known }
    #expect(kept == old.stored, "\(`where`): \(audit.claimed)")
    if !mounts { return }
    store.shim.clear()
    try #require(try store.start(["--continue", "never"], shimmed: false), "\(`where`): \(store.errors)")
    let whole = try store.read(OldStore.names[0])
    #expect(Int64(whole.count) == OldStore.completeSize)
    #expect(Pattern.check(whole, name: "/file-0.mp4", offset: 0) == nil, "\(`where`)")
    for offset: Int64 in [0, 299_008] {
      let page = try store.readDirectly(OldStore.names[1], at: offset)
      #expect(Pattern.check(page, name: "/file-1.mp4", offset: offset) == nil && page.count == 4096, "\(`where`)")
    }
    try store.unmount()
  }
}

extension ServedStore {
  /// A page at `offset`, through the mount and without the kernel's read-ahead.
  func readDirectly(_ name: String, at offset: Int64) throws(Errno) -> [UInt8] {
    let file = try FileDescriptor.open("\(mountpoint)/\(name)", O_RDONLY)
    let error = posix_fadvise(file.rawValue, 0, 0, POSIX_FADV_RANDOM)
    if error != 0 { throw Errno(rawValue: error) }
    return try readPart(file, at: offset, count: 4096)
  }
}
