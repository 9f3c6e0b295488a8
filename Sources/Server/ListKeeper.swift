import Base
import CSystem
import Control
import Glibc
import Manifest
import Storing

/// Keeps the tree as the list is: a thread that hears of changes, reads the list, and has the difference applied under
/// the readers (docs/decisions/0020-the-list-lives.md).
///
/// What goes wrong with a list leaves the tree as it was, and is told by the log and by `status`.
final class ListKeeper: Sendable {
  private struct State {
    var askings: [ReloadAsking] = []
    /// A signal asked.
    var isSignalled = false
    var isStopping = false
    var problem: String?
    /// What a server said last, instead of giving the list.
    var refusal: String?
    /// How many requests for the servers' lists, and for the folders in them, a reload waits for.
    var (listsAsked, foldersAsked) = (0, 0)
    /// What the list was known by when the one that was taken last was brought back.
    var broughtBack: ListMark?
  }

  /// How often the list is looked at, in seconds: what inotify does not tell shows then.
  private static let interval = 5.0
  /// For how long events gather, in milliseconds: programs may write to other files beside the list all the time.
  private static let gathering: Int32 = 20
  /// For how long the end of the server waits for a reload that goes on, in seconds.
  private static let patience = 5.0
  /// For how long a reload waits for servers' folders at most, in seconds.
  private static let foldersPatience = 10.0
  private let request: MountRequest
  private let helper: HelperLink?
  /// What the tree was made of; nil if that is not known.
  private let imported: ListMark?
  private let catalog: Catalog
  private let showing: ListShowing
  /// What is said of a disk that does not answer: it holds the thread.
  let silence: ListSilence
  /// Is told when the list begins to be read again, and when that is over.
  private let reloading: @Sendable (Bool) -> Void
  private let state = Lock(State())
  private let wake: FileDescriptor
  private let ended = Signal()
  /// Whether the lists of servers are being asked for.
  private let isRevalidating = Lock(false)
  private let thread = Lock<OwnedThread?>(nil)

  /// `helper`: of a mount that root made for another user; nil of any other. `imported`: what the tree was made of just
  /// now; nil if that is not known. `reloading` is told when the list begins to be read again, and when what was asked
  /// for is done.
  init(
    _ request: MountRequest, helper: HelperLink?, imported: ListMark?, _ catalog: Catalog, _ update: TreeUpdate,
    reloading: @escaping @Sendable (Bool) -> Void = { _ in }
  ) throws(ServerError) {
    self.request = request
    self.helper = helper
    self.imported = imported
    self.catalog = catalog
    showing = ListShowing(request, update)
    silence = ListSilence(request.lists?.calls, reloading)
    self.reloading = reloading
    let number = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
    guard number >= 0 else { throw .failed("cannot create an eventfd: \(Errno.current)") }
    wake = FileDescriptor(owning: number)
  }

  /// Starts the thread, which looks at once whether the list is still the one that the tree was made of.
  func start() {
    let started = OwnedThread(name: "list") { [self] in
      run()
      for asking in state.withLock({ $0.askings }) { asking.settle(.failure(Self.ending)) }
      ended.raise()
    }
    thread.withLock { $0 = started }
  }

  /// Ends the thread. Leaves it alone if a disk holds it: the catalog lets it write nothing more.
  func stop() {
    state.withLock { $0.isStopping = true }
    signal()
    guard let running = thread.withLock({ $0.take() }) else { return }
    if ended.wait(seconds: silence.message == nil ? Self.patience : 0) { running.join() } else { running.detach() }
  }

  /// What is wrong with the list, or with servers' folders in it; nil: nothing.
  var problem: String? {
    silence.message ?? state.withLock { $0.problem ?? $0.refusal } ?? request.lists?.folders.problem
  }

  /// Has the thread look what servers gave.
  func look() { signal() }

  /// Reads the list soon, because a signal asks for it.
  func reloadSoon() {
    state.withLock { $0.isSignalled = true }
    signal()
  }

