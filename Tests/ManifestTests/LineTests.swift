import Base
import Glibc
import Manifest
import TestSupport
import Testing

@Suite("Lines of a manifest")
struct LineTests {
  @Test func plainURLs() throws {
    let reading = try read(
      """
      # my list
      https://example.com/music/song.mp3

         \t
      http://example.com/film.mkv
      """)
    #expect(reading.problems == [])
    #expect(reading.entries.map(\.line) == [2, 5])
    #expect(reading.entries.map(\.urls) == [["https://example.com/music/song.mp3"], ["http://example.com/film.mkv"]])
    #expect(reading.paths == ["song.mp3", "film.mkv"])
    #expect(reading.entries.allSatisfy { !$0.mayGainExtension && $0.headers.isEmpty && $0.checksum == nil })
  }

  @Test func byteOrderMarkAndCRLF() throws {
    let reading = try read(
      "\u{FEFF}https://example.com/a.mp3\r\n\r\n# x\r\nhttps://example.com/b.mp3\r\n  out=c.mp3\r\n")
    #expect(reading.problems == [])
    #expect(reading.entries.map(\.line) == [1, 4])
    #expect(reading.paths == ["a.mp3", "c.mp3"])
    #expect(reading.entries[0].urls == ["https://example.com/a.mp3"])
  }

  @Test func mirrors() throws {
    let reading = try read("https://a.org/x.iso\thttps://b.org/y.iso \t\t HTTPS://A.org:443/x.iso\thttp://c.org/z\n")
    #expect(reading.problems == [])
    #expect(reading.entries.count == 1)
    #expect(reading.entries[0].urls == ["https://a.org/x.iso", "https://b.org/y.iso", "http://c.org/z"])
    #expect(reading.entries[0].name == "x.iso")
    #expect(reading.entries[0].key == ResourceKey(url: "https://a.org/x.iso"))
  }

  @Test func aBadMirrorIsLeftOut() throws {
    let reading = try read("ftp://a.org/x.iso\thttps://b.org/y.iso\thttps:///\n")
    #expect(reading.problems.map(\.severity) == [.warning, .warning])
    #expect(reading.problems[0].message.contains("mirror 1") && reading.problems[0].message.contains("ftp"))
    #expect(reading.problems[1].message.contains("mirror 3"))
    #expect(reading.entries.map(\.urls) == [["https://b.org/y.iso"]])
    let none = try read("ftp://a.org/x\tgopher://b.org/y\n  out=x\n")
    #expect(none.entries.isEmpty && none.errors.count == 1)
  }

  @Test func optionsOfABadLineArePassedOver() throws {
    let reading = try read("https://example.com/a\nnonsense\n  out=x\n  dir=y\nhttps://example.com/b\n  out=z\n")
    #expect(reading.paths == ["a", "z"])
    #expect(reading.problems.map(\.line) == [2])
    #expect(reading.problems[0].severity == .error)
  }

  @Test func optionsSkipCommentsAndBlankLines() throws {
    let reading = try read("https://example.com/a\n# why\n  # indented\n\n  out=b\n")
    #expect(reading.problems == [] && reading.paths == ["b"])
  }

  @Test func anOptionBeforeAnyURL() throws {
    let reading = try read("  out=x\nhttps://example.com/a\n")
    #expect(reading.paths == ["a"])
    #expect(reading.problems.map(\.line) == [1])
    #expect(reading.problems[0].message.contains("before any URL"))
  }

  @Test func anIndentedURLAndAnOptionThatIsNot() throws {
    let reading = try read("https://example.com/a\n  https://user:geheim@example.com/b\nheader=Cookie: geheim\n")
    #expect(reading.entries.count == 1)
    #expect(reading.errors.map(\.line) == [2, 3])
    #expect(reading.problems[0].message.contains("start of its line"))
    #expect(reading.problems[1].message.contains("white space"))
    #expect(!reading.problems.contains { $0.description.contains("geheim") })
  }

  @Test func problemsComeBeforeTheirEntryAndInOrder() throws {
    var reader = ManifestReader(
      bytes: Array("https://example.com/a\n foo=1\n header=x\nbad\nhttps://example.com/b\n".utf8), name: "x")
    var seen: [String] = []
    while let item = try reader.next() {
      switch item {
      case .entry(let entry): seen.append("entry \(entry.line)")
      case .folder(let folder): seen.append("folder \(folder.line)")
      case .problem(let problem): seen.append("problem \(problem.line)")
      }
    }
    #expect(seen == ["problem 2", "problem 3", "entry 1", "problem 4", "entry 5"])
  }

