import Base
import Glibc

/// A folder under the system's temporary folder, for one test.
///
/// It goes at ``remove()``, which the with-functions call; not when the value dies, because Swift may end a value's
/// life before the paths into the folder have been used. Any thread may call.
package final class TemporaryFolder: Sendable {
  /// Its path, absolute and without links or a slash at its end.
  package let path: String

  private static let all = Lock(Set<String>())

  /// Makes one, mode 0700 (`open`: 0755, for tests that read as another user). `place`: the folder it lies in, nil for
  /// the system's temporary one.
  package init(open: Bool = false, in place: String? = nil) throws(Errno) {
    let base = place ?? getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
    guard let real = realpath(base, nil) else { throw Errno.current }
    defer { free(real) }
    var template = Array("\(String(cString: real))/mediafs-test-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw Errno.current }
    path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    if open, chmod(path, 0o755) != 0 { throw Errno.current }
    Self.all.withLock { [path] in _ = $0.insert(path) }
  }

  /// The path of `name` in it.
  package func file(_ name: String) -> String { "\(path)/\(name)" }

  /// Writes a file into it (folders on the way are made) and gives its path.
  @discardableResult
  package func write(_ bytes: [UInt8], to name: String, mode: mode_t = 0o644) throws(Errno) -> String {
    if let slash = name.lastIndex(of: "/") { try makeFolder(String(name[..<slash])) }
    let file = try FileDescriptor.open(self.file(name), O_WRONLY | O_CREAT | O_TRUNC, mode: mode)
    var failure: Errno?
    bytes.withUnsafeBytes { buffer in
      do throws(Errno) { try file.writeFully(buffer, at: 0) } catch { failure = error }
    }
    if let failure { throw failure }
    return self.file(name)
  }

  /// As the one above, of text.
  @discardableResult
  package func write(_ text: String, to name: String, mode: mode_t = 0o644) throws(Errno) -> String {
    try write(Array(text.utf8), to: name, mode: mode)
  }

  /// Makes the folder `name` in it, with those on the way, and gives its path.
  @discardableResult
  package func makeFolder(_ name: String) throws(Errno) -> String {
    var made = path
    for part in name.split(separator: "/") {
      made += "/\(part)"
      if mkdir(made, 0o755) != 0, errno != EEXIST { throw Errno.current }
    }
    return made
  }

  /// Removes it with all that is in it. What is still mounted below is unmounted lazily first; a mount that stays makes
  /// it throw, and nothing is removed across it. Does nothing when it is gone already.
  package func remove() throws {
    Self.unmount(below: path)
    if let mount = Mounts.below(path).first {
      throw RemovalFailure(description: "\(mount.mountpoint) is still mounted")
    }
    var status = stat()
    if lstat(path, &status) == 0 { try Self.removeTree(path, device: status.st_dev) }
    Self.all.withLock { [path] in _ = $0.remove(path) }
  }

  /// Unmounts lazily what is mounted in any of them, when the process is about to die.
  static func abandonMounts() {
    for path in all.withLock({ $0 }) { unmount(below: path) }
  }

  private static func unmount(below path: String) {
    for mount in Mounts.below(path).reversed() where umount2(mount.mountpoint, Int32(MNT_DETACH)) != 0 {
      // An ordinary user may not; whether the helper could is seen by who asks for the mounts again.
      do { _ = try Command.run(["fusermount3", "-u", "-z", mount.mountpoint], timeout: 10) } catch {
        Log.warning("cannot unmount \(mount.mountpoint): \(error)")
      }
    }
  }

  private static func removeTree(_ path: String, device: dev_t) throws {
    var status = stat()
    guard lstat(path, &status) == 0 else { throw RemovalFailure(description: "\(path): \(Errno.current)") }
    guard status.st_dev == device else { throw RemovalFailure(description: "\(path) is on another filesystem") }
    if status.st_mode & S_IFMT == S_IFDIR {
      chmod(path, 0o700)  // a test may have taken the right to list it away
      for name in folderNames(path) { try removeTree("\(path)/\(name)", device: device) }
    }
    guard Glibc.remove(path) == 0 else { throw RemovalFailure(description: "\(path): \(Errno.current)") }
  }
}

/// Why a temporary folder could not be removed.
package struct RemovalFailure: Error, CustomStringConvertible {
  /// The message.
  package let description: String
}

/// Lends a temporary folder and removes it afterwards; a removal that fails is an error too.
package func withTemporaryFolder<Result>(open: Bool = false, _ body: (TemporaryFolder) throws -> Result) throws
  -> Result
{
  let folder = try TemporaryFolder(open: open)
  let result: Result
  do { result = try body(folder) } catch {
    // The body's error is the one to tell.
    do { try folder.remove() } catch { Log.warning("\(error)") }
    throw error
  }
  try folder.remove()
  return result
}

/// As the one above, for a body that suspends.
package func withTemporaryFolder<Result>(
  open: Bool = false, isolation: isolated (any Actor)? = #isolation, _ body: (TemporaryFolder) async throws -> Result
) async throws -> Result {
  let folder = try TemporaryFolder(open: open)
  let result: Result
  do { result = try await body(folder) } catch {
    do { try folder.remove() } catch { Log.warning("\(error)") }
    throw error
  }
  try folder.remove()
  return result
}
