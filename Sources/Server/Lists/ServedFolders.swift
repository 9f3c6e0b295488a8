import Base
import Glibc
import Manifest
import Reading
import Storing

/// The servers' folders of the tree: which are known, which are asked for, and which programs wait for one.
///
/// A folder that was never listed is asked for when a program looks at it, and one that the list itself names when the
/// list is read. What comes is remembered; the next import shows it (``ListKeeper``), and answers those who wait.
final class ServedFolders: ServerFolders, FolderSource {
  /// How many folders within one that a program opens are asked for ahead, and again at a reload.
  static let ahead = 64
  /// After how many seconds a folder that failed is asked for again: if a program looks at it, and otherwise.
  static let (again, againAhead) = (5.0, 60.0)

  private let documents: ListDocuments
  private let fresh: Double
  private let timeout: Double
  private let state = Lock(State())
  /// What it has others do (``connect(answer:news:settle:)``).
  private struct Hooks: Sendable {
    let answer: @Sendable (Ticket, Errno?) -> Void
    let news: @Sendable () -> Void
    let settle: @Sendable () -> Void
  }
  private let hooks = Lock<Hooks?>(nil)

  init(_ documents: ListDocuments, fresh: Double, timeout: Double) {
    (self.documents, self.fresh, self.timeout) = (documents, fresh, timeout)
    // Where nothing is remembered, no folder was a server's.
    state.withLock { $0.hasShown = documents.remembered.wasEmpty }
  }

  /// `answer`: replies to an open of a folder. `news`: called when the tree is to be made anew. `settle`: waits, for
  /// some seconds at most, until programs that watch the mount know of all that an import changed: before, nobody sees
  /// a new name.
  func connect(
    answer: @escaping @Sendable (Ticket, Errno?) -> Void, news: @escaping @Sendable () -> Void,
    settle: @escaping @Sendable () -> Void
  ) {
    hooks.withLock { $0 = Hooks(answer: answer, news: news, settle: settle) }
    if state.withLock({ !$0.news.urls.isEmpty }) { news() }
  }

  // MARK: The import

  func listing(of folder: ServerFolder) throws(Errno) -> FolderListing? {
    let found = try documents.remembered.open(folder.url)
    let file = found.flatMap { $0.head.kind == .folder ? $0.file.take() : nil }
    let fetched = file == nil ? nil : found?.head.fetched
    state.withLock { $0.read[folder.url] = (fetched, $0.pages[folder.url]?.answers ?? 0) }
    guard let file, let head = found?.head else { return nil }
    return FolderListing(file: file, url: head.finalURL, mediaType: head.mediaType)
  }

  /// What of `news` can be imported now, without the list; nil: only with it.
  func scope(of news: News) -> Scope? {
    state.withLock { state in
      guard state.hasShown, !state.isFixed, state.hidden.isDisjoint(with: news.urls) else { return nil }
      var places: [[UInt8]: (path: [String], inode: Inode, url: String)] = [:]
      // What an import of the list showed meanwhile is no news any more.
      for url in news.urls where state.pages[url]?.hasCome == true {
        for inode in state.places[url] ?? [] {
          guard !state.mixed.contains(inode), let path = state.shown[inode]?.path else { return nil }
          places[Self.joined(path[...])] = (path, inode, url)
        }
      }
      // What a folder lists says whether those in it are still there: they come after it, wherever they show.
      let isLower = { (path: [String]) in path.indices.contains { places[Self.joined(path[..<$0])] != nil } }
      let lower = Set(places.values.filter { isLower($0.path) }.map(\.url))
      let roots = places.values.filter { !lower.contains($0.url) }.map(\.inode)
      if roots.isEmpty, !lower.isEmpty { return nil }
      return Scope(roots: roots, urls: news.urls.subtracting(lower))
    }
  }

  /// A path by its bytes: as Strings, names that differ only in their normalization are equal.
  private static func joined(_ path: ArraySlice<String>) -> [UInt8] { Array(path.joined(separator: "/").utf8) }

  /// The server's folder that a folder of the tree shows.
  func shown(_ folder: Inode) -> ManifestFolder? { state.withLock { $0.shown[folder] } }

