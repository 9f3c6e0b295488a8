import CSystem
import Glibc

/// An open file. It is closed when this value is destroyed.
///
/// Every call is retried on EINTR and throws the call's `Errno`.
package struct FileDescriptor: ~Copyable, Sendable {
  /// The number; valid as long as this value lives.
  package let rawValue: Int32

  /// O_PATH, which Glibc's module lacks: the start of a lookup, which needs no right to read.
  package static let onlyPath: Int32 = 0x20_0000

  /// Takes ownership of `rawValue`.
  package init(owning rawValue: Int32) { self.rawValue = rawValue }

  deinit { close(rawValue) }

  /// open(2) with O_CLOEXEC.
  package static func open(_ path: String, _ flags: Int32, mode: mode_t = 0o600) throws(Errno) -> FileDescriptor {
    FileDescriptor(owning: try retrying { csystem_open(path, flags | O_CLOEXEC, mode) })
  }

  /// pread(2). Returns how many bytes were read, 0 at the end of the file.
  package func read(at offset: Int64, into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Int {
    Int(try retrying { Glibc.pread(rawValue, buffer.baseAddress, buffer.count, Int(offset)) })
  }

  /// pread(2) until the buffer is full or the file ends. Returns how many bytes were read.
  package func readFully(at offset: Int64, into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Int {
    var filled = 0
    while filled < buffer.count {
      let count = try read(at: offset + Int64(filled), into: UnsafeMutableRawBufferPointer(rebasing: buffer[filled...]))
      if count == 0 { break }
      filled += count
    }
    return filled
  }

  /// pwrite(2) until every byte is written.
  package func writeFully(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(Errno) {
    var written = 0
    while written < bytes.count {
      let rest = UnsafeRawBufferPointer(rebasing: bytes[written...])
      written += Int(try retrying { Glibc.pwrite(rawValue, rest.baseAddress, rest.count, Int(offset) + written) })
    }
  }

  /// fdatasync(2).
  package func syncData() throws(Errno) { _ = try retrying { fdatasync(rawValue) } }
  /// fsync(2).
  package func sync() throws(Errno) { _ = try retrying { fsync(rawValue) } }
  /// ftruncate(2).
  package func truncate(to size: Int64) throws(Errno) { _ = try retrying { ftruncate(rawValue, Int(size)) } }

  /// fstat(2).
  package func status() throws(Errno) -> stat {
    var result = stat()
    _ = try retrying { fstat(rawValue, &result) }
    return result
  }
}

/// Repeats a call while it fails with EINTR; throws its other errors.
@inline(__always)
package func retrying<Result: FixedWidthInteger & SignedInteger>(_ call: () -> Result) throws(Errno) -> Result {
  while true {
    let result = call()
    if result != -1 { return result }
    let error = Errno.current
    if error != .interrupted { throw error }
  }
}
