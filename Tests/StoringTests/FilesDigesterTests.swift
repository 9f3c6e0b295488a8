import Base
import Glibc
import Manifest
import Testing

@testable import Storing

@Suite struct FilesDigesterTests {
  /// "abc": RFC 1321 (A.5), FIPS 180-4's examples.
  static let vectors: [(Checksum.Algorithm, String)] = [
    (.md5, "900150983cd24fb0d6963f7d28e17f72"),
    (.sha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
    (.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    (
      .sha512,
      "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
        + "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
    ),
  ]

  @Test(arguments: vectors) func knownDigests(algorithm: Checksum.Algorithm, expected: String) throws {
    #expect(hexadecimal(try Digester.digest(of: "abc", algorithm)) == expected)
  }

  @Test func everyAlgorithmHasAVector() {
    #expect(Set(FilesDigesterTests.vectors.map(\.0)) == Set(Checksum.Algorithm.allCases))
  }

  @Test func aFileOfSeveralPieces() throws {
    let home = try TestFolder()
    // A million "a": FIPS 180-4's third example; the file goes on behind them.
    try home.write("a", [UInt8](repeating: UInt8(ascii: "a"), count: 3_000_000))
    let file = try FileDescriptor.open(home.path + "/a", O_RDONLY)
    let digest = try Digester.digest(of: file.rawValue, size: 1_000_000, .sha1)
    #expect(hexadecimal(try #require(digest)) == "34aa973cd4c4daa4f61eeb2bdbad27316534016f")
    var whole = try Digester(.sha256)
    try #require(home.bytes("a")).withUnsafeBytes { whole.update($0) }
    let expected = whole.finish()
    #expect(try Digester.digest(of: file.rawValue, size: 3_000_000, .sha256) == expected)
    #expect(
      hexadecimal(try #require(try Digester.digest(of: file.rawValue, size: 0, .md5)))
        == "d41d8cd98f00b204e9800998ecf8427e")
  }

  @Test func endsWhenCancelledOrCutShort() throws {
    let home = try TestFolder()
    try home.write("a", [UInt8](repeating: 1, count: 3 << 20))
    let file = try FileDescriptor.open(home.path + "/a", O_RDONLY)
    var asked = 0
    let digest = try Digester.digest(of: file.rawValue, size: 3 << 20, .md5) {
      asked += 1
      return asked == 3
    }
    #expect(digest == nil && asked == 3)
    let short = failure { () throws(StoreError) in
      _ = try Digester.digest(of: file.rawValue, size: (3 << 20) + 1, .md5)
    }
    #expect(short?.kind == .corrupt)
    let folder = try FileDescriptor.open(home.path, O_RDONLY)
    let unreadable = failure { () throws(StoreError) in _ = try Digester.digest(of: folder.rawValue, size: 1, .md5) }
    #expect(unreadable?.kind == .io(.isDirectory))
  }
}
