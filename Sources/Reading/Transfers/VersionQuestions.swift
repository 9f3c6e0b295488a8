import Base
import Fetching
import Manifest
import Storing

/// Whether an origin still has the version that is stored.
package enum VersionAnswer: Sendable, Equatable {
  case same
  /// It has another one, or cannot tell, or does not answer: why, for the user.
  case unproved(String)
}

/// One question of a user: does the origin of `entry` still have `known`?
struct VersionQuestion: Sendable {
  let entry: ManifestEntry
  let known: GenerationCheck.Identity
  let then: @Sendable (VersionAnswer) -> Void
}

/// Asks origins for a user whether they still have a version. Owned by the transfer thread.
///
/// These requests are no downloads: they bring one byte that nobody stores, and change nothing of what is known.
final class VersionQuestions {
  private let service: any TransferService
  private var asked: [TransferID: (question: VersionQuestion, mirror: Int)] = [:]

  init(service: any TransferService) { self.service = service }

  /// Asks under the number `id`, the mirror with that index.
  func ask(_ question: VersionQuestion, _ id: TransferID, mirror: Int = 0) {
    if question.known.validators.isEmpty {
      return question.then(.unproved("its origin sends nothing by which its versions can be told apart"))
    }
    let entry = question.entry
    // An empty file has no range.
    var request = TransferRequest(
      id: id, url: entry.urls[mirror], range: question.known.size == 0 ? nil : ByteRange(0, 1))
    request.headers = entry.headers
    request.userAgent = entry.userAgent
    request.referer = entry.referer
    asked[id] = (question, mirror)
    service.start(request)
  }

  func isAsked(_ id: TransferID) -> Bool { asked[id] != nil }

  /// The head of an answer. Nobody wants its body.
  func responded(_ id: TransferID, _ head: ResponseHead) {
    guard let question = asked.removeValue(forKey: id)?.question else { return }
    let found = GenerationCheck.identity(of: head)
    switch GenerationCheck.compare(found, with: question.known) {
    case .same where found.validators.isEmpty:
      question.then(.unproved("its origin does not tell its version any more"))
    case .same: question.then(.same)
    case .different: question.then(.unproved("its origin has another version now"))
    }
  }

  /// A transfer ended without a head. The next mirror is asked under the number `next`.
  func ended(_ id: TransferID, _ end: TransferEnd, next: () -> TransferID) {
    guard let (question, mirror) = asked.removeValue(forKey: id) else { return }
    if mirror + 1 < question.entry.urls.count { return ask(question, next(), mirror: mirror + 1) }
    let why = if case .failed(let failure) = end { failure.message } else { "the request was given up" }
    question.then(.unproved("its origin cannot be asked: \(why)"))
  }
}

extension MediaFileSystem {
  /// How many origins are asked at once.
  package static let askedAtOnce = 8

  /// Asks the origins of complete files whether they still have these versions. Blocks, at most as long as a read waits
  /// for data. At most ``askedAtOnce`` nodes.
  package func askVersions(of nodes: [Node]) throws(StoreError) -> [ResourceKey: VersionAnswer] {
    let answers = Lock<[ResourceKey: VersionAnswer]>([:])
    let news = Signal()
    var asked: Set<ResourceKey> = []
    for node in nodes {
      guard asked.insert(node.key).inserted, let known = try store.generations.current(of: node.key),
        let entry = try store.tree.entry(node.inode)
      else { continue }
      let identity = GenerationCheck.Identity(
        validators: known.validators, size: known.size, mediaType: known.mediaType)
      let key = node.key
      room.transfers.post(
        .ask(
          VersionQuestion(entry: entry.source, known: identity) { answer in
            answers.withLock { $0[key] = $0[key] ?? answer }
            news.raise()
          }))
    }
    let deadline = Instant.now.adding(seconds: room.options.timeout)
    while answers.withLock({ $0.count }) < asked.count, !room.isEnding, Instant.now < deadline {
      _ = news.wait(seconds: 0.5)
    }
    return answers.withLock { answers in
      for key in asked where answers[key] == nil {
        answers[key] = .unproved("its origin did not answer within \(Int(room.options.timeout)) s")
      }
      return answers
    }
  }
}
