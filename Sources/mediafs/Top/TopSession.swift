import Base
import Control
import Glibc
import Server
import Storing

/// Asks the server of the mount that is shown, on threads of its own: a server that hangs holds up no key, and a
/// request that takes long holds up no news.
///
/// It asks for what goes on at each turn, and for what takes longer now and then: the sums over the whole mount, and
/// the pages of all files while they are shown.
final class TopSession: Sendable {
  /// What the screen orders.
  enum Order: Sendable {
    case show(MountRecord)
    case listAll(Bool)
  }

  /// What the screen is told.
  enum News: Sendable {
    case connected(ServerIdentity)
    case active(StatusTotals, [FileStatus])
    case totals(StatusTotals)
    case listed([FileStatus], isWhole: Bool)
    case lost(String)
    /// The mount is no more.
    case ended
    case done(String)
    case failed(String)
    case signal(Int32)
  }

  let orders: Mailbox<Order>
  /// What a person asks of the server of a mount.
  let requests: Mailbox<(MountRecord, TopRequest)>
  /// With the mountpoint that it is of; nil: not of one mount.
  let news: Mailbox<(mountpoint: String?, News)>
  private let signal = Signal()
  private let requestSignal = Signal()

  /// `wake` is called when there is news; it must not block. `delay`: seconds between two turns.
  init(delay: Double, wake: @escaping @Sendable () -> Void) {
    orders = Mailbox { [signal] in signal.raise() }
    requests = Mailbox { [requestSignal] in requestSignal.raise() }
    news = Mailbox(wake: wake)
    OwnedThread(name: "requests") { [requests, requestSignal, news, signal] in
      while true {
        for (mount, request) in requests.takeAll() {
          news.post((nil, answer(to: request, mount)))
          signal.raise()  // what it changed is shown at once
        }
        requestSignal.wait()
      }
    }.detach()
    OwnedThread(name: "client") { [orders, news, signal] in
      let asker = TopAsker(news)
      while true {
        for order in orders.takeAll() { asker.take(order) }
        asker.turn()
        signal.wait(seconds: delay)
      }
    }.detach()
  }
}

/// The client's thread alone has it.
private final class TopAsker {
  /// The most files of what goes on, the most ranges of each (more cells has no bar), the most readers of each.
  private static let page = 500
  private static let ranges = 256
  private static let readers = 64
  /// The sums over a mount take no more than this part of the server's time, and come no more often than each so many
  /// seconds.
  private static let share = 0.05
  private static let pause = 5.0

  private let news: Mailbox<(mountpoint: String?, TopSession.News)>
  private var mount: MountRecord?
  private var client: ControlClient?
  private var listsAll = false
  private var nextTotals = Instant(nanoseconds: 0)
  /// The listing so far, and where it goes on.
  private var pages: [FileStatus] = []
  private var after: String?
  private var nextListing = Instant(nanoseconds: 0)
  /// Whether the screen has the whole of an earlier listing.
  private var hasListed = false

  init(_ news: Mailbox<(mountpoint: String?, TopSession.News)>) { self.news = news }

  func take(_ order: TopSession.Order) {
    switch order {
    case .show(let record):
      mount = record
      client = nil
      restart()
    case .listAll(let isWanted):
      listsAll = isWanted
      restart()
    }
  }

  private func restart() {
    nextTotals = Instant(nanoseconds: 0)
    nextListing = Instant(nanoseconds: 0)
    (pages, after, hasListed) = ([], nil, false)
  }

  private func tell(_ news: TopSession.News) { self.news.post((mount?.mountpoint, news)) }

  // MARK: A turn

  func turn() {
    guard let mount else { return }
    do throws(ControlFailure) {
      let client = try connected(mount)
      var query = StatusQuery(limit: Self.page)
      query.active = true
      query.ranges = Self.ranges
      let sums = try client.totals(query)
      tell(.active(sums, bounded(try client.page(query).files)))
      try askForTotals(client)
      if listsAll { try list(client) }
    } catch {
      lost(mount, error)
    }
  }

