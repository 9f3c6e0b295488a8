import Fetching
import Manifest
import Mount
import Storing

/// The version of this program, as `mediafs --version` prints it. The heading of CHANGELOG.md, the package and the
/// archives have it from here.
package let mediafsVersion = "0.2.0"

/// The libraries of the rooms below the command line, which this process runs with.
package enum LinkedLibraries {
  /// Their names and versions.
  package static var all: [(name: String, version: String)] {
    [
      ("libfuse", Libfuse.version), ("libcurl", Libcurl.version), ("SQLite", StoringLibraries.sqlite),
      ("libcrypto", StoringLibraries.libcrypto), ("libxml2", Libxml2.version),
    ]
  }
}
