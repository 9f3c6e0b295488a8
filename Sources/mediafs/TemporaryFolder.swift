import Base
import Glibc

/// A folder of mode 0700 below TMPDIR or /tmp. The end of its lifetime removes it and the files in it.
struct TemporaryFolder: ~Copyable {
  /// Its absolute path.
  let path: String

  /// Creates the folder; throws the error of mkdtemp(3).
  init() throws(Errno) {
    let place = getenv("TMPDIR").map { String(cString: $0) } ?? ""
    var template = Array("\(place.hasPrefix("/") ? place : "/tmp")/mediafs-check-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw Errno.current }
    path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  deinit {
    if let folder = opendir(path) {
      while let entry = readdir(folder) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
          $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        if name != ".", name != ".." { unlink("\(path)/\(name)") }
      }
      closedir(folder)
    }
    if rmdir(path) != 0 { Log.warning("cannot remove \(path): \(Errno.current)") }
  }
}
