import Base
import Fetching
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
}