  /// Reads the list now, and waits for that, unless `isLeft` says that nobody needs the answer, or a disk does not
  /// answer: then the list is read later.
  func reload(isLeft: () -> Bool) throws(ControlFailure) -> ReloadReport {
    let asking = ReloadAsking()
    let isStopping = state.withLock { state in
      state.askings.append(asking)
      return state.isStopping
    }
    if isStopping { throw Self.ending }
    signal()
    while true {
      if let answer = asking.wait(seconds: 0.2) { return try answer.get() }
      if isLeft() { throw ControlFailure(.gone, "the client is gone") }
      if state.withLock({ $0.isStopping }) { throw Self.ending }
      guard let why = silence.message else { continue }
      state.withLock { state in
        guard let place = state.askings.firstIndex(where: { $0 === asking }) else { return }
        state.askings.remove(at: place)
        state.isSignalled = true
      }
      throw ControlFailure(.failed, why)
    }
  }

  private static let ending = ControlFailure(.failed, "the mount ends")

  private func signal() {
    var one: UInt64 = 1
    _ = write(wake.rawValue, &one, 8)
  }

  // MARK: - The thread

  private func run() {
    // What the list was when it was read: a pipe may have taken its place since, for a while.
    if request.readsStandardInput || imported?.isPlain == false { return serveWithout() }
    let watch = ListWatch(request)
    watch.renew()
    var settled = imported
    if settled == nil, ManifestImport.isCurrent(request, in: catalog) {
      settled = ListMark(of: request)
      request.lists?.folders.shows(nil)  // with servers' folders it would not be known to be current
    }
    if settled == nil, ListMark(of: request) == nil {
      request.lists?.folders.refused("the list is not there", isLasting: true)
    }
    var settling = ListSettling(settled: settled)
    var next = 0.0
    var revalidation = Instant.now.adding(seconds: request.lists?.freshness ?? 0)
    // The reload that waits for the lists and folders of servers: who asked, and until when it waits for the folders.
    var waiting: [ReloadAsking] = []
    var reloading: Instant?
    // What came while it waited.
    var meanwhile = ReloadReport()
    // The folders of servers that wait to be shown, and not before when.
    var (news, newsAt) = (ServedFolders.News(), Instant.now)
    while true {
      var events = [wake.rawValue, watch.number].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
      _ = poll(&events, 2, Int32(min(next, Self.interval) * 1000) + 1)
      if events[1].revents != 0 { _ = poll(&events, 1, Self.gathering) }
      var count: UInt64 = 0
      _ = read(wake.rawValue, &count, 8)
      let (askings, isSignalled, isStopping) = state.withLock { state in
        defer { (state.askings, state.isSignalled) = ([], false) }
        return (state.askings, state.isSignalled, state.isStopping)
      }
      if isStopping {
        for asking in askings + waiting { asking.settle(.failure(Self.ending)) }
        return
      }
      next = Self.interval
      if let rest = showing.repeatRecent() { next = rest }
      if let lists = request.lists, !lists.urls.isEmpty {
        if revalidation <= .now, !isRevalidating.withLock({ $0 }) {
          isRevalidating.withLock { $0 = true }
          revalidation = .now.adding(seconds: max(1, request.downloads.fresh))
          lists.ask { [self] answer in
            isRevalidating.withLock { $0 = false }
            come(answer)
          }
        }
        next = min(next, max(0.5, revalidation.seconds(since: .now)))
      }
      waiting += askings
      if !askings.isEmpty || isSignalled {
        revalidate()
        reloading = .now.adding(seconds: min(request.downloads.timeout, Self.foldersPatience))
      }
      let (listsAsked, foldersAsked) = state.withLock { ($0.listsAsked, $0.foldersAsked) }
      if let until = reloading, listsAsked == 0, foldersAsked > 0, until > .now {
        next = min(next, until.seconds(since: .now))
      } else if reloading != nil, listsAsked == 0 {
        reloading = nil
        var result = load(&settling, isAsked: true).map { withFolders($0, and: meanwhile) }
        meanwhile = ReloadReport()
        if case .success = result, let refusal = state.withLock({ $0.refusal }) {
          result = .failure(ControlFailure(.failed, refusal))
        }
        showing.settle()
        for asking in waiting { asking.settle(result) }
        waiting = []
        watch.renew()
        next = ListShowing.again
        continue
      }
      if let event = watch.take(), case .lookIn(let rest) = settling.handle(event, .now) { next = min(next, rest) }
      let mark = ListMark(of: request)
      var action = settling.handle(.looked(mark), .now)
      // The tree is of this one, and what is wrong with the other stays said.
      if action == .read, let mark, mark == state.withLock({ $0.broughtBack }) {
        settling.read(as: mark)
        action = .nothing
      }
      if let more = request.lists?.folders.takeNews() {
        news = ServedFolders.News(urls: news.urls.union(more.urls), isAsked: news.isAsked || more.isAsked)
      }
      switch action {
      // What servers gave shows once the list is quiet, too: it is read with it.
      case .lookIn(let rest): next = min(next, rest)
      case .complain:
        let gone = request.allLists.first { ListMark(of: $0, request) == nil }?.shown ?? request.listName
        fail("the list \(gone) is not there any more: the mount stays as it was; bring the list back")
      case .nothing where news.urls.isEmpty: break
      case .nothing where newsAt > .now: next = min(next, newsAt.seconds(since: .now))
      case .nothing, .read:
        let result: Result<ReloadReport, ControlFailure>
        if case .nothing = action, let shown = show(&news) {
          result = shown
        } else {
          result = load(&settling, isAsked: news.isAsked)
          news = ServedFolders.News()
        }
        if reloading != nil, case .success(let report) = result { meanwhile = withFolders(report, and: meanwhile) }
        next = news.urls.isEmpty ? ListShowing.again : 0
        // What the import could not show for now, it is told of again.
        if case .failure = result { newsAt = .now.adding(seconds: Self.interval) }
      }
      watch.renew()
    }
  }