  @Test func longLines() throws {
    // 64 KiB with the URL's first part is the greatest length that is read.
    let start = "https://example.com/"
    let longest = start + String(repeating: "a", count: 65536 - start.utf8.count)
    for (text, isRead) in [
      (longest, true), (longest + "a", false), (longest + longest + longest + longest + longest, false),
    ] {
      let all = "https://example.com/1\n" + text + "\n  out=x\nhttps://example.com/2\n"
      for reading in [try read(all), try throughPipe(all)] {
        #expect(reading.entries.map(\.line) == (isRead ? [1, 2, 4] : [1, 4]))
        #expect(reading.problems.map(\.line) == (isRead ? [] : [2]))
        if isRead { #expect(reading.entries[1].name == "x") }
      }
    }
    let comment = "# " + String(repeating: "a", count: 1 << 20) + "\nhttps://example.com/1"
    #expect(try read(comment).problems == [])
    #expect(try throughPipe(comment).problems == [])
    let option = "https://example.com/1\n  out=" + String(repeating: "a", count: 1 << 20) + "\n  dir=d"
    for reading in [try read(option), try throughPipe(option)] {
      #expect(reading.problems.map(\.line) == [2])
      #expect(reading.paths == ["d/1"])
    }
  }

  @Test func endsWithoutNewline() throws {
    #expect(try throughPipe("https://example.com/a").paths == ["a"])
    #expect(try throughPipe("").entries.isEmpty)
    #expect(try read("\n\n\n").entries.isEmpty)
  }

  /// Many more bytes than the buffer has, with lines across its end.
  @Test func moreThanTheBuffer() throws {
    var text = ""
    for number in 0..<20000 {
      text += "https://example.com/" + String(repeating: "x", count: number % 97) + "/\(number)\n"
      if number % 3 == 0 { text += "  dir=folder \(number)\n" }
    }
    let reading = try throughPipe(text)
    #expect(reading.problems == [])
    #expect(reading.paths == (0..<20000).map { $0 % 3 == 0 ? "folder \($0)/\($0)" : "\($0)" })
    #expect(reading.entries == (try read(text)).entries)
  }

  /// A regular file fills the buffer of 262,144 bytes to its end: with lines of 512 bytes a LF is its last byte, with
  /// lines of 481 or 545, which divide 262,145, it is the first byte of the next read.
  @Test(arguments: [480, 481, 482, 512, 545])
  func lineEndsAtTheBuffersEnd(_ length: Int) throws {
    let line = "https://example.com/" + String(repeating: "x", count: length - 21) + "\n"
    let path = temporaryPath()
    defer { unlink(path) }
    do {
      let bytes = Array(String(repeating: line, count: 2000).utf8)
      let file = try FileDescriptor.open(path, O_CREAT | O_WRONLY)
      try bytes.withUnsafeBytes { try file.writeFully($0, at: 0) }
    }
    let reading = try readAll(ManifestReader(path: path))
    #expect(reading.problems == [] && reading.entries.map(\.line) == Array(1...2000))
    #expect(reading.entries.allSatisfy { $0.urls == [String(line.dropLast())] })
  }

  @Test func otherFilesAreTold() throws {
    func error(_ bytes: [UInt8], _ name: String = "x.txt") -> ManifestError? {
      do {
        var reader = ManifestReader(bytes: bytes, name: name)
        _ = try reader.next()
        #expect(try reader.next() == nil)
        return nil
      } catch { return error }
    }
    #expect(error([0xFF, 0xFE, 0x68, 0]) == .notUTF8(name: "x.txt"))
    #expect(error(Array("<!DOCTYPE html><html>Please log in".utf8)) == .notAList(name: "x.txt", what: "html"))
    #expect(error([0x1F, 0x8B, 0x08, 0, 0]) == .notAList(name: "x.txt", what: "gz"))
    #expect(error(Array("\n {\"a\": 1}".utf8)) == .notAList(name: "x.txt", what: "json"))
    #expect(error(Array("[\"https://h/1.mp3\"]".utf8)) == .notAList(name: "x.txt", what: "json"))
    #expect(error(Array("<opml><body/></opml>".utf8)) == .notAList(name: "x.txt", what: "xml"))
    #expect(error(Array("{}".utf8)) == .notAList(name: "x.txt", what: "json"))
    #expect(error(Array("[1, 2]".utf8)) == .notAList(name: "x.txt", what: "json"))
    let typed = "<!-- \(String(repeating: "x", count: 5000)) --><opml/>"
    #expect(error(Array(typed.utf8)) == .notAList(name: "x.txt", what: "xml"))
    #expect(error(Array("<a:b c='d'/>".utf8)) == .notAList(name: "x.txt", what: "xml"))
    #expect(error(Array("#EXTM3U\nhttps://example.com/x".utf8)) == nil)
  }

  /// A first line that begins with a bracket is a line like any other, and gets its own message.
  @Test(arguments: [
    "[Films]", "<films>", "[ films ]", "<https://h/0.mp4>", "{films}", "[1] new ones", "<<< new >>>", "[\"new\"]",
    "</films>", "<films", "[https://h/0.mp4]",
  ]) func aPlainListMayBeginOddly(line: String) throws {
    for text in ["\(line)\nhttps://h/1.mp4\n", "\(line)\r\n\r\nHTTPS://h/1.mp4\r\n out=1.mp4\r\n"] {
      let reading = try read(text)
      #expect(reading.paths == ["1.mp4"] && reading.errors.map(\.line) == [1], "\(reading.problems)")
    }
    // Also where no URL is near.
    if ["[\"new\"]", "[1] new ones", "<films>", "<films"].contains(line) { return }
    #expect(try read("\(line)\n\(String(repeating: "# comment\n", count: 1000))https://h/1.mp4\n").paths == ["1.mp4"])
  }

  @Test func pathsThatCannotBeRead() throws {
    let folder = temporaryPath()
    #expect(mkdir(folder, 0o700) == 0)
    defer { rmdir(folder) }
    #expect(throws: ManifestError.isFolder(path: folder)) { _ = try ManifestReader(path: folder, format: .m3u) }
    #expect(throws: ManifestError.notFound(path: folder + "/none")) { _ = try ManifestReader(path: folder + "/none") }
    let file = folder + "/list.m3u"
    do {
      let descriptor = try FileDescriptor.open(file, O_CREAT | O_WRONLY, mode: 0)
      try Array("#EXTINF:1,Title\nhttps://example.com/x.mp3\n".utf8).withUnsafeBytes {
        try descriptor.writeFully($0, at: 0)
      }
    }
    defer { unlink(file) }
    // root may read anything, so the refusal shows to others only.
    if geteuid() != 0 {
      #expect(throws: ManifestError.permissionDenied(path: file)) { _ = try ManifestReader(path: file) }
    }
    #expect(chmod(file, 0o600) == 0)
    #expect(try readAll(ManifestReader(path: file)).paths == ["Title.mp3"])
  }

  @Test func everyErrorSaysWhatIsWrong() {
    let errors: [ManifestError] = [
      .notFound(path: "p"), .isFolder(path: "p"), .permissionDenied(path: "p"), .unreadable(name: "p", reason: .io),
      .notUTF8(name: "p"), .notAList(name: "p", what: "mp4"), .streamPlaylist(name: "p", line: 3),
    ]
    for error in errors { #expect("\(error)".hasPrefix("manifest p")) }
    #expect(Set(errors.map(\.description)).count == errors.count)
  }

  /// A path in the system's folder for temporary files that nothing has.
  private func temporaryPath() -> String {
    let folder = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
    return folder + "/manifest-tests-\(getpid())-\(UInt32.random(in: 0 ... .max))"
  }

  /// Reads `text` from a pipe that a thread fills in pieces of odd sizes.
  private func throughPipe(_ text: String) throws -> Reading {
    var ends: [Int32] = [0, 0]
    #expect(pipe(&ends) == 0)
    let output = ends[1]
    let bytes = Array(text.utf8)
    let writer = OwnedThread(name: "writer") {
      var position = 0
      while position < bytes.count {
        let count = bytes.withUnsafeBytes {
          write(output, $0.baseAddress! + position, min(4099, bytes.count - position))
        }
        if count <= 0 { break }
        position += count
      }
      close(output)
    }
    defer { writer.join() }
    return try readAll(ManifestReader(descriptor: FileDescriptor(owning: ends[0]), name: "pipe"))
  }
}
