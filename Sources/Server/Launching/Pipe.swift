import Base
import Glibc

/// A pipe. What the launcher runs inherits no end of it (``csystem_start_program``).
struct Pipe: ~Copyable {
  let reader: FileDescriptor
  let writer: FileDescriptor

  init() throws(Errno) {
    var ends: (Int32, Int32) = (-1, -1)
    let made = withUnsafeMutablePointer(to: &ends) {
      $0.withMemoryRebound(to: Int32.self, capacity: 2) { pipe($0) }
    }
    if made != 0 { throw Errno.current }
    reader = FileDescriptor(owning: ends.0)
    writer = FileDescriptor(owning: ends.1)
  }
}
