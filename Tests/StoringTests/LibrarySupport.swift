import Base
import Glibc
import Testing

@testable import Storing

/// A store and a library for one test.
final class LibraryFixture {
  let home: TestFolder
  let store: StoreFolder
  let library: LibraryFolder
  /// The intents noted so far.
  private(set) var intents: [String] = []

  /// With the library at `library` below the test's folder.
  init(library path: String = "library") throws {
    home = try TestFolder()
    store = try StoreFolder.open(home.path + "/store", mountpoint: "/m", wait: 0)
    library = try LibraryFolder(home.path + "/" + path)
  }

  /// With the library in a folder on another filesystem than the store.
  init(across other: TestFolder) throws {
    home = try TestFolder()
    store = try StoreFolder.open(home.path + "/store", mountpoint: "/m", wait: 0)
    library = try LibraryFolder(other.path + "/library")
  }

  /// A complete partial file of those bytes.
  func partial(_ id: Int64, _ bytes: [UInt8]) throws -> PartialFile {
    let file = try PartialFile(in: store, id: id, create: true)
    try file.put(bytes)
    return file
  }

  /// Places it, noting the intents.
  func place(
    _ partial: PartialFile, as path: String, size: Int, modified: Int64? = 1_700_000_001
  ) throws(StoreError) -> Placement {
    try library.place(partial, as: path, size: Int64(size), modified: modified) { path in intents.append(path) }
  }

  /// Writes a file of the user's into the library.
  func occupy(_ path: String, _ bytes: [UInt8]) throws {
    let file = try FileDescriptor.open(library.path + "/" + path, O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
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

  /// The bytes of a file in the library.
  func bytes(_ path: String) -> [UInt8]? { contents(library.path + "/" + path) }

  /// The names at the library's top, sorted.
  func names() throws -> [String] { try Folder.open(library.path).names().sorted() }
}

/// Runs `body` with a folder on another filesystem than the system's folder for temporary files: /dev/shm where that is
/// one, else (root) a tmpfs of the test's own.
func withOtherFilesystem(_ body: (TestFolder) throws -> Void) throws {
  let home = try TestFolder()
  func device(_ path: String) throws -> dev_t { try FileDescriptor.open(path, O_RDONLY).status().st_dev }
  if access("/dev/shm", W_OK) == 0, try device("/dev/shm") != device(home.path) {
    return try body(try TestFolder(in: "/dev/shm"))
  }
  try #require(geteuid() == 0, "neither /dev/shm on a filesystem of its own, nor root to mount one")
  let mountpoint = home.path + "/tmpfs"
  mkdir(mountpoint, 0o700)
  try #require(mount("tmpfs", mountpoint, "tmpfs", 0, nil) == 0, "cannot mount a tmpfs: \(Errno.current)")
  defer { umount2(mountpoint, Int32(MNT_DETACH)) }
  try body(try TestFolder(in: mountpoint))
}
