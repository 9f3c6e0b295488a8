import Base
import CSystem
import Glibc

/// What mediafs uses of the kernel where it is there.
package struct KernelFeatures: Sendable {
  /// As uname(2) tells it: `Linux 6.18.5-amd64`.
  package var release: String
  /// Whether FUSE knows passthrough; or why that cannot be told.
  package var passthrough: Result<Bool, Errno>
  /// The version of Landlock; or why there is none.
  package var landlock: Result<Int32, Errno>
  /// Whether mounts have numbers that no other mount of this boot has.
  package var hasUniqueMountIDs: Bool

  /// The least version of Landlock with which a server for another user is restricted.
  package static var leastLandlock: Int32 { Confinement.leastVersion }

  /// Asks the kernel. Asks no filesystem but that of `/`.
  package static func find() -> KernelFeatures {
    var name = utsname()
    uname(&name)
    let passthrough = csystem_knows_passthrough()
    let passthroughError = Errno.current
    let landlock = csystem_landlock_version()
    let landlockError = Errno.current
    return KernelFeatures(
      release: "\(text(name.sysname)) \(text(name.release))",
      passthrough: passthrough < 0 ? .failure(passthroughError) : .success(passthrough == 1),
      landlock: landlock < 0 ? .failure(landlockError) : .success(landlock),
      hasUniqueMountIDs: csystem_unique_mount_id("/") != 0)
  }

  /// The text of a field of utsname, which is an array that ends with a zero.
  private static func text<Field>(_ field: Field) -> String {
    withUnsafeBytes(of: field) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
  }

  /// For people: each feature with what is found.
  package var lines: [(name: String, found: String)] {
    let passes =
      switch passthrough {
      case .success(true): "yes"
      case .success(false): "no (Linux 6.9 has it)"
      case .failure(let error): "unknown (/dev/fuse: \(error))"
      }
    let restricts =
      switch landlock {
      case .success(let version): "version \(version)"
      case .failure(let error): "no (\(error))"
      }
    return [
      ("kernel", release), ("FUSE passthrough", passes), ("Landlock", restricts),
      ("unique mount ids", hasUniqueMountIDs ? "yes" : "no (Linux 6.8 has them)"),
    ]
  }
}
