import Base
import CSystem
import Manifest

extension ManifestReader {
  /// Reads `bytes` from an unnamed file.
  package init(bytes: [UInt8], name: String, base: ManifestBase = .none, format: ListFormat? = nil) {
    do {
      let file = FileDescriptor(owning: try retrying { csystem_make_memory_file("manifest") })
      let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
      defer { copy.deallocate() }
      copy.copyBytes(from: bytes)
      try file.writeFully(UnsafeRawBufferPointer(copy), at: 0)
      try self.init(descriptor: file, name: name, base: base, format: format)
    } catch {
      preconditionFailure("no file can be made in memory: \(error)")
    }
  }
}

extension SafeName {
  /// Whether `name` is safe as it is.
  package static func isSafe(_ name: String) -> Bool {
    guard let safe = component(name) else { return false }
    return safe.utf8.elementsEqual(name.utf8)  // not ==, which takes canonically equivalent texts for equal
  }
}
