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
  /// Whether nobody waits for the answer any more.
  let isOver: @Sendable () -> Bool
  let then: @Sendable (VersionAnswer) -> Void
}

/// Asks origins for a user whether they still have a version. Owned by the transfer thread.
///
/// These requests are no downloads: they bring one byte that nobody stores, and change nothing of what is known. They
/// take their turn among the transfers of their line, and end when nobody waits for the answer any more.
final class VersionQuestions {
  private struct Request {
    let question: VersionQuestion
    /// The mirror that is asked, by its place in the list's line.
    let mirror: Int
    var url: String { question.entry.urls[mirror] }
    var host: String { Line.key(of: url) }
    /// Whether a head has come.
    var responded = false
    var isCancelled = false
  }

  private let service: any TransferService
  private let lines: Lines
  private let clock: Clock
  private var asked: [TransferID: Request] = [:]
  /// Those for which their line has had no room.
  private var waiting: [Request] = []

  init(service: any TransferService, lines: Lines, clock: Clock) {
    self.service = service
    self.lines = lines
    self.clock = clock
  }

  /// Whether there is any to look at.
  var isBusy: Bool { !asked.isEmpty || !waiting.isEmpty }

  func ask(_ question: VersionQuestion) {
    if question.known.validators.isEmpty {
      return question.then(.unproved("its origin sends nothing by which its versions can be told apart"))
    }
    if question.entry.resolver != nil {
      return question.then(.unproved("its link comes from a resolver, which is asked only for what is read"))
    }
    waiting.append(Request(question: question, mirror: 0))
  }

  /// Ends those for whose answer nobody waits, and starts those for which there is room, each under a number of `next`.
  func turn(next: () -> TransferID) {
    guard isBusy else { return }
    for (id, request) in asked where !request.isCancelled && request.question.isOver() {
      asked[id]?.isCancelled = true
      service.cancel(id)
    }
    let former = waiting
    waiting = []
    for request in former where !request.question.isOver() {
      if lines[request.host].active < lines[request.host].limit {
        start(request, next())
      } else {
        waiting.append(request)
      }
    }
  }

  private func start(_ asking: Request, _ id: TransferID) {
    let entry = asking.question.entry
    // An empty file has no range.
    var request = TransferRequest(
      id: id, url: asking.url, range: asking.question.known.size == 0 ? nil : ByteRange(0, 1))
    request.headers = entry.headers
    request.userAgent = entry.userAgent
    request.referer = entry.referer
    asked[id] = asking
    lines.update(asking.host) { $0.began(id, isBackground: false, now: clock.now) }
    service.start(request)
  }

  func isAsked(_ id: TransferID) -> Bool { asked[id] != nil }

  /// The head of an answer. Nobody wants its body.
  func responded(_ id: TransferID, _ head: ResponseHead) {
    guard let request = asked[id] else { return }
    asked[id]?.responded = true
    lines.update(request.host) { $0.responded(id, over: head.connection, isBackground: false) }
    let question = request.question
    let found = GenerationCheck.identity(of: head)
    switch GenerationCheck.compare(found, with: question.known) {
    case .same where found.validators.isEmpty:
      question.then(.unproved("its origin does not tell its version any more"))
    case .same: question.then(.same)
    case .different: question.then(.unproved("its origin has another version now"))
    }
  }

  /// A transfer ended. Without a head, the next mirror is asked.
  func ended(_ id: TransferID, _ end: TransferEnd) {
    guard let request = asked.removeValue(forKey: id) else { return }
    lines.update(request.host) { line in
      line.ended(id, now: clock.now, isBackground: false, hadResponse: request.responded, isCut: true)
    }
    if request.responded { return }
    if request.mirror + 1 < request.question.entry.urls.count {
      return waiting.append(Request(question: request.question, mirror: request.mirror + 1))
    }
    let why = if case .failed(let failure) = end { failure.message } else { "the request was given up" }
    request.question.then(.unproved("its origin cannot be asked: \(why)"))
  }
}

extension MediaFileSystem {
  /// How many origins are asked at once.
  package static let askedAtOnce = 8

  /// Asks the origins of complete files whether they still have these versions. Blocks, at most as long as a read waits
  /// for data, and not when `isLeft` says that nobody waits. At most ``askedAtOnce`` nodes. `silent` gets the hosts of
  /// which none of the files got an answer; those that it has are not asked.
  package func askVersions(
    of nodes: [Node], silent: inout Set<String>, isLeft: () -> Bool
  ) throws(StoreError) -> [ResourceKey: VersionAnswer] {
    let state = Lock((answers: [ResourceKey: VersionAnswer](), isOver: false))
    let news = Signal()
    var asked: [ResourceKey: String] = [:]
    for node in nodes {
      guard asked[node.key] == nil, let known = try store.generations.current(of: node.key),
        let entry = try store.tree.entry(node.inode)
      else { continue }
      let host = entry.source.urls.first.map { Line.key(of: $0) } ?? ""
      asked[node.key] = host
      if silent.contains(host) { continue }
      let identity = GenerationCheck.Identity(
        validators: known.validators, size: known.size, mediaType: known.mediaType)
      let key = node.key
      let question = VersionQuestion(
        entry: entry.source, known: identity, isOver: { state.withLock { $0.isOver } },
        then: { answer in
          state.withLock { $0.answers[key] = $0.answers[key] ?? answer }
          news.raise()
        })
      room.transfers.post(.ask(question))
    }
    // The transfer thread ends what is in flight then.
    defer { state.withLock { $0.isOver = true } }
    let count = asked.values.count { !silent.contains($0) }
    let deadline = Instant.now.adding(seconds: room.options.timeout)
    while state.withLock({ $0.answers.count }) < count, !room.isEnding, Instant.now < deadline, !isLeft() {
      _ = news.wait(seconds: 0.5)
    }
    var answers = state.withLock { $0.answers }
    let heard = Set(asked.filter { answers[$0.key] != nil }.values)
    for (key, host) in asked where answers[key] == nil {
      answers[key] = .unproved("its origin did not answer within \(Int(room.options.timeout)) s")
      if !heard.contains(host) { silent.insert(host) }
    }
    return answers
  }
}
