import Base
import Fetching
import Glibc
import Reading
import TestSupport
import Testing

@testable import Manifest
@testable import Server
@testable import Storing

/// Which folders of servers are asked for, and how what comes is imported. No server is asked here.
@Suite final class ServedFoldersTests {
  private let folder: TemporaryFolder
  private let documents: RememberedDocuments
  private let folders: ServedFolders

  init() throws {
    folder = try TemporaryFolder()
    documents = try RememberedDocuments(in: StoreFolder.open(folder.path + "/store", mountpoint: "/m", wait: 0))
    let client = ListDocuments(documents, options: TransferOptions(), timeout: 5)
    client.stop()  // each request ends at once
    folders = ServedFolders(client, fresh: 3600, timeout: 5)
  }
  deinit { #expect(throws: Never.self) { try folder.remove() } }

  /// The folder `path` of the tree, of which nothing is asked before a program looks at it.
  private static func source(_ path: String) -> ServerFolder {
    var source = ServerFolder(url: "http://127.0.0.1:1/\(path)/")
    source.depth = 1
    return source
  }

  private static func report(
    _ paths: [Inode: String], mixed: Set<Inode> = [], hidden: Set<String> = []
  ) -> ImportReport {
    var report = ImportReport(epoch: 1, files: 0, folders: 0, problems: 0, duplicates: 0)
    report.servers = paths.mapValues { path in
      ManifestFolder(line: 1, path: path.split(separator: "/").map(String.init), source: source(path))
    }
    (report.mixed, report.hidden) = (mixed, hidden)
    return report
  }

  /// An answer of the server comes.
  private func come(_ path: String, to documents: RememberedDocuments? = nil) throws {
    let documents = documents ?? self.documents
    let source = Self.source(path)
    var head = DocumentHead(url: source.url, finalURL: source.url, kind: .folder, fetched: Int64(time(nil)))
    head.mediaType = "application/json"
    _ = try documents.begin(head).place(names: 1)
    folders.take(.new, of: source, isAsked: false)
  }

  /// Reads what is remembered, as an import does.
  private func isRemembered(_ path: String) throws -> Bool {
    if let listing = try folders.listing(of: Self.source(path)) {
      _ = consume listing
      return true
    }
    return false
  }

  private func isOpen(_ folder: Inode) -> Bool {
    if case .now = folders.opened(folder, ticket: Ticket(rawValue: UInt(folder))) { true } else { false }
  }

  @Test func whatComesDuringAnImportIsForTheNextOne() throws {
    folders.shows(Self.report([2: "a"]))
    // The import finds nothing, and the answer comes before its end.
    #expect(try !isRemembered("a"))
    try come("a")
    folders.shows(Self.report([2: "a"]))
    #expect(!isOpen(2))
    let news = try #require(folders.takeNews())
    #expect(folders.scope(of: news)?.roots == [2])
    #expect(try isRemembered("a"))
    folders.shows(also: Self.report([:]))
    #expect(folders.scope(of: news)?.roots == [] && folders.takeNews() == nil)
    #expect(isOpen(2))
  }

  /// A program waits for a folder of `origin`.
  private func waiting(
    in folders: ServedFolders, _ origin: Origin
  ) throws -> (report: ImportReport, source: ServerFolder) {
    var report = Self.report([2: "a"])
    report.servers[2]?.source.url = origin.url("/a/")
    let source = try #require(report.servers[2]?.source)
    folders.shows(report)
    guard case .parked = folders.opened(2, ticket: Ticket(rawValue: 2)) else {
      Issue.record("nobody waits")
      return (report, source)
    }
    return (report, source)
  }

  /// A program waits, and the answer comes while an import goes on that does not have it.
  @Test func whoWaitsHasNothingAskedForTwice() throws {
    try withOrigin { origin in
      origin.fault(.stallBeforeHeaders)
      let client = ListDocuments(documents, options: TransferOptions(), timeout: 60)
      defer { client.stop() }
      let folders = ServedFolders(client, fresh: 3600, timeout: 60)
      let (report, source) = try waiting(in: folders, origin)
      #expect(folders.counts.asked == 1)
      if let listing = try folders.listing(of: source) {
        _ = consume listing
        Issue.record("nothing is remembered")
      }
      folders.take(.new, of: source, isAsked: false)
      folders.shows(report)
      #expect(folders.counts.asked == 0)
    }
  }

  /// A disk that hangs holds the thread that reads the list.
  @Test func nobodyWaitsForAnImportWithoutEnd() throws {
    try withOrigin { origin in
      origin.fault(.stallBeforeHeaders)
      let client = ListDocuments(documents, options: TransferOptions(), timeout: 60)
      defer { client.stop() }
      let folders = ServedFolders(client, fresh: 3600, timeout: 0.1)
      client.endWaits { folders.expire() }
      let answers = Lock<[Errno?]>([])
      folders.connect(answer: { _, error in answers.withLock { $0.append(error) } }, news: {}, settle: {})
      let (_, source) = try waiting(in: folders, origin)
      // What has come shows in a moment, were it not for the disk.
      folders.take(.new, of: source, isAsked: false)
      #expect(eventually { answers.withLock { $0 } == [.io] })
    }
  }

  /// A server that goes on with a mount learns with its first import which folders are servers', so that import
  /// announces what they list: until programs that watch are told, nobody sees it.
  @Test func whoWaitsForTheNextServerSeesWhatItAnnounces() throws {
    let store = try StoreFolder.open(folder.path + "/other", mountpoint: "/m", wait: 0)
    try come("a", to: RememberedDocuments(in: store))
    let client = ListDocuments(try RememberedDocuments(in: store), options: TransferOptions(), timeout: 5)
    client.stop()
    let folders = ServedFolders(client, fresh: 3600, timeout: 5)
    let calls = Lock<[String]>([])
    @Sendable func opens(_ folder: Inode) -> Bool {
      if case .now = folders.opened(folder, ticket: Ticket(rawValue: UInt(folder))) { true } else { false }
    }
    folders.connect(
      answer: { ticket, error in calls.withLock { $0.append(error.map { "\($0)" } ?? "opened \(ticket.rawValue)") } },
      news: {},
      settle: {
        // One that comes now would see none of the names either.
        let isOpen = opens(3)
        calls.withLock { $0.append(isOpen ? "opened early" : "settled") }
      })
    #expect(!opens(2))
    // The list changes while it is read, and is read again.
    folders.refused("it changes", isLasting: false, isChanging: true)
    #expect(!opens(4))
    // The import may end at the last moment, and the telling takes some seconds.
    _ = folders.expire(Instant.now.adding(seconds: 7))
    #expect(calls.withLock { $0 }.isEmpty)
    if let listing = try folders.listing(of: Self.source("a")) { _ = consume listing }
    folders.shows(Self.report([2: "a", 3: "a"]))
    #expect(calls.withLock { $0 } == ["settled", "opened 2", "opened 4", "opened 3"])
    // From then on each import knows what it lists for the first time.
    folders.shows(Self.report([2: "a", 3: "a", 5: "b"]))
    #expect(!opens(5))
    folders.fix()
    #expect(calls.withLock { $0 } == ["settled", "opened 2", "opened 4", "opened 3", "opened 5"])
  }

  /// Names are bytes: those of two folders may differ only in their normalization.
  @Test func foldersOfOneNameInTwoFormsAreTwo() throws {
    var report = Self.report([2: "a", 3: "b"])
    report.servers[2]?.path = ["caf\u{E9}"]
    report.servers[3]?.path = ["cafe\u{301}"]
    folders.shows(report)
    for path in ["a", "b"] { try come(path) }
    let news = try #require(folders.takeNews())
    let scope = try #require(folders.scope(of: news))
    #expect(Set(scope.roots) == [2, 3])
  }

  /// A server's page may be another one each time that a program looks.
  @Test func aFolderThatIsListedAgainIsAskedForAheadOnce() {
    var state = ServedFolders.State()
    let report = Self.report([2: "a", 3: "a/b", 4: "a/c"])
    for _ in 0..<3 { _ = state.note(report) }
    #expect(state.unlisted.values.map(\.count).sorted() == [1, 2])
  }

  @Test func upperFoldersAreImportedFirst() throws {
    folders.shows(Self.report([2: "a", 3: "a/b", 4: "c", 5: "d"], mixed: [5]))
    for path in ["a/b", "a", "c"] { try come(path) }
    var news = try #require(folders.takeNews())
    let scope = try #require(folders.scope(of: news))
    #expect(Set(scope.roots) == [2, 4] && scope.urls == [Self.source("a").url, Self.source("c").url])
    // Where the list itself names something, only all of it says what is there.
    try come("d")
    news = try #require(folders.takeNews())
    #expect(folders.scope(of: news) == nil)
    // So it is where two of a server's folders show in one.
    folders.shows(Self.report([2: "a"], hidden: [Self.source("b").url]))
    try come("b")
    news = try #require(folders.takeNews())
    #expect(folders.scope(of: news) == nil)
  }
}
