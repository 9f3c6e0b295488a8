import Base
import Glibc
import TestSupport
import Testing

import Reading
@testable import Storing

/// One file that cannot be written to: its error is its own.
extension StoreFaultScenarios {
  @Test(
    "What the system is short of passes: the file is stored again after a while, without being opened",
    arguments: [EMFILE, ENFILE, ENOMEM])
  func passingErrors(_ error: Int32) throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 1000, of: "a.mp4")
    try bench.refuseWrite(of: inode, Errno(rawValue: error))
    let before = try bench.stored(inode).count
    bench.expectBytes(inode, 10 * Self.megabyte, 100_000, of: "a.mp4")
    #expect(try bench.stored(inode).count == before, "stored without a pause")
    #expect(bench.hasRoom)
    try bench.goOn(inode)
    #expect(bench.run(until: 60, step: 0.02) { bench.isComplete("a.mp4") })
  }

  @Test("A second report of a sync that failed long ago ends no pause that has begun since")
  func reportedTwice() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 20 * Self.megabyte))
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 1000, of: "a.mp4")
    let file = try #require(bench.storedFile(inode))
    try bench.failSync(inode)
    bench.run(2 * RoomLimits.refusedSeconds, step: 0.05)
    #expect(bench.isStoring(inode) == true)
    bench.expectBytes(inode, 10 * Self.megabyte, 1000, of: "a.mp4")
    try bench.refuseWrite(of: inode, .tooManyFiles)
    try bench.failSync(inode, of: file)
    bench.move(0.01)
    #expect(bench.isStoring(inode) == false)
  }

  private func twoFiles() throws -> Bench {
    let entries = [Bench.entry("a.mp4", 1), Bench.entry("b.mp4", 2)]
    var resources: [String: FakeResource] = [:]
    for entry in entries {
      resources[entry.urls[0]] = FakeResource(name: entry.name, size: 4 * Self.megabyte)
    }
    return try Bench(entries, resources)
  }

  @Test("A file that cannot be written to is played without being stored; the others are stored")
  func oneFileRefuses() throws {
    let bench = try twoFiles()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 1000, of: "a.mp4")
    let before = try bench.stored(inode).count
    let file = try #require(bench.storedFile(inode))
    let kept = dup(file.descriptor)
    defer { close(kept) }
    try replace(file.descriptor, by: bench.folder + "/store/partial/\(bench.generation("a.mp4").id)", O_RDONLY)
    bench.system.fetch([inode])
    for offset in stride(from: Int64(0), to: 4 * Self.megabyte, by: 262_144) {
      bench.expectBytes(inode, offset, 65536, of: "a.mp4")
    }
    #expect(try bench.stored(inode).count == before)
    #expect(bench.hasRoom, "one file's error is not the disk's")
    let other = try bench.opened("b.mp4")
    bench.system.fetch([other])
    #expect(bench.run(until: 30) { bench.isComplete("b.mp4") })
    #expect(!bench.isComplete("a.mp4"))
    // Well again, and opened again.
    try #require(dup2(kept, file.descriptor) == file.descriptor)
    _ = try bench.opened("a.mp4")
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
    bench.expectBytes(inode, 0, Int(4 * Self.megabyte), of: "a.mp4")
  }

  @Test("A partial file that cannot be made: played without being stored, until it can", arguments: [false, true])
  func partialFileCannotBeMade(_ isKnown: Bool) throws {
    let bench = try twoFiles()
    if isKnown {
      bench.system.release(try bench.opened("a.mp4"))
      try bench.restart()
      try Command.succeed(["sh", "-c", "rm '\(bench.folder)'/store/partial/*"])
    }
    let folder = bench.folder + "/store/partial"
    try #require(rename(folder, folder + ".away") == 0)
    try Command.succeed(["touch", folder])
    let inode = try bench.opened("a.mp4")
    for offset in stride(from: Int64(0), to: 4 * Self.megabyte, by: 262_144) {
      bench.expectBytes(inode, offset, 65536, of: "a.mp4")
    }
    #expect(bench.hasRoom)
    try #require(unlink(folder) == 0 && rename(folder + ".away", folder) == 0)
    _ = try bench.opened("a.mp4")
    bench.system.fetch([inode])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
  }

  @Test("An empty file whose partial file cannot be made is put away, and completes once it can be")
  func emptyFileCannotBeMade() throws {
    let bench = try Bench(FakeResource(name: "a.mp4", size: 0))
    let folder = bench.folder + "/store/partial"
    try #require(rename(folder, folder + ".away") == 0)
    try Command.succeed(["touch", folder])
    let inode = try bench.opened("a.mp4")
    bench.run(1)
    #expect(!bench.isCompleting(inode))
    bench.system.release(inode)
    #expect(bench.run(until: 120, step: 0.1) { !bench.isInMemory(inode) })
    try #require(unlink(folder) == 0 && rename(folder + ".away", folder) == 0)
    bench.system.fetch([inode])
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") })
  }

  @Test("Errors that speak of the disk, and those that speak of one file")
  func classes() {
    for error in [ENOSPC, EDQUOT, EIO, EROFS] { #expect(Errno(rawValue: error).isOfDisk) }
    for error in [EFBIG, EBADF, EMFILE, EACCES, ENOENT, ELOOP, EISDIR] { #expect(!Errno(rawValue: error).isOfDisk) }
    #expect(StoreError.file(.quota, "x").errno.isOfDisk && StoreError.file(.io, "x").errno == .io)
  }
}