  /// Asks for the lists and folders that servers gave.
  private func revalidate() {
    guard let lists = request.lists else { return }
    state.withLock { ($0.listsAsked, $0.foldersAsked) = ($0.listsAsked + 1, $0.foldersAsked + 1) }
    lists.folders.refresh { [self] in
      state.withLock { $0.foldersAsked -= 1 }
      signal()
    }
    lists.ask(isAsked: true) { [self] answer in
      if !lists.urls.isEmpty { come(answer) }
      state.withLock { $0.listsAsked -= 1 }
      signal()
    }
  }

  /// What became of the request for the list. Another list is a file that changed (``ListWatch``).
  private func come(_ answer: DocumentAsk.Answer) {
    guard case .failed(let why) = answer else { return state.withLock { $0.refusal = nil } }
    let isNews = state.withLock { state in
      defer { state.refusal = why }
      return state.refusal != why
    }
    if isNews { Log.warning("the list stays as it was: \(why)") }
  }

  /// A list from standard input, or a pipe, cannot be read again.
  private func serveWithout() {
    request.lists?.folders.fix()
    while true {
      var event = pollfd(fd: wake.rawValue, events: Int16(POLLIN), revents: 0)
      _ = poll(&event, 1, -1)
      var count: UInt64 = 0
      _ = read(wake.rawValue, &count, 8)
      let (askings, isSignalled, isStopping) = state.withLock { state in
        defer { (state.askings, state.isSignalled) = ([], false) }
        return (state.askings, state.isSignalled, state.isStopping)
      }
      if isSignalled { reloading(false) }
      let why = "the list came from standard input or a pipe, which is over: write it to a file, and mount that"
      for asking in askings { asking.settle(.failure(ControlFailure(.failed, why))) }
      if isStopping { return }
    }
  }

