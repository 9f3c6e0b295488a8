import CFuse

/// The libfuse that this process runs with.
package enum Libfuse {
  /// Its version, as it tells it itself.
  package static var version: String { String(cString: fuse_pkgversion()) }
}
