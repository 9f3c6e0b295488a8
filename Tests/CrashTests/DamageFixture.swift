import Base
import Glibc
import TestSupport
import Testing

@testable import Storing

/// A store with something of everything in it, not mounted: what is damaged next.
struct DamageFixture {
  /// A file that is complete, in a folder.
  static let whole = "shows/whole.mp4"
  /// A file that is complete, and whose checksum the manifest gives.
  static let sealed = "sealed.mp4"
  /// A file of which two parts are stored.
  static let part = "part.mp4"
  private static let parts = [ByteRange(0, 100_000), ByteRange(1_500_000, 1_600_000)]
  static let sizes: [String: Int64] = [whole: 300_001, sealed: 70_000, part: 2_000_000]

  let store: ServedStore
  let origin: Origin

  /// Lends one.
  static func lend(_ body: (DamageFixture) throws -> Void) throws {
    try withWatchdog(300) {
      try withOrigin { origin in
        for (name, size) in sizes { origin.add("/\(name)", size: size) }
        try withServedStore { store in
          let fixture = DamageFixture(store: store, origin: origin)
          try fixture.list()
          try fixture.start()
          for name in [whole, sealed] { try fixture.expectRight(name) }
          for range in parts {
            let bytes = try store.read(part, at: range.start, count: Int(range.count))
            #expect(fixture.isRight(bytes, part, at: range.start))
          }
          try store.waitForCompletion([whole, sealed])
          try store.unmount()
          #expect(try store.verify().succeeded)
          try body(fixture)
        }
      }
    }
  }

  /// The manifest, with what else it should say of a name.
  func list(renamed: [String: String] = [:], without: Set<String> = []) throws {
    let digest = Pattern.sha256(name: "/\(Self.sealed)", size: Self.sizes[Self.sealed] ?? 0)
    let lines = Self.sizes.keys.sorted().filter { !without.contains($0) }.map { name in
      "\(origin.url("/\(name)"))\n  out=\(renamed[name] ?? name)\n"
        + (name == Self.sealed ? "  checksum=sha-256=\(digest)\n" : "")
    }
    try store.folder.write(lines.joined(), to: "urls.txt")
  }

  /// Mounts it; only what is read is fetched.
  func start(_ options: [String] = []) throws {
    try #require(try store.start(["--continue", "playing"] + options), "\(store.errors)")
  }

  /// Whether those bytes of that file are right.
  func isRight(_ bytes: [UInt8], _ name: String, at offset: Int64) -> Bool {
    Pattern.check(bytes, name: "/\(name)", offset: offset) == nil
  }

  /// Reads a file wholly through the mount.
  func expectRight(_ name: String, as shown: String? = nil, _ location: SourceLocation = #_sourceLocation) throws {
    let bytes = try store.read(shown ?? name)
    #expect(Int64(bytes.count) == Self.sizes[name], sourceLocation: location)
    #expect(isRight(bytes, name, at: 0), sourceLocation: location)
  }

  /// No byte came from the origin that was stored already (others may: the end of a file is looked at early, and what
  /// the origin sends ahead of a reader does not reach a server that ends).
  func expectNothingSentTwice(_ location: SourceLocation = #_sourceLocation) {
    for (name, size) in Self.sizes {
      let parts = name == Self.part ? Self.parts : [ByteRange(0, size)]
      let again = origin.log.sentMoreThanOnce(of: "/\(name)")
      #expect(parts.allSatisfy { again.count(in: $0) == 0 }, "\(name): \(again)", sourceLocation: location)
    }
  }

  /// The one partial file that holds something.
  func partialFile() throws -> String {
    let folder = store.store + "/partial"
    let names = try Command.succeed(["find", folder, "-type", "f", "-size", "+0"]).split(separator: "\n")
    return try #require(names.first.map(String.init), "no partial file")
  }

  /// Reads everything; every byte that comes is right. Returns the names that gave an error instead.
  func readAll() -> [String: Errno] {
    var failed: [String: Errno] = [:]
    for name in Self.sizes.keys {
      do throws(Errno) {
        let bytes = try store.read(name)
        #expect(isRight(bytes, name, at: 0) && Int64(bytes.count) == Self.sizes[name], "\(name)")
      } catch {
        failed[name] = error
      }
    }
    return failed
  }
}

extension Pattern {
  /// The digest of a whole resource, in hexadecimal digits, by sha256sum(1).
  static func sha256(name: String, size: Int64) -> String {
    let bytes = Pattern.bytes(name: name, offset: 0, count: Int(size))
    let output = try? Command.run(["sha256sum"], input: bytes).output  // without it the test that needs it fails
    return output.map { String($0.prefix(64)) } ?? ""
  }
}

/// Notes in the catalog how a copy looks now.
func restamp(_ store: ServedStore, _ path: String) throws {
  let catalog = try Catalog.open(path: store.store + "/catalog.sqlite", access: .readWrite)
  let status = try FileDescriptor.open(path, O_RDONLY).status()
  for id in try catalog.generations.ids(limit: 1000, after: 0) {
    guard let copy = try catalog.generations.find(id)?.copy, path.hasSuffix("/\(copy.path)") else { continue }
    try catalog.changes.apply(
      [.placed(generation: id, LibraryCopy(at: copy.path, status), adopted: nil)], durably: true)
  }
  try catalog.close()
}
