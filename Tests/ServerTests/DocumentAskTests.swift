import Base
import Fetching
import Glibc
import Manifest
import TestSupport
import Testing

@testable import Server
@testable import Storing

/// Requests for lists and folders.
@Suite struct DocumentAskTests {
  @Test("Reloads that come faster than a server answers wait for one more request, and no more")
  func reloadsOfASilentServer() throws {
    let folder = try TemporaryFolder()
    defer { #expect(throws: Never.self) { try folder.remove() } }
    try withOrigin { origin in
      origin.fault(.stallBeforeHeaders, path: "/silent/")
      let store = try StoreFolder.open(folder.path + "/store", mountpoint: "/m", wait: 0)
      let documents = ListDocuments(try RememberedDocuments(in: store), options: TransferOptions(), timeout: 1)
      defer { documents.stop() }
      let answers = Lock<[DocumentAsk.Answer]>([])
      for _ in 0..<200 {
        documents.ask(
          DocumentAsk(source: ServerFolder(url: origin.url("/silent/")), isFolder: true, isAsked: true) { answer in
            answers.withLock { $0.append(answer) }
          })
      }
      #expect(eventually { answers.withLock { $0.count } == 200 })
      for answer in answers.withLock({ $0 }) {
        guard case .failed = answer else {
          Issue.record("\(answer)")
          continue
        }
      }
      // A folder is asked for by PROPFIND and by GET.
      #expect(origin.log.entries(of: "/silent/").count <= 4, "\(origin.log.entries(of: "/silent/").count)")
    }
  }

  /// In a process of its own, of a user whom the limit of threads binds.
  @Test(
    "A request for which the system refuses the thread fails, and a later one has it",
    .enabled(if: TestUser.canSwitch))
  func refusedThread() async throws {
    let folder = try TemporaryFolder()
    defer { #expect(throws: Never.self) { try folder.remove() } }
    await #expect(processExitsWith: .success) { [path = folder.path as String] in
      let store = try StoreFolder.open(path + "/store", mountpoint: "/m", wait: 0)
      let documents = ListDocuments(try RememberedDocuments(in: store), options: TransferOptions(), timeout: 1)
      try #require(setuid(65534) == 0)
      var limit = rlimit()
      try #require(getrlimit(__rlimit_resource_t(__RLIMIT_NPROC.rawValue), &limit) == 0)
      let answers = Lock<[DocumentAsk.Answer]>([])
      for most in [0, limit.rlim_max] {
        limit.rlim_cur = most
        try #require(setrlimit(__rlimit_resource_t(__RLIMIT_NPROC.rawValue), &limit) == 0)
        documents.ask(
          DocumentAsk(source: ServerFolder(url: "http://127.0.0.1:1/"), isFolder: true) { answer in
            answers.withLock { $0.append(answer) }
          })
      }
      #expect(eventually { answers.withLock { $0.count } == 2 })
      let refused = answers.withLock { answers in answers.map { "\($0)".contains("cannot start a thread") } }
      #expect(refused == [true, false], "\(answers.withLock { $0 })")
      documents.stop()
    }
  }
}