  /// The tree shows these folders now. Those that the list names are asked for, if nothing is known of them.
  func shows(_ report: ImportReport?) {
    // The first import of a server that goes on with a mount does not know which folders it lists for the first time
    // (``isListedFirst(_:)``), so it announced all. Until that is told, whoever opens one waits.
    if !state.withLock({ $0.hasShown }) { hooks.withLock { $0 }?.settle() }
    let (answered, asks) = state.withLock { state in
      (state.shown, state.places, state.unlisted, state.hasShown) = ([:], [:], [:], true)
      (state.mixed, state.hidden) = (report?.mixed ?? [], report?.hidden ?? [])
      return state.note(report)
    }
    reply(answered, nil)
    for source in asks { ask(source) }
  }

  /// The tree shows what the import of a ``Scope`` found, beside what it showed before.
  func shows(also report: ImportReport) {
    let (answered, asks) = state.withLock { state in
      for folder in report.gone { state.hide(folder) }
      return state.note(report)
    }
    reply(answered, nil)
    for source in asks { ask(source) }
  }

  /// The import that would have shown what came failed. `isLasting`: it is not tried again by itself. `isChanging`: the
  /// list changed meanwhile, and is read again in a moment.
  func refused(_ message: String, isLasting: Bool, isChanging: Bool = false) {
    let (unknown, waiting) = state.withLock { state -> ([Waiting], [Waiting]) in
      if isChanging, !state.hasShown {
        state.read = [:]
        return ([], [])
      }
      (state.hasShown, state.read) = (true, [:])
      let unknown = state.take { $0.shown[$1.folder] == nil }
      let refused = state.pages.filter(\.value.hasCome).keys
      guard isLasting else {
        state.news.urls.formUnion(refused)
        return (unknown, [])
      }
      for url in refused {
        state.pages[url]?.hasCome = false
        if state.pages[url]?.isKnown != true { state.pages[url]?.failure = (message, .now) }
      }
      return (unknown, state.take { $0.source($1.folder).map { refused.contains($0.url) } ?? false })
    }
    reply(unknown, nil)
    reply(waiting, .io)
  }

  /// The list cannot be read again: nobody waits for what cannot show.
  func fix() {
    let waiting = state.withLock { state in
      state.isFixed = true
      return state.take { _, _ in true }
    }
    reply(waiting, nil)
  }

  /// Whether the import that goes on shows what the server has in the folder for the first time: programs that watch it
  /// have seen nothing of it, as before a mount.
  func isListedFirst(_ folder: Inode) -> Bool {
    state.withLock { state in
      guard let url = state.source(folder)?.url, state.read[url]?.fetched != nil else { return false }
      return state.pages[url]?.isKnown != true
    }
  }

  /// What came since the last call; nil: no other listing. `isAsked`: whether a reload asked for one of them.
  func takeNews() -> News? {
    state.withLock { state in
      defer { state.news = News() }
      return state.news.urls.isEmpty ? nil : state.news
    }
  }

  /// What is wrong with the folders that are shown, for `status`: those that failed when they were last asked for.
  var problem: String? {
    state.withLock { state in
      let failures = state.failures
      guard let first = failures.min() else { return nil }
      return failures.count == 1 ? first : "\(failures.count) folders of servers cannot be listed; \(first)"
    }
  }

  /// How many of the folders that are shown are being asked for, and how many of the others failed.
  var counts: (asked: Int, failed: Int) {
    state.withLock { state in
      let pages = state.places.keys.compactMap { state.pages[$0] }
      return (pages.count { $0.isAsked }, pages.count { !$0.isAsked && $0.failure != nil })
    }
  }

  static func parent(of url: String) -> String {
    let end = url.utf8.dropLast().lastIndex(of: 0x2F) ?? url.utf8.startIndex
    return String(url[...end])
  }

  // MARK: Programs

  func met(_ folder: Inode) { look(folder, isWanted: false) }

  func opened(_ folder: Inode, ticket: Ticket) -> Answer<Void> {
    look(folder, isWanted: true)
    let (answer, children) = state.withLock { state -> (Answer<Void>, [ServerFolder]) in
      if state.isFixed { return (.now(()), []) }
      if state.hasShown {
        guard let source = state.source(folder), let page = state.page(folder) else { return (.now(()), []) }
        if page.isKnown { return (.now(()), state.takeUnlisted(in: source.url)) }
        if page.hasFailed(within: Self.again) { return (.failed(.io), []) }
      }
      state.waiting.append(Waiting(ticket: ticket, folder: folder, until: Instant.now.adding(seconds: timeout)))
      return (.parked, [])
    }
    for child in children { ask(child) }
    if case .parked = answer {
      // What was asked for a moment ago may have failed before anybody waited.
      look(folder, isWanted: true)
      hooks.withLock { $0 }?.news()  // its thread learns the deadline
    }
    return answer
  }

