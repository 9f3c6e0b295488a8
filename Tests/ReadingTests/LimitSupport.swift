import Base
import Glibc
import Manifest
import Testing

@testable import Reading
@testable import Storing

extension Bench {
  /// What the store takes on the disk: partial files and the library, in bytes.
  var onDisk: Int64 { spaceOnDisk(below: folder + "/store/partial") + spaceOnDisk(below: folder + "/library") }

  /// What the room counts as held on the disk.
  var held: Int64 { system.room.ledger.balance.held }
  /// Why the store takes no more; nil while it does.
  var lack: StoreLack? { system.storeUse.lack }

  /// Whether the server that begins next finds the store clean. What a kill left is repaired as a mount does.
  func findings() throws -> [StoreFinding] {
    let (store, library) = (folder + "/store", folder + "/library")
    let left = try StoreVerification.run(store: store, mountpoint: "/nowhere", library: library, repairs: true)
    let after = try StoreVerification.run(store: store, mountpoint: "/nowhere", library: library, repairs: false)
    // Only a file that was created right before a kill belongs to nothing.
    return left.findings.filter { $0.kind != .orphan } + after.findings
  }
}

/// What a folder takes on the disk, with all below it.
func spaceOnDisk(below path: String) -> Int64 {
  guard let folder = opendir(path) else { return 0 }
  defer { closedir(folder) }
  var sum: Int64 = 0
  while let item = readdir(folder) {
    let name = withUnsafePointer(to: &item.pointee.d_name) {
      $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
    }
    if name == "." || name == ".." { continue }
    var status = stat()
    guard lstat(path + "/" + name, &status) == 0 else { continue }
    sum += status.st_mode & S_IFMT == S_IFDIR ? spaceOnDisk(below: path + "/" + name) : Int64(status.st_blocks) * 512
  }
  return sum
}
