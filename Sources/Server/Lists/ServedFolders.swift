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
  private static let ahead = 64
  /// After how many seconds a folder that failed is asked for again: if a program looks at it, and otherwise.
  private static let (again, againAhead) = (5.0, 60.0)

  private struct Page {
    /// Whether the tree shows something of it.
    var isKnown = false
    /// When the server said last what it has, in seconds since 1970.
    var checked: Int64 = 0
    var isAsked = false
    /// Whether it has come, and the tree does not show it yet.
    var hasCome = false
    var failure: (message: String, at: Instant)?

    func hasFailed(within seconds: Double) -> Bool {
      failure.map { Instant.now.seconds(since: $0.at) < seconds } ?? false
    }
  }

  /// That other listings came.
  struct News {
    var isAsked: Bool
  }

  /// An open that waits.
  private struct Waiting {
    var ticket: Ticket
    var folder: Inode
    var until: Instant
  }

  private struct State {
    var sources: [Inode: ServerFolder] = [:]
    /// By URL.
    var pages: [String: Page] = [:]
    /// Those in a folder, by its URL, of which nothing is known.
    var unlisted: [String: [ServerFolder]] = [:]
    var waiting: [Waiting] = []
    /// What the import that goes on found: when each came, nil for nothing. It counts once the tree shows it.
    var read: [String: Int64?] = [:]
    /// Another listing is remembered than the tree shows.
    var hasNews = false
    /// Whether a reload asked for it.
    var isNewsAsked = false
    /// Whether it is known which folders are servers': a server that goes on with a mount has to read the list first.
    var hasShown = false
    /// Whether the list cannot be read again: then no folder can show more than it does.
    var isFixed = false

    func page(_ folder: Inode) -> Page? { sources[folder].map { pages[$0.url] ?? Page() } }

    /// Removes and returns those who wait for a folder of which `isWanted` is true.
    mutating func take(_ isWanted: (State, Waiting) -> Bool) -> [Waiting] {
      if waiting.isEmpty { return [] }
      let now = self
      let taken = waiting.filter { isWanted(now, $0) }
      waiting.removeAll { isWanted(now, $0) }
      return taken
    }
  }

  private let documents: ListDocuments
  private let fresh: Double
  private let timeout: Double
  private let state = Lock(State())
  /// Answers an open that waited; and has the list read again.
  private let hooks = Lock<(answer: @Sendable (Ticket, Errno?) -> Void, news: @Sendable () -> Void)?>(nil)

  init(_ documents: ListDocuments, fresh: Double, timeout: Double) {
    (self.documents, self.fresh, self.timeout) = (documents, fresh, timeout)
    // Where nothing is remembered, no folder was a server's.
    state.withLock { $0.hasShown = documents.remembered.wasEmpty }
  }

  /// `answer`: replies to an open of a folder. `news`: called when the tree is to be made anew.
  func connect(answer: @escaping @Sendable (Ticket, Errno?) -> Void, news: @escaping @Sendable () -> Void) {
    hooks.withLock { $0 = (answer, news) }
    if state.withLock({ $0.hasNews }) { news() }
  }

  // MARK: The import

  func listing(of folder: ServerFolder) throws(Errno) -> FolderListing? {
    let found = try documents.remembered.open(folder.url)
    let file = found.flatMap { $0.head.kind == .folder ? $0.file.take() : nil }
    let fetched = file == nil ? nil : found?.head.fetched
    state.withLock { _ = $0.read.updateValue(fetched, forKey: folder.url) }
    guard let file, let head = found?.head else { return nil }
    return FolderListing(file: file, url: head.finalURL, mediaType: head.mediaType)
  }

  /// The tree shows these folders now. Those that the list names are asked for, if nothing is known of them.
  func shows(_ sources: [Inode: ServerFolder]) {
    let now = Int64(time(nil))
    let (answered, asks) = state.withLock { state in
      (state.sources, state.hasShown) = (sources, true)
      for (url, fetched) in state.read {
        var page = state.pages[url] ?? Page()
        (page.isKnown, page.hasCome) = (fetched != nil, false)
        // A clock that was ahead would make it fresh for long.
        page.checked = min(now, max(page.checked, fetched ?? 0))
        state.pages[url] = page
      }
      (state.read, state.unlisted) = ([:], [:])
      var asks: [ServerFolder] = []
      for source in sources.values {
        let page = state.pages[source.url] ?? Page()
        if page.isKnown || state.isFixed { continue }
        if source.depth > 0 {
          state.unlisted[Self.parent(of: source.url), default: []].append(source)
        } else if !page.hasFailed(within: Self.againAhead) {
          asks.append(source)
        }
      }
      let answered = state.take { $0.isFixed || $0.page($1.folder)?.isKnown != false }
      return (answered, asks + state.waiting.compactMap { state.sources[$0.folder] })
    }
    for source in asks { ask(source) }
    reply(answered, nil)
  }

  /// The import that would have shown what came failed. `isLasting`: it is not tried again by itself.
  func refused(_ message: String, isLasting: Bool) {
    let (unknown, waiting) = state.withLock { state -> ([Waiting], [Waiting]) in
      state.hasShown = true
      let unknown = state.take { $0.sources[$1.folder] == nil }
      guard isLasting else {
        state.hasNews = state.hasNews || state.pages.values.contains(where: \.hasCome)
        return (unknown, [])
      }
      let refused = state.pages.filter(\.value.hasCome).keys
      for url in refused {
        state.pages[url]?.hasCome = false
        if state.pages[url]?.isKnown != true { state.pages[url]?.failure = (message, .now) }
      }
      return (unknown, state.take { $0.sources[$1.folder].map { refused.contains($0.url) } ?? false })
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
      guard let url = state.sources[folder]?.url, case .some(.some) = state.read[url] else { return false }
      return state.pages[url]?.isKnown != true
    }
  }

  /// What came since the last call; nil: no other listing. `isAsked`: whether a reload asked for one of them.
  func takeNews() -> News? {
    state.withLock { state in
      defer { (state.hasNews, state.isNewsAsked) = (false, false) }
      return state.hasNews ? News(isAsked: state.isNewsAsked) : nil
    }
  }

  /// What is wrong with the folders that nobody could list, for `status`.
  var problem: String? {
    state.withLock { state in
      let pages = Set(state.sources.values.map(\.url)).compactMap { state.pages[$0] }
      let failures = pages.filter { !$0.isKnown }.compactMap { $0.failure?.message }
      guard let first = failures.min() else { return nil }
      return failures.count == 1 ? first : "\(failures.count) folders of servers cannot be listed; \(first)"
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
        guard let source = state.sources[folder], let page = state.page(folder) else { return (.now(()), []) }
        if page.isKnown {
          let children = (state.unlisted[source.url] ?? []).prefix(Self.ahead)
          return (.now(()), children.filter { state.pages[$0.url]?.hasFailed(within: Self.againAhead) != true })
        }
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
      guard !state.isFixed, let source = state.sources[folder], let page = state.page(folder) else { return nil }
      let isOld = Double(Int64(time(nil)) - page.checked) > fresh
      return !page.hasCome && !page.hasFailed(within: Self.again) && (!page.isKnown || isOld) ? source : nil
    }
    if let found { ask(found, isWanted: isWanted) }
  }

  /// Answers those who have waited for too long. Returns in how many seconds the next one has.
  func expire(_ now: Instant = .now) -> Double? {
    let (late, next, urls) = state.withLock { state in
      // What has come shows in a moment, or is refused.
      let late = state.take { state, one in
        let patience = state.page(one.folder)?.hasCome == true ? Self.again : 0
        return one.until.adding(seconds: patience) <= now
      }
      let next = state.waiting.map { one in
        state.page(one.folder)?.hasCome == true ? one.until.adding(seconds: Self.again) : one.until
      }.min()
      return (late, next, late.compactMap { state.sources[$0.folder]?.url })
    }
    for url in urls { Log.warning("\(Log.redacted(url: url)): the folder did not come within \(Int(timeout)) s") }
    reply(late, .io)
    return next.map { max(0, $0.seconds(since: now)) }
  }

  // MARK: Asking

  /// Asks again, in the background, for what the tree shows: the upper folders first. Deeper ones follow when a program
  /// looks at them.
  func refresh() {
    let sources = state.withLock { state in
      for url in state.pages.keys { state.pages[url]?.checked = 0 }
      return state.isFixed ? [] : state.sources.values.filter { state.pages[$0.url]?.isKnown == true }
    }
    for source in sources.sorted(by: { $0.depth < $1.depth }).prefix(4 * Self.ahead) { ask(source, isAsked: true) }
  }

  private func ask(_ source: ServerFolder, isAsked: Bool = false, isWanted: Bool = false) {
    let isNew = state.withLock { state in
      defer { state.pages[source.url, default: Page()].isAsked = true }
      return state.pages[source.url]?.isAsked != true
    }
    guard isNew || isAsked else {
      if isWanted { documents.prefer(source.url) }
      return
    }
    documents.ask(
      DocumentAsk(source: source, isFolder: true, isAsked: isAsked, isWanted: isWanted) { [weak self] answer in
        self?.take(answer, of: source, isAsked: isAsked)
      })
  }

  private func take(_ answer: DocumentAsk.Answer, of source: ServerFolder, isAsked: Bool) {
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
        page.hasCome = isNews
        if isNews { (state.hasNews, state.isNewsAsked) = (true, state.isNewsAsked || isAsked) }
        return []
      case .ended: return []
      case .failed(let why):
        if page.failure?.message != why { message = why }
        page.failure = (why, .now)
        return page.isKnown ? [] : state.take { $0.sources[$1.folder]?.url == source.url }
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
