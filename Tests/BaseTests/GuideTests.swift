import Base
import Glibc
import TestSupport
import Testing

/// The commands that documents for users show do what the documents say: Tests/walk_guide.py runs them.
@Suite("Guide")
struct GuideTests {
  /// The namespaces of an ordinary user, which a system may keep from them.
  private static let hasNamespaces =
    geteuid() == 0
    || (try? Command.run([
      "unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--mount-proc", "true",
    ]).succeeded) ?? false

  /// Beside no other test that mounts: its mounts would be in the walk's namespace too, and in use there.
  @Test(
    "Every command of README and GUIDE prints what stands there",
    .enabled(if: hasNamespaces, "This machine has no namespaces for ordinary users"),
    arguments: ["README.md", "docs/GUIDE.md"])
  func everyCommandPrintsWhatStandsThere(document: String) throws {
    let root = DocumentTests.root
    let mediafs = builtProduct("mediafs")
    let folder = String(mediafs.dropLast("/mediafs".count))
    let walk = try Command.run(
      ["/usr/bin/python3", "\(root)/Tests/walk_guide.py", folder, "\(root)/\(document)"],
      environment: ["PATH": Self.path], timeout: 300)
    #expect(walk.succeeded, "\(walk.output)\(walk.errors)")
    let count = walk.output.firstMatch(of: #/(\d+) commands, 0 otherwise/#).flatMap { Int($0.1) } ?? 0
    #expect(count >= (document == "README.md" ? 3 : 50), "\(walk.output)")
  }

  private static let path = "\(getenv("PATH").map { String(cString: $0) } ?? "/usr/bin:/bin"):/usr/sbin:/sbin"
}
