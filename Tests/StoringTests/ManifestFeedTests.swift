import Base
import Glibc
import Manifest
import Testing

@testable import Storing

@Suite(.timeLimit(.minutes(2))) struct ManifestFeedTests {
  /// A manifest of that many entries, with a problem behind each tenth.
  private func manifest(_ entries: Int) -> [UInt8] {
    var text = ""
    for number in 0..<entries {
      text += "http://example.com/\(number)?n=\(number)\n  out=clip \(number).mp4\n"
      if number % 10 == 9 { text += "no URL\n" }
    }
    return Array(text.utf8)
  }

  private func reader(_ text: [UInt8], _ name: String = "list") -> ManifestReader {
    ManifestReader(bytes: text, name: name)
  }

  /// Both ends of a pipe in which that text is, as lines from 2: the one to read from, and the other.
  private func makePipe(_ text: String) throws -> [Int32] {
    var ends: [Int32] = [0, 0]
    try #require(pipe(&ends) == 0)
    // The reader looks at the first 4 KiB before it reads the first line.
    let bytes = Array(("#" + String(repeating: "-", count: 4 << 10) + "\n" + text).utf8)
    try #require(write(ends[1], bytes, bytes.count) == bytes.count)
    return ends
  }

  private func reader(of pipe: [Int32]) throws(ManifestError) -> ManifestReader {
    try ManifestReader(descriptor: FileDescriptor(owning: pipe[0]), name: "pipe")
  }

  @Test(arguments: [0, 1, 9, 10, 232, 233, 255, 256, 257, 511, 512, 513, 3000])
  func itemsComeInTheirOrder(entries: Int) throws {
    let text = manifest(entries)
    var direct = reader(text)
    var feed = ManifestFeed(reader(text), strict: false)
    var count = 0
    while let item = try direct.next() {
      let other = try feed.next()
      #expect(other == item)
      count += 1
    }
    #expect(count == entries + entries / 10)
    for _ in 0..<2 {
      let more = try feed.next()
      #expect(more == nil)
    }
    let isGone = feed.end()
    #expect(isGone)
  }

  @Test(arguments: [0, 1, 255, 256, 257, 2000])
  func anErrorComesAtItsPlace(entries: Int) throws {
    var text = "#EXTM3U\n"
    for number in 0..<entries { text += "http://example.com/\(number).mp4\n" }
    text += "#EXT-X-TARGETDURATION:6\nhttp://example.com/piece.ts\n"
    var feed = ManifestFeed(reader(Array(text.utf8), "list.m3u8"), strict: false)
    // The last one may still get options, and is not whole when the error comes.
    for number in 0..<max(entries - 1, 0) {
      guard case .entry(let entry)? = try feed.next() else {
        Issue.record("entry \(number) is missing")
        break
      }
      #expect(entry.name == "\(number).mp4")
    }
    do throws(ManifestError) {
      _ = try feed.next()
      Issue.record("no error")
    } catch {
      #expect(error == .streamPlaylist(name: "list.m3u8", line: entries + 2))
    }
    let more = try feed.next()
    #expect(more == nil)
    let isGone = feed.end()
    #expect(isGone)
  }

  @Test func aReaderThatIsTooFastWaits() throws {
    // More than fits into all batches: who reads waits for room, and is released when nobody wants more.
    var feed = ManifestFeed(reader(manifest(10 * ManifestBatches.size * ManifestBatches.maximum)), strict: false)
    _ = try feed.next()
    let isGone = feed.end()
    #expect(isGone)
  }

  @Test func whatIsEndedWaitsForNoPipe() throws {
    let pipe = try makePipe("http://example.com/1\nhttp://example.com/2\nno URL\n")
    // Strict: the error is there though no batch is full and the pipe gives no more.
    var feed = ManifestFeed(try reader(of: pipe), strict: true)
    for line in 2...4 {
      switch try feed.next() {
      case .entry(let entry)?: #expect(line < 4 && entry.line == line)
      case .problem(let problem)?: #expect(line == 4 && problem.line == line)
      case nil: Issue.record("line \(line) is missing")
      }
    }
    let isGone = feed.end()
    #expect(!isGone)
    // The thread goes with the pipe.
    close(pipe[1])
    #expect(feed.batches.waitForEnd(seconds: 60))
  }

  @Test func aStrictImportOfAPipeEndsAtItsFirstError() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    let pipe = try makePipe("http://example.com/1\nno URL\n")
    let list = try reader(of: pipe)
    do throws(StoreError) {
      _ = try catalog.importManifest(list, fingerprint: [], strict: true) { _ in }
      Issue.record("a bad line was taken")
    } catch {
      #expect(error.message.contains("line 3"))
    }
    #expect(try catalog.counts().files == 0)
    close(pipe[1])
  }

  @Test func aReadersErrorEndsTheImport() throws {
    let folder = CatalogFolder()
    let catalog = try folder.open()
    var text = "#EXTM3U\n"
    for number in 0..<1000 { text += "http://example.com/\(number).mp4\n" }
    let list = reader(Array((text + "#EXT-X-TARGETDURATION:6\n").utf8), "list.m3u8")
    do throws(StoreError) {
      _ = try catalog.importManifest(list, fingerprint: [], strict: false) { _ in }
      Issue.record("a stream's playlist was taken")
    } catch {
      #expect(error.kind == .invalid)
      #expect(error.message.contains("line 1002"))
    }
    #expect(try catalog.counts().files == 0)
  }
}