  private func load(_ settling: inout ListSettling, isAsked: Bool) -> Result<ReloadReport, ControlFailure> {
    reloading(true)
    defer { reloading(false) }
    let read = ManifestImport.again(request, helper: helper, into: catalog, watcher(isAsked: isAsked)) {
      state.withLock { $0.isStopping }
    }
    switch read.result {
    case .success(let report):
      settling.read(as: read.mark)
      return .success(taken(report, isAsked: isAsked))
    case .failure(let error):
      if read.isChanging, settling.missed(.now) > 1, !isAsked {
        fail("the list \(request.listName) changes each time while it is read; have it written less often")
      }
      // A disk that is full, or a lack of descriptors, passes: then the list is tried again.
      if !read.isChanging, !state.withLock({ $0.isStopping }), error.kind == .invalid {
        settling.read(as: read.mark)
        bringBack(&settling)
      }
      return .failure(failed(error, isChanging: read.isChanging))
    }
  }

  /// Shows some of what servers gave, without reading the list, and removes it from `news`; nil: only the list can say
  /// what is there. While anything is wrong with the list, all of it is tried again with it.
  private func show(_ news: inout ServedFolders.News) -> Result<ReloadReport, ControlFailure>? {
    guard state.withLock({ $0.problem }) == nil, let scope = request.lists?.folders.scope(of: news) else { return nil }
    do throws(StoreError) {
      var result = ReloadReport()
      if !scope.roots.isEmpty {
        let shown = try ManifestImport.folders(scope, request, into: catalog, watcher(isAsked: news.isAsked))
        guard let report = shown else { return nil }
        result = taken(report, isAsked: false)
      }
      news.urls.subtract(scope.urls)
      if news.urls.isEmpty { news.isAsked = false }
      return .success(result)
    } catch {
      news = ServedFolders.News()
      return .failure(failed(error, isChanging: false))
    }
  }

  private func watcher(isAsked: Bool) -> ImportWatcher {
    showing.watcher(isAsked: isAsked) { [state] () throws(StoreError) in
      if state.withLock({ $0.isStopping }) { throw StoreError(kind: .invalid, message: Self.ending.message) }
    }
  }

  /// Notes why an import changed nothing.
  private func failed(_ error: StoreError, isChanging: Bool) -> ControlFailure {
    showing.failed()
    if !isChanging, !state.withLock({ $0.isStopping }) { fail(error.message) }
    request.lists?.folders.refused(
      error.message, isLasting: error.kind == .invalid && !isChanging, isChanging: isChanging)
    return ControlFailure(.failed, error.message)
  }

  /// The next mount begins with the lists of servers that were taken last.
  private func bringBack(_ settling: inout ListSettling) {
    do throws(StoreError) {
      guard try request.lists?.documents.remembered.refused() == true else { return }
      let mark = ListMark(of: request)
      state.withLock { $0.broughtBack = mark }
      settling.read(as: mark)
    } catch {
      Log.warning(error.message)
    }
  }

  /// What became of a reload: also `before` it read the list, and of the servers' folders.
  private func withFolders(_ report: ReloadReport, and before: ReloadReport) -> ReloadReport {
    var report = report
    report.added += before.added
    report.removed += before.removed
    report.changed += before.changed
    guard let counts = request.lists?.folders.counts else { return report }
    (report.asking, report.failed) = (counts.asked > 0 ? counts.asked : nil, counts.failed > 0 ? counts.failed : nil)
    return report
  }

  private func taken(_ report: ImportReport, isAsked: Bool) -> ReloadReport {
    state.withLock { $0.problem = nil }
    guard let changes = report.changes, !changes.isEmpty else {
      if isAsked { Log.info("the list is as before") }
      return ReloadReport(problems: report.problems)
    }
    Log.info("the list changed: \(changes.added) names more, \(changes.removed) less, \(changes.relinked) new links")
    return ReloadReport(
      added: changes.added, removed: changes.removed, changed: changes.relinked, problems: report.problems)
  }

  private func fail(_ reason: String) {
    let outcome = "the mount stays as it was"
    let message = reason.contains(outcome) ? reason : "\(reason); \(outcome)"
    let isNews = state.withLock { state in
      defer { state.problem = message }
      return state.problem != message
    }
    if isNews { Log.warning(message) }
  }
}
