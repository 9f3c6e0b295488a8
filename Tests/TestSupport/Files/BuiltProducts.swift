import Glibc

/// The path of a program of this package, built beside the tests (`mediafs`, `mount-helper`, `test-origin`): in the
/// folder that MEDIAFS_PRODUCTS names, else the one the running test program lies in.
package func builtProduct(_ name: String) -> String {
  if let folder = getenv("MEDIAFS_PRODUCTS") { return "\(String(cString: folder))/\(name)" }
  var buffer = [CChar](repeating: 0, count: 4096)
  let count = readlink("/proc/self/exe", &buffer, buffer.count)
  let program = String(decoding: buffer.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
  return program[..<(program.lastIndex(of: "/") ?? program.startIndex)] + "/\(name)"
}