  func interrupt(_ ticket: Ticket) -> Bool {
    state.withLock { !$0.take { $1.ticket == ticket }.isEmpty }
  }

  /// Asks for what is old or unknown.
  private func look(_ folder: Inode, isWanted: Bool) {
    let found = state.withLock { state -> ServerFolder? in
      guard !state.isFixed, let source = state.source(folder), let page = state.page(folder) else { return nil }
      let isOld = Double(Int64(time(nil)) - page.checked) > fresh
      return !page.hasCome && !page.hasFailed(within: Self.again) && (!page.isKnown || isOld) ? source : nil
    }
    if let found { ask(found, isWanted: isWanted) }
  }

  /// Answers those who have waited for too long. Returns in how many seconds the next one has.
  func expire(_ now: Instant = .now) -> Double? {
    let (late, next, urls) = state.withLock { state in
      let late = state.take { $0.end(of: $1) <= now }
      let next = state.waiting.map(state.end).min()
      return (late, next, late.compactMap { state.source($0.folder)?.url })
    }
    for url in urls { Log.warning("\(Log.redacted(url: url)): the folder did not come within \(Int(timeout)) s") }
    reply(late, .io)
    return next.map { max(0, $0.seconds(since: now)) }
  }

  // MARK: Asking

  /// Asks again for what the tree shows: the upper folders first. Deeper ones follow when a program looks at them.
  /// Calls `done` once those that the list names have answered.
  func refresh(_ done: @escaping @Sendable () -> Void) {
    let sources = state.withLock { state in
      for url in state.pages.keys { state.pages[url]?.checked = 0 }
      if state.isFixed { return [ServerFolder]() }
      return state.places.values.compactMap { $0.first.flatMap(state.source) }
        .filter { $0.depth == 0 || state.pages[$0.url]?.isKnown == true }
    }
    let asked = sources.sorted { ($0.depth, $0.url) < ($1.depth, $1.url) }.prefix(4 * Self.ahead)
    let left = Lock(asked.count { $0.depth == 0 })
    if left.withLock({ $0 == 0 }) { done() }
    for source in asked {
      ask(source, isAsked: true) {
        guard source.depth == 0 else { return }
        let isLast = left.withLock { left in
          left -= 1
          return left == 0
        }
        if isLast { done() }
      }
    }
  }

  /// `then`: called with the answer, if a reload asks.
  private func ask(
    _ source: ServerFolder, isAsked: Bool = false, isWanted: Bool = false, then: @escaping @Sendable () -> Void = {}
  ) {
    let isNew = state.withLock { state in
      let page = state.pages[source.url] ?? Page()
      // What has come waits for its import.
      if page.isAsked || page.hasCome && !isAsked { return false }
      state.pages[source.url, default: page].isAsked = true
      return true
    }
    guard isNew || isAsked else {
      if isWanted { documents.prefer(source.url) }
      return
    }
    documents.ask(
      DocumentAsk(source: source, isFolder: true, isAsked: isAsked, isWanted: isWanted) { [weak self] answer in
        self?.take(answer, of: source, isAsked: isAsked)
        then()
      })
  }

  /// What became of a request.
  func take(_ answer: DocumentAsk.Answer, of source: ServerFolder, isAsked: Bool) {
    var isNews = false
    var message: String?
    let failed = state.withLock { state -> [Waiting] in
      var page = state.pages[source.url] ?? Page()
      defer { state.pages[source.url] = page }
      page.isAsked = false
      switch answer {
      case .same, .new:
        page.failure = nil
        page.checked = Int64(time(nil))
        isNews = answer == .new || !page.isKnown
        if isNews {
          (page.hasCome, page.answers) = (true, page.answers + 1)
          state.news.urls.insert(source.url)
          state.news.isAsked = state.news.isAsked || isAsked
        }
        return []
      case .ended: return []
      case .failed(let why):
        if page.failure?.message != why { message = why }
        page.failure = (why, .now)
        return page.isKnown ? [] : state.take { $0.source($1.folder)?.url == source.url }
      }
    }
    if let message { Log.warning(message) }
    reply(failed, .io)
    if isNews { hooks.withLock { $0 }?.news() }
  }

  private func reply(_ waiting: [Waiting], _ error: Errno?) {
    if waiting.isEmpty { return }
    let answer = hooks.withLock { $0 }?.answer
    for one in waiting { answer?(one.ticket, error) }
  }
}
