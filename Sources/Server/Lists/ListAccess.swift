import Base
import Fetching
import Glibc
import Manifest
import Storing

/// What a mount has of lists and folders that servers give.
final class ListAccess: Sendable {
  let documents: ListDocuments
  let folders: ServedFolders
  /// The lists that URLs name.
  let urls: [String]
  /// The problems that the log has.
  let told = ProblemLog.Told()
  /// The calls for the files of the lists.
  let calls = DiskCalls()
  private let request: MountRequest
  /// When what nobody names was looked for last.
  private let cleaned = Lock<Instant?>(nil)
  /// How old that may get, and how often it is looked for, in seconds.
  private static let (age, cleaning) = (30.0 * 86_400, 86_400.0)

  init(_ request: MountRequest, _ options: TransferOptions, in store: StoreFolder) throws(StoreError) {
    self.request = request
    documents = ListDocuments(
      try RememberedDocuments(in: store), options: options, timeout: request.downloads.timeout)
    folders = ServedFolders(documents, fresh: request.downloads.fresh, timeout: request.downloads.timeout)
    urls = request.allLists.compactMap(\.url)
    documents.endWaits { [folders] in folders.expire() }
  }

  /// Asks whether the lists are still as they are remembered. `done` gets the worst that came, once.
  func ask(isAsked: Bool = false, _ done: @escaping @Sendable (DocumentAsk.Answer) -> Void) {
    if urls.isEmpty { return done(.same) }
    let answers = Lock<[DocumentAsk.Answer]>([])
    for url in urls {
      ask(url, isAsked: isAsked) { [count = urls.count] answer in
        let all = answers.withLock { all in
          all.append(answer)
          return all
        }
        guard all.count == count else { return }
        let failure = all.first { if case .failed = $0 { true } else { false } }
        done(failure ?? (all.contains(.ended) ? .ended : all.contains(.new) ? .new : .same))
      }
    }
  }

  private func ask(_ url: String, isAsked: Bool, _ done: @escaping @Sendable (DocumentAsk.Answer) -> Void) {
    documents.ask(
      DocumentAsk(
        source: ServerFolder(url: url), isFolder: url.utf8.last == 0x2F, format: request.format, base: request.baseURL,
        isAsked: isAsked, isWanted: true, done: done))
  }

  /// The tree was made of the lists to their end. What the store remembers of URLs that they have not named for long
  /// goes: not at once, because they may name them again, and then without a network.
  func shows(_ report: ImportReport) {
    folders.shows(report)
    let isDue = cleaned.withLock { cleaned in
      if let last = cleaned, Instant.now.seconds(since: last) < Self.cleaning { return false }
      cleaned = .now
      return true
    }
    guard isDue else { return }
    do throws(StoreError) {
      let named = [urls, Array(report.hidden), report.servers.values.map(\.source.url)].joined()
      try documents.remembered.forget(allBut: named, olderThan: Self.age)
    } catch {
      Log.warning(error.message)
    }
  }

  /// For how many seconds what is remembered of the lists is still fresh.
  var freshness: Double {
    let fetched = urls.map { documents.remembered.head(of: $0)?.fetched ?? 0 }.min() ?? 0
    // A clock that was ahead would make it fresh for long.
    return max(0, request.downloads.fresh - max(0, Double(Int64(time(nil)) - fetched)))
  }

  /// Gets the lists of which nothing is remembered, and waits for them: a mount without a list has nothing to show.
  /// `again`: also those that are remembered, as they are of no use.
  func bring(again: Bool = false) throws(StoreError) {
    let missing = urls.filter { again || (try? documents.remembered.open($0)) == nil }
    let end = Instant.now.adding(seconds: request.downloads.timeout)
    let waiting = missing.map { url in (url, Signal(), Lock<DocumentAsk.Answer?>(nil)) }
    for (url, answered, answer) in waiting {
      ask(url, isAsked: false) { came in
        answer.withLock { $0 = came }
        answered.raise()
      }
    }
    for (url, answered, answer) in waiting {
      guard answered.wait(seconds: max(0, end.seconds(since: .now))) else {
        throw StoreError(
          kind: .invalid,
          message: "the list \(Log.redacted(url: url)) did not come within \(Int(request.downloads.timeout)) s, and "
            + "there is no copy of it: look whether its server answers, or give it more time (--timeout)")
      }
      if case .failed(let why)? = answer.withLock({ $0 }) {
        throw StoreError(kind: .invalid, message: "there is no copy of the list, and it cannot be had: \(why)")
      }
    }
  }

  /// As ``bring(again:)``, but asks again for as long as `patience` says, in seconds: a service may start before the
  /// network is there. `fails` hears why it has to, once.
  func bring(patience: Double, fails: (String) -> Void) throws(StoreError) {
    let end = Instant.now.adding(seconds: patience)
    let first = 0.5
    var pause = first
    while true {
      do throws(StoreError) { return try bring() } catch {
        guard Instant.now.adding(seconds: pause) < end else { throw error }
        if pause == first { fails(error.message) }
      }
      usleep(UInt32(pause * 1e6))
      pause = min(2 * pause, 5)
    }
  }

  /// What is remembered of the list at `url`, and the file at its start.
  func open(_ url: String) throws(StoreError) -> (head: DocumentHead, file: OwnedDescriptor) {
    do throws(Errno) {
      if let found = try documents.remembered.open(url) { return found }
    } catch {
      throw .file(error, "cannot read the copy of the list \(Log.redacted(url: url))")
    }
    throw StoreError(
      kind: .invalid, message: "there is no good copy of the list \(Log.redacted(url: url)) in the store")
  }
}

extension MountRequest {
  /// Calls the system for a list, whose disk may not answer.
  func calling<Result: ~Copyable, Failure: Error>(
    for list: NamedList, _ call: () throws(Failure) -> Result
  ) throws(Failure) -> Result {
    if let calls = lists?.calls { return try calls.make(list.shown, call) }
    return try call()
  }
}

extension ListAccess: Equatable {
  static func == (left: ListAccess, right: ListAccess) -> Bool { left === right }
}