  /// The files without what none can have: root asks servers of other users, and keeps what they say.
  private func bounded(_ files: [FileStatus]) -> [FileStatus] {
    files.compactMap { file in
      guard file.path.utf8.count < Int(PATH_MAX) else { return nil }
      var bounded = file
      bounded.coarsen(to: Self.ranges)
      bounded.ranges = Array(bounded.ranges.prefix(Self.ranges))
      bounded.error = file.error.map { String($0.prefix(1000)) }
      bounded.advice = file.advice.map { String($0.prefix(1000)) }
      bounded.story = nil
      bounded.readers = file.readers.map { readers in
        readers.prefix(Self.readers).map { reader in
          var reader = reader
          reader.process = reader.process.map { String($0.prefix(100)) }
          return reader
        }
      }
      (bounded.rule, bounded.downloads) = (Self.bounded(file.rule), Self.bounded(file.downloads))
      return bounded
    }
  }

  private static func bounded(_ rule: AppliedRule?) -> AppliedRule? {
    rule.flatMap { $0.word.utf8.count + $0.pattern.utf8.count < Int(PATH_MAX) ? $0 : nil }
  }

  private func connected(_ mount: MountRecord) throws(ControlFailure) -> ControlClient {
    if let client { return client }
    let made = try TopSession.connect(mount)
    let server = try made.hello()
    client = made
    tell(.connected(server))
    return made
  }

  private func askForTotals(_ client: ControlClient) throws(ControlFailure) {
    let now = Instant.now
    guard now >= nextTotals else { return }
    tell(.totals(try client.totals(StatusQuery())))
    let end = Instant.now
    nextTotals = end.adding(seconds: max(Self.pause, end.seconds(since: now) / Self.share))
  }

  /// Asks for the next page of all files; a new listing begins some seconds after the last page.
  private func list(_ client: ControlClient) throws(ControlFailure) {
    guard after != nil || Instant.now >= nextListing else { return }
    var query = StatusQuery(after: after)
    query.ranges = Self.ranges
    let page = try client.page(query)
    pages += bounded(page.files)
    let isFull = pages.count >= TopState.most
    after = isFull ? nil : page.next
    // The first listing is shown as it comes, a later one once it is whole: what a person has selected stays in it.
    if after == nil || !hasListed {
      tell(.listed(Array(pages.prefix(TopState.most)), isWhole: after == nil && !isFull))
    }
    if after == nil {
      pages = []
      hasListed = true
      nextListing = Instant.now.adding(seconds: Self.pause)
    }
  }

  /// A server that ended is followed by the next one, unless the mount is gone too.
  private func lost(_ mount: MountRecord, _ failure: ControlFailure) {
    client = nil
    restart()
    let entry: MountTableEntry?
    do throws(Errno) { entry = try MountTable.entry(at: mount.mountpoint) } catch {
      return tell(.lost("the table of mounts cannot be read: \(error)"))
    }
    guard let entry, entry.isMediafs else { return tell(.ended) }
    switch failure.kind {
    case .notRunning, .gone: tell(.lost("the mount helper starts the next one"))
    default: tell(.lost(failure.message))
    }
  }
}

extension TopSession {
  /// A client of the server that runs now.
  fileprivate static func connect(_ mount: MountRecord) throws(ControlFailure) -> ControlClient {
    var store = mount.store
    if let owner = mount.owner {
      // Root finds another user's store by the server that runs now.
      store = OthersMounts.find().first { $0.isAt(mount.mountpoint) && $0.owner == owner }?.store ?? ""
      if store.isEmpty { throw ControlFailure(.notRunning, "the mount helper starts the next one") }
    }
    return try ControlClient.connect(store: store, owner: mount.owner)
  }
}

/// Asks the server for something, and says how that went.
private func answer(to request: TopRequest, _ mount: MountRecord) -> TopSession.News {
  do throws(ControlFailure) {
    let client = try TopSession.connect(mount)
    switch request {
    case .fetch(let paths): try client.fetch(paths, wait: false)
    case .clear(let paths):
      let report = try client.clear(ClearOrder(.at(paths)))
      if let kept = report.kept.first { return .failed("kept \(kept.path): \(kept.reason)") }
      return .done("cleared \(TerminalText.size(report.bytes)) of \(TerminalText.count(report.files, "file"))")
    case .rule(let word, let paths): _ = try client.rule(word, paths)
    }
    return .done(request.report)
  } catch {
    if error.kind == .malformed {
      return .failed("this server does not know \"\(request.verb)\": a newer program does, see 'mediafs upgrade'")
    }
    return .failed("\(request.verb): \(error.message)")
  }
}
