import Base
import Glibc
import TestSupport
import Testing

@testable import Reading
@testable import Server

/// The file with the server's numbers, on disks that fail.
@Suite(.serialized) final class MetricsFileTests {
  private let folder: TemporaryFolder
  private let count = Lock(0)

  init() throws { folder = try TemporaryFolder() }
  deinit { #expect(throws: Never.self) { try folder.remove() } }

  private func text(_ path: String) -> String { TestSupport.text(of: path) }

  private func metrics(_ path: String, bytes: Int = 10) throws -> MetricsFile {
    let count = count
    return try MetricsFile(path: path, interval: 0.02) {
      let number = count.withLock { count in
        count += 1
        return count
      }
      return "\(number)" + String(repeating: "\n", count: bytes)
    }
  }

  @Test func itIsWrittenAtOnceAndAgainAndGoesWithTheMount() throws {
    let path = folder.file("m.prom")
    let file = try metrics(path)
    file.start()
    try waitUntil { self.text(path).hasPrefix("1\n") || self.count.withLock { $0 } > 1 }
    try waitUntil { Int(self.text(path).prefix { $0 != "\n" }) ?? 0 > 3 }
    var status = stat()
    try #require(stat(path, &status) == 0)
    #expect(status.st_mode & 0o7777 == 0o644)
    file.stop(isUnmounting: true)
    #expect(access(path, F_OK) != 0 && access(path + ".new", F_OK) != 0)
  }

  /// A reader never sees a part: what it has open stays as it was.
  @Test func theOldFileStaysWholeForWhoHasItOpen() throws {
    let path = folder.file("m.prom")
    let file = try metrics(path, bytes: 100_000)
    file.write()
    let open = try FileDescriptor.open(path, O_RDONLY)
    file.write()
    let size = try open.status().st_size
    #expect(size == 100_001 && text(path).hasPrefix("2"))
    var first: UInt8 = 0
    _ = try withUnsafeMutableBytes(of: &first) { try open.read(at: 0, into: $0) }
    #expect(first == UInt8(ascii: "1"))
  }

  @Test func aFolderThatVanishesIsToldOnceAndTriedAgain() throws {
    try folder.makeFolder("f")
    let path = folder.file("f/m.prom")
    let file = try metrics(path)
    let log = try logged {
      file.write()
      try Command.succeed(["rm", "-r", folder.file("f")])
      file.write()
      file.write()
      try folder.makeFolder("f")
      file.write()
      file.write()
    }
    #expect(log.count == 2, "\(log)")
    #expect(log.first?.contains("No such file") == true && log.last?.contains("written again") == true, "\(log)")
    #expect(text(path).hasPrefix("5"))
  }

  @Test(.enabled(if: geteuid() == 0)) func aFullDiskLeavesTheOldNumbers() throws {
    try folder.makeFolder("disk")
    let disk = folder.file("disk")
    try Command.succeed(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk])
    defer { umount2(disk, Int32(MNT_DETACH)) }
    let path = disk + "/m.prom"
    try metrics(path).write()
    let large = try metrics(path, bytes: 200_000)
    let log = try logged {
      large.write()
      large.write()
    }
    #expect(log.count == 1 && log[0].contains("No space"), "\(log)")
    #expect(text(path).hasPrefix("1\n"), "the old numbers are there")
    #expect(access(path + ".new", F_OK) != 0, "what could not be finished is gone")
  }

  @Test func nothingButAPlainFileIsReplaced() throws {
    #expect(throws: ServerError.self) { _ = try self.metrics("/dev/null") }
    #expect(throws: ServerError.self) { _ = try self.metrics(self.folder.path) }
    #expect(throws: ServerError.self) { _ = try self.metrics(self.folder.file("no/such/folder")) }
    let path = folder.file("m.prom")
    let file = try metrics(path)
    try #require(symlink("/dev/null", path) == 0)
    let log = try logged { file.write() }
    #expect(log.count == 1 && log[0].contains("no plain file"), "\(log)")
    var status = stat()
    #expect(lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFLNK)
    // A link that somebody put in the place of the new file is not followed.
    try #require(unlink(path) == 0 && symlink(folder.file("victim"), path + ".new") == 0)
    file.write()
    #expect(access(folder.file("victim"), F_OK) != 0 && access(path, F_OK) == 0)
  }

  /// The lines that `body` logs.
  private func logged(_ body: () throws -> Void) throws -> [String] {
    let path = folder.file("log")
    let file = try FileDescriptor.open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND)
    Log.set(descriptor: file.rawValue, stamps: false)
    defer { Log.set(descriptor: STDERR_FILENO, stamps: false) }
    try body()
    return text(path).split(separator: "\n").map(String.init).filter { $0.contains("metrics file") }
  }
}
