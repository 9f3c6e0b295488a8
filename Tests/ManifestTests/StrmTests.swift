import Base
import Glibc
import Manifest
import TestSupport
import Testing

@Suite("Folders of .strm files")
struct StrmTests {
  @Test func aFolder() throws {
    try withTemporaryFolder { folder in
      let root = folder.file("shows")
      for path in ["", "/b", "/b/Season 1", "/empty", "/.hidden"] { #expect(mkdir(root + path, 0o700) == 0) }
      try folder.write("https://h/2.mkv\n", to: "shows/b/Season 1/Two.strm")
      try folder.write("\u{FEFF}#KODIPROP:x=y\r\n\r\nhttps://h/1|User-Agent=A%20b\r\n", to: "shows/b/Season 1/One.STRM")
      try folder.write("ftp://h/geheim", to: "shows/a.strm")
      try folder.write("", to: "shows/none.strm")
      try folder.write("https://h/x.mp4", to: "shows/.hidden/x.strm")
      try folder.write("picture", to: "shows/poster.jpg")
      try folder.write(String(repeating: "x", count: 70_000), to: "shows/long.strm")
      #expect(symlink("/etc/passwd", root + "/link.strm") == 0 && mkfifo(root + "/pipe.strm", 0o600) == 0)
      let reading = try readAll(ManifestReader(path: root))
      #expect(reading.paths == ["b/Season 1/One", "b/Season 1/Two.mkv"])
      #expect(reading.entries[0].userAgent == "A b" && reading.entries[0].mayGainExtension)
      let messages = reading.errors.map(\.message)
      #expect(messages.count == 3 && messages[0].hasPrefix("a.strm: ftp: URLs cannot be fetched"), "\(messages)")
      #expect(messages[1].hasPrefix("long.strm: ") && messages[2] == "none.strm: has no URL", "\(messages)")
      let left = reading.problems.filter { $0.severity == .warning }.map(\.message)
      #expect(left.count == 2 && left[0].hasSuffix("(links are not followed) (2, the first here)"), "\(left)")
      #expect(left[1] == "left out: files that are not .strm (1)", "\(left)")
      #expect(!reading.problems.contains { $0.message.contains("geheim") })
    }
  }

  @Test func fieldsThatCannotBeRead() throws {
    try withTemporaryFolder { folder in
      #expect(mkdir(folder.file("films"), 0o700) == 0)
      try folder.write("https://h/1.mp4|Cookie=geheim&verifypeer\n", to: "films/One.strm")
      let reading = try readAll(ManifestReader(path: folder.file("films")))
      #expect(reading.entries.map(\.urls) == [["https://h/1.mp4"]] && reading.errors.isEmpty)
      #expect(reading.entries.first?.headers == [HTTPHeader(name: "Cookie", value: "geheim")])
      #expect(reading.problems.first?.message.hasPrefix("One.strm: 1 of its parts") == true, "\(reading.problems)")
    }
  }

  @Test func aFolderThatIsNone() throws {
    try withTemporaryFolder { folder in
      let list = try folder.write("https://h/x\n", to: "list")
      var reader = try ManifestReader(path: list, format: .strm)
      do throws(ManifestError) {
        _ = try reader.next()
        Issue.record("a file was read as a folder")
      } catch {
        #expect(error == .notAFolder(path: list))
      }
      #expect(throws: ManifestError.isFolder(path: folder.path)) {
        _ = try ManifestReader(path: folder.path, format: .feed)
      }
    }
  }

  /// Folders within folders, as deep as the file system allows: no stack and no path grows without bound.
  @Test func deepFolders() throws {
    try withTemporaryFolder { folder in
      var path = folder.file("top")
      #expect(mkdir(path, 0o700) == 0)
      let top = path
      for _ in 0..<40 {
        path += "/d"
        #expect(mkdir(path, 0o700) == 0)
      }
      let reading = try readAll(ManifestReader(path: top))
      #expect(reading.entries.isEmpty && reading.problems.count == 1)
      #expect(reading.problems.first?.message.contains("nest deeper than 32") == true)
    }
  }
}
