import Base
import CCrypto
import Glibc

/// The server that uses a store, as the lock file names it.
struct StoreHolder {
  /// The process id, in that server's pid namespace; nil before the server has written it, or if the disk was full.
  var process: Int32?
  /// Where the store is mounted; nil in the same cases.
  var mountpoint: String?

  /// For a message: `the server of /home/anna/media (process 123)`.
  var name: String {
    switch (mountpoint, process) {
    case (let mountpoint?, let process?): "the server of \(mountpoint) (process \(process))"
    default: "another server"
    }
  }
}

/// The lock on a store: an open file description lock (fcntl(2), F_OFD_SETLK) on the file `lock`. The kernel releases
/// it with the descriptor, however the process ends. The file's text names the server, and counts only while the file
/// is locked.
struct StoreLock: ~Copyable, Sendable {
  static let name = "lock"
  private static let version = 1
  private let descriptor: FileDescriptor

  /// Takes the lock and writes who has it. It tries every 20 ms for up to `wait` seconds.
  static func take(
    in folder: borrowing Folder, path: String, mountpoint: String, wait: Double
  ) throws(StoreError) -> StoreLock {
    let deadline = Instant.now.adding(seconds: wait)
    let descriptor = try open(in: folder, path: path, O_RDWR | O_CREAT)
    while true {
      do throws(Errno) {
        _ = try retrying { storing_lock(descriptor.rawValue) }
        break
      } catch {
        guard error.rawValue == EAGAIN || error == .accessDenied else {
          throw .file(error, "cannot lock the store \(path)")
        }
      }
      if Instant.now >= deadline {
        let holder = read(descriptor).name
        throw StoreError(
          kind: .busy(holder: holder),
          message: "the store \(path) is in use by \(holder); unmount that, or choose another folder with --store")
      }
      usleep(20_000)
    }
    write(StoreHolder(process: getpid(), mountpoint: mountpoint), to: descriptor, path: path)
    return StoreLock(descriptor: descriptor)
  }

  private static func open(
    in folder: borrowing Folder, path: String, _ flags: Int32
  ) throws(StoreError) -> FileDescriptor {
    let found: stat?
    do throws(Errno) {
      // Checks the kind first: the open of a device may have side effects.
      found = try folder.status(of: name)
      if found?.isPlainFile ?? true {
        let descriptor = try folder.file(name, flags)
        if try descriptor.status().isPlainFile { return descriptor }
      }
    } catch {
      throw .file(error, "cannot open the lock of the store \(path)")
    }
    throw StoreError(
      kind: .invalid,
      message:
        "\(path)/\(name) is \(found?.kindName ?? "replaced"), no plain file: is \(path) a store? Move it away, or "
        + "choose another store with --store")
  }

  /// The lock holds even if its text cannot be written: with a full disk, stored files must still play.
  private static func write(_ holder: StoreHolder, to descriptor: borrowing FileDescriptor, path: String) {
    var text = KeyValueText.encode(
      kind: "lock", version: version,
      fields: [("process", "\(holder.process ?? 0)"), ("mountpoint", holder.mountpoint ?? "")])
    let failure: Errno? = text.withUTF8 { bytes in
      do throws(Errno) {
        // Writes the new text first and truncates after it, so that a reader in between finds the new text's whole
        // lines first.
        try descriptor.writeFully(UnsafeRawBufferPointer(bytes), at: 0)
        try descriptor.truncate(to: Int64(bytes.count))
        return nil
      } catch {
        return error
      }
    }
    if let failure { Log.warning("cannot name this server in the lock file of the store \(path): \(failure)") }
  }

  private static func read(_ descriptor: borrowing FileDescriptor) -> StoreHolder {
    let none = StoreHolder(process: nil, mountpoint: nil)
    // Twice the longest path is enough for any holder. Another program may have written more here.
    let text: String
    do throws(Errno) {
      text = try smallText(of: descriptor, limit: 16 << 10)
    } catch {
      Log.warning("cannot read which server uses a store from its lock file: \(error)")
      return none
    }
    guard case .fields(let fields) = KeyValueText.decode(text, kind: "lock", version: version) else { return none }
    return StoreHolder(process: fields["process"].flatMap { Int32($0) }, mountpoint: fields["mountpoint"])
  }
}

/// The first `limit` bytes of a small text file.
func smallText(of descriptor: borrowing FileDescriptor, limit: Int) throws(Errno) -> String {
  var bytes = [UInt8](repeating: 0, count: limit)
  var failure: Errno?
  let count = bytes.withUnsafeMutableBytes { buffer in
    do throws(Errno) {
      return try descriptor.readFully(at: 0, into: buffer)
    } catch {
      failure = error
      return 0
    }
  }
  if let failure { throw failure }
  return String(decoding: bytes[..<count], as: UTF8.self)
}
