import Base
import Glibc
import Manifest
import TestSupport
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

  @Test func aSilentDiskIsAnErrorAndItsThreadIsWaitedFor() throws {
    let pipe = try makePipe("http://example.com/a\n")
    let calls = DiskCalls(patience: 0.1)
    let reader = try ManifestReader(descriptor: FileDescriptor(owning: pipe[0]), name: "far", calls: calls)
    let feed = try ManifestFeed(reader, strict: false)
    let disks = ListDisks(calls, patience: 0.1)
    #expect(throws: ManifestError.silent(name: "far")) { while try feed.next(disks) != nil {} }
    #expect(calls.silent == "far")
    let isOver = Lock(false)
    let waiting = OwnedThread(name: "waiting") {
      #expect(feed.end(waiting: true))
      #expect(isOver.withLock { $0 })
    }
    isOver.withLock { $0 = true }
    close(pipe[1])
    waiting.join()
    #expect(calls.silent == nil)
  }

  /// Ends it; whether its thread goes, which a busy machine may let wait.
  private func isGone(_ feed: ManifestFeed) -> Bool { feed.end() || feed.batches.waitForEnd(seconds: 60) }

  /// What is in a batch, one text an item.
  private func texts(_ batch: ImportBatch) -> [String] {
    batch.items.map { item in
      switch item {
      case .problem(let problem): return "\(problem)"
      case .folder(let folder, let path): return "\(folder.source.url) \(batch.folders[path])"
      case .line(let line):
        let name = String(decoding: batch.bytes[line.name], as: UTF8.self)
        let path = (batch.folders[line.folder] + [name]).joined(separator: "/")
        return "\(line.line) \(path) \(line.pathLength) \(line.key) \(batch.bytes[line.source])"
      }
    }
  }

  @Test(arguments: [0, 1, 9, 10, 232, 233, 255, 256, 257, 511, 512, 513, 3000])
  func itemsComeInTheirOrder(entries: Int) throws {
    let text = manifest(entries)
    var direct = reader(text)
    var wanted: [String] = []
    while let item = try direct.next() {
      var alone = ImportBatch()
      alone.append(item)
      wanted += texts(alone)
    }
    #expect(wanted.count == entries + entries / 10)
    let feed = try ManifestFeed(reader(text), strict: false)
    var found: [String] = []
    while let batch = try feed.next() {
      #expect(batch.items.count <= ImportBatch.most)
      found += texts(batch)
    }
    #expect(found == wanted)
    #expect(try feed.next() == nil)
    #expect(isGone(feed))
  }

  @Test(arguments: [0, 1, 255, 256, 257, 258, 2000])
  func anErrorComesAtItsPlace(entries: Int) throws {
    var text = "#EXTM3U\n"
    for number in 0..<entries { text += "http://example.com/\(number).mp4\n" }
    text += "#EXT-X-TARGETDURATION:6\nhttp://example.com/piece.ts\n"
    let feed = try ManifestFeed(reader(Array(text.utf8), "list.m3u8"), strict: false)
    var count = 0
    do throws(ManifestError) {
      while let batch = try feed.next() { count += batch.items.count }
      Issue.record("no error")
    } catch {
      #expect(error == .streamPlaylist(name: "list.m3u8", line: entries + 2))
    }
    // An entry of a playlist has no options: all are whole when the error comes.
    #expect(count == entries)
    #expect(try feed.next() == nil)
    #expect(isGone(feed))
  }

  @Test func largeEntriesMakeSmallBatches() throws {
    let header = "  header=X-Large: \(String(repeating: "x", count: 60_000))\n"
    var text = ""
    for number in 0..<100 { text += "http://example.com/\(number)\n" + header + header }
    let feed = try ManifestFeed(reader(Array(text.utf8)), strict: false)
    var count = 0
    while let batch = try feed.next() {
      count += batch.items.count
      #expect(batch.bytes.count < 1 << 20)
    }
    #expect(count == 100)
    #expect(isGone(feed))
  }

  @Test func aReaderThatIsTooFastWaits() throws {
    // More than fits into all batches: who reads waits for room, and is released when nobody wants more.
    let feed = try ManifestFeed(reader(manifest(20 * ImportBatch.most * ManifestBatches.maximum)), strict: false)
    #expect(try feed.next() != nil)
    #expect(eventually(timeout: 60) { feed.batches.count == ManifestBatches.maximum })
    usleep(100_000)
    #expect(feed.batches.count == ManifestBatches.maximum)
    #expect(isGone(feed))
  }

  @Test(arguments: [false, true]) func whatIsEndedWaitsForNoPipe(strict: Bool) throws {
    let pipe = try makePipe("http://example.com/1\nhttp://example.com/2\nno URL\n")
    // The error is there though no batch is full and the pipe gives no more.
    let feed = try ManifestFeed(reader(of: pipe), strict: strict)
    let batch = try #require(try feed.next())
    let found = texts(batch).map { $0.prefix { $0 != " " } }
    #expect(found == ["2", "3", "line"])
    #expect(!feed.end())
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
    #expect(try catalog.tree.counts().files == 0)
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
    #expect(try catalog.tree.counts().files == 0)
  }
}
