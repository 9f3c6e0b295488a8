import Base
import Glibc
import Manifest
import TestSupport
import Testing

@testable import Storing

/// Bytes on the disk that are not what was written: read as damage, or as something that is right in itself.
@Suite("Hostile store files")
struct StoreFuzzTests {
  @Test func everyExtentsBlobIsReadOrRefused() {
    var read = 0
    Fuzzing("extents", cases: 6000).run { random, place in
      var set = ByteRangeSet()
      for _ in 0..<Int.random(in: 0...6, using: &random) {
        let start = Int64.random(in: 0...(1 << 40), using: &random)
        set.insert(ByteRange(start, start + Int64.random(in: 1...100_000, using: &random)))
      }
      let kept = set.encoded.withUnsafeBytes { ByteRangeSet(encoded: $0) }
      #expect(kept == set, "\(place)")
      let bytes =
        random.oneIn(3) ? random.bytes(60) : random.mutated(set.encoded, tokens: [[0xFF], [0x80, 0x80], [0x7F]])
      guard let found = bytes.withUnsafeBytes({ ByteRangeSet(encoded: $0) }) else { return }
      read += 1
      var end: Int64 = -1
      for range in found.ranges {
        #expect(range.start > end && range.end > range.start, "\(place)")
        end = range.end
      }
    }
    #expect(read > 0)
  }

  @Test func everySourceBlobIsReadOrRefused() {
    var read = 0
    let key = ResourceKey(url: "http://h/")
    Fuzzing("source", cases: 6000).run { random, place in
      var entry = ManifestEntry(
        line: 1, urls: ["http://h/a", "http://i/b"], folder: [], name: "a", mayGainExtension: random.oneIn(2),
        headers: [],
        userAgent: random.oneIn(2) ? "x" : nil, referer: nil,
        checksum: random.oneIn(2) ? Checksum(algorithm: .md5, digest: Array(repeating: 7, count: 16)) : nil, key: key)
      if random.oneIn(2) { entry.headers = [HTTPHeader(name: "a", value: "b")] }
      var writer = BlobWriter()
      writer.append(sourceOf: entry)
      let bytes = random.oneIn(4) ? random.bytes(80) : random.mutated(writer.bytes, tokens: [[0xFF, 0x7F], [0], [31]])
      let found = bytes.withUnsafeBytes { raw in
        var reader = BlobReader(raw)
        return reader.source(line: 1, folder: [], name: "a", key: key)
      }
      guard let found else { return }
      read += 1
      #expect(!found.urls.isEmpty, "\(place)")
    }
    #expect(read > 0)
  }

  @Test func everyRememberedMountIsReadOrPassedOver() throws {
    try Fuzzing.withFolder { folder in
      let registry = try MountRegistry(environment: ["XDG_DATA_HOME": folder.path], uid: getuid())
      try registry.remember(MountRecord(mountpoint: "/mnt/a\nb\\", store: "/s", library: "/l", manifest: "-"))
      let mounts = folder.file("mediafs/mounts")
      let name = try #require(try names(in: mounts).first)
      let good = try contents(of: "\(mounts)/\(name)")
      let words = tokens(
        "\n", "=", "\\", "\\n", "mountpoint=", "mediafs mount 2\n", "\0", "\u{301}", "/..", "store=", "\r")
      try Fuzzing("mounts", cases: 500).run { random, place in
        try folder.write(random.mutated(good, tokens: words), to: "mediafs/mounts/\(name)")
        for record in try registry.all() {
          for path in [record.mountpoint, record.store, record.library] {
            #expect(
              path.utf8.first == UInt8(ascii: "/") && !path.utf8.contains(0), "\(place): \(path.debugDescription)")
          }
        }
      }
    }
  }

  /// A FIFO, a link, a folder, a huge file in the place of a remembered mount: passed over, and nothing waits.
  @Test func whatIsNoPlainFileIsNoMount() throws {
    try withTemporaryFolder { folder in
      let registry = try MountRegistry(environment: ["XDG_DATA_HOME": folder.path], uid: getuid())
      try registry.remember(MountRecord(mountpoint: "/mnt/good", store: "/s", library: "/l", manifest: "-"))
      let mounts = folder.file("mediafs/mounts")
      #expect(mkfifo("\(mounts)/fifo", 0o600) == 0)
      #expect(symlink("/etc/passwd", "\(mounts)/link") == 0)
      #expect(symlink("/dev/zero", "\(mounts)/zero") == 0)
      try folder.makeFolder("mediafs/mounts/folder")
      try folder.write([UInt8](repeating: 10, count: 1 << 20), to: "mediafs/mounts/huge")
      // root's registry has another folder besides, which is not this test's.
      let found = try registry.all().filter { $0.store == "/s" }.map(\.mountpoint)
      #expect(found == ["/mnt/good"])
    }
  }
}

/// The names in a folder.
func names(in path: String) throws -> [String] { try Folder.open(path).names() }

/// The bytes of a small file; what /proc gives too.
func contents(of path: String) throws(Errno) -> [UInt8] {
  let file = try FileDescriptor.open(path, O_RDONLY)
  var bytes: [UInt8] = []
  var piece = [UInt8](repeating: 0, count: 1 << 16)
  while true {
    let count = try retrying { read(file.rawValue, &piece, piece.count) }
    if count == 0 { return bytes }
    bytes += piece[..<count]
  }
}
