/// A store that a program of a former format wrote, with what must be in it. Tests/Fixtures/make-store-format says how
/// they were made.
package struct OldStore: Sendable, CustomStringConvertible {
  /// Its format.
  package let format: UInt8
  /// The stored bytes of each partial or superseded generation, by id; all of them are synced.
  package let stored: [Int64: Int64]
  /// The generation that a later one superseded: a handle had it open.
  package let superseded: Int64
  /// The generation that is complete.
  package let complete: Int64

  /// The stores of all former formats.
  package static let all = [
    OldStore(
      format: 1, stored: [10: 16_096, 11: 6_000, 12: 28_096, 13: 6_000], superseded: 11, complete: 9),
    OldStore(
      format: 2, stored: [10: 16_096, 11: 28_096, 12: 6_000, 13: 6_000], superseded: 12, complete: 9),
  ]

  package var description: String { "format \(format)" }

  private static let tests = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }

  /// Unpacks it into `folder`, as `store`.
  package func unpack(into folder: TemporaryFolder) throws(CommandFailure) {
    try Command.succeed(
      ["tar", "--no-same-owner", "-xzpf", "\(Self.tests)/Fixtures/store-format-\(format).tar.gz", "-C", folder.path])
  }

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
