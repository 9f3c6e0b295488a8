/// The store that the last program of format 1 wrote, with what must be in it. Tests/Fixtures/make-store-format-1 says
/// how it was made.
package enum OldStore {
  private static let tests = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }

  /// Unpacks it into `folder`, as `store`.
  package static func unpack(into folder: TemporaryFolder) throws(CommandFailure) {
    try Command.succeed(
      ["tar", "--no-same-owner", "-xzpf", "\(tests)/Fixtures/store-format-1.tar.gz", "-C", folder.path])
  }

  /// The stored bytes of each generation, by id; all of them are synced.
  package static let stored: [Int64: Int64] = [10: 16_096, 11: 6_000, 12: 28_096, 13: 6_000]
  /// The generation that 13 superseded: a handle had it open.
  package static let superseded: Int64 = 11
  /// The generation that is complete.
  package static let complete: Int64 = 9
  /// The names in the mount, by the number of the resource at the origin.
  package static let names = ["shows/whole.mp4", "two.mp4", "changed.mp4", "pinned.mp4", "missing.mp4"]
  /// The size of the complete file, and of each partial one.
  package static let completeSize: Int64 = 3_000
  package static let partialSize: Int64 = 600_000

  /// The manifest, with the URL of each resource.
  package static func manifest(url: (String) -> String) -> String {
    names.indices.map { "\(url("/file-\($0).mp4"))\n  out=\(names[$0])\n  id=fixture \($0)\n" }.joined()
  }
}
