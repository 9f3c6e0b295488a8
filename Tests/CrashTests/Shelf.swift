import Base
import TestSupport

/// The resources of a crash test: each is told from the others by its Last-Modified, which the catalog keeps, so that
/// every stored byte can be checked whatever names it has at the moment.
struct Shelf: Sendable {
  let origin: Origin
  /// The size of each resource.
  private(set) var sizes: [Int64] = []
  private static let start: Int64 = 1_000_000_000
  /// The origin adds an hour a generation.
  private static let step: Int64 = 1_000_000

  init(origin: Origin) { self.origin = origin }

  /// The path at the origin, which is also the pattern's name, and the name in the mount.
  static func path(_ index: Int) -> String { "/\(name(index))" }
  static func name(_ index: Int) -> String { "file-\(index).mp4" }

  /// Adds a resource; its number.
  mutating func add(size: Int64) -> Int {
    let index = sizes.count
    sizes.append(size)
    var resource = OriginResource(size: size, pattern: Self.path(index), type: "video/mp4")
    resource.modified = Self.start + Int64(index) * Self.step
    origin.set(Self.path(index), resource)
    return index
  }

  /// A line of the manifest.
  func line(_ index: Int) -> (name: String, url: String) { (Self.name(index), origin.url(Self.path(index))) }

  /// How many bytes of a part the origin sent, repeats included. A reader's look-ahead goes beyond what it reads, and a
  /// server that is killed early has not all of it: what is fetched for that afterwards is nothing lost.
  func sent(_ index: Int, of part: ByteRange) -> Int64 {
    let sent = origin.log.entries(of: Self.path(index)).flatMap(\.sent)
    return sent.reduce(0) { $0 + ($1.range.intersection(part)?.count ?? 0) }
  }

  /// Which resource and generation has that Last-Modified.
  static func identify(_ modified: Int64?) -> (index: Int, generation: UInt64)? {
    guard let modified, modified > start else { return nil }
    return (Int((modified - start) / step), UInt64((modified - start) % step / 3600))
  }

  /// The first byte that is no byte of that resource's current or earlier generations; nil when all are of one of them.
  func isRight(_ bytes: [UInt8], _ index: Int, at offset: Int64) -> Bool {
    if bytes.isEmpty { return true }
    let newest = origin.resource(Self.path(index))?.generation ?? 1
    return (1...newest).contains { generation in
      Pattern.check(bytes, name: Self.path(index), generation: generation, offset: offset) == nil
    }
  }

  /// What is wrong with bytes that were read: the stretches that are of one generation, of zeros, or of nothing known.
  func describe(_ bytes: [UInt8], _ index: Int, at offset: Int64) -> String {
    let newest = origin.resource(Self.path(index))?.generation ?? 1
    var stretches: [String] = []
    var last = ""
    for start in stride(from: 0, to: bytes.count, by: 512) {
      let piece = Array(bytes[start..<min(bytes.count, start + 512)])
      let known = (1...newest).first { generation in
        Pattern.check(piece, name: Self.path(index), generation: generation, offset: offset + Int64(start)) == nil
      }
      let what = known.map { "generation \($0)" } ?? (piece.allSatisfy { $0 == 0 } ? "zeros" : "unknown")
      if what != last { stretches.append("\(what) from \(offset + Int64(start))") }
      last = what
    }
    return "wrong bytes were read: \(stretches.joined(separator: ", ")) to \(offset + Int64(bytes.count)), of \(newest)"
  }
}
