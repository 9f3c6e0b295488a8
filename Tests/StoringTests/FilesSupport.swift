import Base
import CSystem
import Glibc
import Testing

@testable import Storing

/// A folder for one test, removed with this object.
final class TestFolder: Sendable {
  let path: String

  /// Makes one below `base`, by default the system's folder for temporary files.
  init(in base: String? = nil) throws {
    let base = base ?? getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
    var template = Array("\(base)/mediafs-test-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw Errno.current }
    let made = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    path = resolvedPath(made) ?? made
  }

  deinit { TestFolder.removeAll(path) }

  private static func removeAll(_ path: String) {
    chmod(path, 0o700)
    do {
      let folder = try Folder.open(path)
      for name in try folder.names() {
        guard let status = try folder.status(of: name) else { continue }
        if case .folder = FileKind(status) { removeAll(path + "/" + name) } else { unlink(path + "/" + name) }
      }
    } catch {
      Issue.record("cannot clean \(path): \(error)")
    }
    rmdir(path)
  }

  /// Writes a file below it, whose folder is there.
  func write(_ name: String, _ bytes: [UInt8]) throws {
    let file = try FileDescriptor.open(path + "/" + name, O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
    let failure: Errno? = bytes.withUnsafeBytes { buffer in
      do throws(Errno) {
        try file.writeFully(buffer, at: 0)
        return nil
      } catch {
        return error
      }
    }
    if let failure { throw failure }
  }

  /// The bytes of a file below it; nil when it is not there.
  func bytes(_ name: String) -> [UInt8]? { contents(path + "/" + name) }

  /// lstat of something below it; nil when it is not there.
  func status(_ name: String) -> stat? {
    var result = stat()
    return lstat(path + "/" + name, &result) == 0 ? result : nil
  }
}

/// The bytes of a file; nil when it is not there.
func contents(_ path: String) -> [UInt8]? {
  guard let file = try? FileDescriptor.open(path, O_RDONLY | O_NONBLOCK), let status = try? file.status() else {
    return nil
  }
  var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
  let count = bytes.withUnsafeMutableBytes { (try? file.readFully(at: 0, into: $0)) ?? -1 }
  return count == bytes.count ? bytes : nil
}

/// Bytes that differ by position and by `seed`, so that a piece at a wrong place shows.
func sampleBytes(_ count: Int, seed: UInt64 = 1) -> [UInt8] {
  var state = seed &* 0x9e37_79b9_7f4a_7c15 | 1
  return (0..<count).map { _ in
    state ^= state << 13
    state ^= state >> 7
    state ^= state << 17
    return UInt8(truncatingIfNeeded: state >> 24)
  }
}

/// What `body` throws; nil when it does not.
func failure(_ body: () throws(StoreError) -> Void) -> StoreError? {
  do throws(StoreError) {
    try body()
    return nil
  } catch {
    return error
  }
}

extension PartialFile {
  /// Writes all of `bytes` at `offset` and syncs.
  func put(_ bytes: [UInt8], at offset: Int64 = 0) throws {
    let failure: Errno? = bytes.withUnsafeBytes { buffer in
      do throws(Errno) {
        try write(buffer, at: offset)
        try syncData()
        return nil
      } catch {
        return error
      }
    }
    if let failure { throw failure }
  }
}

/// Runs `body` as a user whom permissions bind: root is bound by none, so for it this thread's file accesses become
/// another user's (setfsuid(2)). That user must own what `body` is to change: `unprivilegedUser`.
func withoutPrivileges(_ body: () throws -> Void) throws {
  guard geteuid() == 0 else { return try body() }
  // Swift's Glibc module does not have <sys/fsuid.h>.
  let symbol = try #require(dlsym(nil, "setfsuid"))
  let setfsuid = unsafeBitCast(symbol, to: (@convention(c) (uid_t) -> Int32).self)  // its declaration in setfsuid(2)
  _ = setfsuid(unprivilegedUser)
  defer { _ = setfsuid(0) }
  try body()
}

/// Who `withoutPrivileges` acts as.
let unprivilegedUser: uid_t = geteuid() == 0 ? 65534 : geteuid()
