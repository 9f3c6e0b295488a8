import Base
import Fetching
import Manifest

/// Gets the links of entries that name a resolver: before their first request, before a link ends, and when one died.
/// Owned by the transfer thread.
///
/// Links are kept in memory alone, also of files that were put away, until the server ends.
final class Renewals {
  /// One resolver.
  private struct Resolver {
    /// The entries whose answers it owes, and since when.
    var owes: [ResourceKey: Instant] = [:]
    /// Those that have yet to be asked for.
    var waiting: [ResolverAsk] = []
    /// How often its program ended in a row, and until when it is not started again.
    var ends = 0
    var restsUntil = Instant(nanoseconds: 0)
    /// Why it ended, once that is no accident any more.
    var fault: String?
  }

  /// How many entries a resolver is asked for at once, and how many wait for that.
  private static let (atOnce, mostWaiting) = (4, 1000)
  /// How long an answer may take, in seconds.
  static let patience = 60.0
  /// The longest pause before a program is started again, in seconds.
  private static let longestRest = 60.0
  /// How many entries' links are kept, if nobody uses them.
  private static let mostLinks = 10_000

  private let room: ReadingRoom
  private let downloads: Downloads
  private var links: [ResourceKey: Renewal] = [:]
  private var resolvers: [String: Resolver] = [:]
  /// Downloads that want a request and have no link: each look plans them again.
  private var blocked: Set<ResourceKey> = []

  init(room: ReadingRoom, downloads: Downloads) {
    self.room = room
    self.downloads = downloads
  }

  /// Whether an answer is to come.
  var isBusy: Bool { resolvers.values.contains { !$0.owes.isEmpty || !$0.waiting.isEmpty } }

  /// What the request of an entry has to wait for. The download gets its newest link first.
  func step(_ download: Download, _ now: Instant) -> Renewal.Step {
    guard let name = download.content.entry.resolver else { return .request }
    guard room.resolver.withLock({ $0 })?.defines(name) == true else {
      return .fail("no --resolver option defines the resolver \(name), which the list names")
    }
    attach(download)
    let step = links[download.key, default: Renewal()].step(now, date: room.clock.date)
    // Nobody waits for the rest of a program that keeps ending.
    if case .ask = step, let resolver = resolvers[name], let why = resolver.fault, now < resolver.restsUntil {
      return .fail(why)
    }
    return step
  }

  /// Whether a request may be made now; asks for a link where it may not. A size that a listing may want is worth no
  /// run of a program.
  func admits(_ download: Download, _ purpose: Purpose, fail: (String) -> Void, _ now: Instant) -> Bool {
    guard let name = download.content.entry.resolver else { return true }
    switch step(download, now) {
    case .request:
      download.waitsForLink = false
      links[download.key]?.used()
      return true
    case .requestAndAsk(let why):
      download.waitsForLink = false
      links[download.key]?.used()
      ask(name, download, why, now)
      return true
    case .ask where purpose == .index: download.wish.head = false
    case .ask(let why):
      ask(name, download, why, now)
      blocked.insert(download.key)
    case .wait: blocked.insert(download.key)
    // The link may yet bring something: an origin may refuse a second request beside the first.
    case .fail where Self.transfers(of: download).contains { $0.bytes == 0 }: blocked.insert(download.key)
    case .fail(let words):
      let message = "the resolver \(name) gives no link: \(words)"
      if purpose <= .shared {
        fail(message)
      } else if download.attempts.lastError?.message != message {
        downloads.note(message, of: download)
      }
      blocked.insert(download.key)
    }
    download.waitsForLink = true
    return false
  }

  /// Gives a download the newest link of its entry.
  private func attach(_ download: Download) {
    guard let renewal = links[download.key], let link = renewal.link, download.linkNumber != renewal.number else {
      return
    }
    download.replaceSource(link.urls)
    (download.link, download.linkNumber) = (link, renewal.number)
    let generation = download.content.guarded.withLock { $0.held.generation?.id }
    if let joined = renewal.joined, joined.generation == generation { download.joins(joined.identity) }
  }

  // MARK: What becomes of links

  /// The current link of a download is of no use any more. False for an entry without a resolver.
  /// `message` says what failed.
  func died(_ download: Download, _ why: ResolverAsk.Reason, _ message: String) -> Bool {
    guard download.content.entry.resolver != nil else { return false }
    if Self.transfers(of: download).contains(where: { $0.fresh > 0 }) { brought(download) }
    links[download.key]?.died(why, message)
    Log.debug("\(download.content.path): its link is of no use any more (\(why.rawValue))")
    downloads.changed(download)
    return true
  }

  /// Those by the current link.
  private static func transfers(of download: Download) -> [Running] {
    download.transfers.filter { !$0.isCancelled && !download.mirrors.isReplaced($0.mirror) }
  }

  /// A transfer by the current link brought bytes that were missing.
  func brought(_ download: Download) { links[download.key]?.brought() }

  /// A response was accepted: if it came by the current link, that needs no proof when the file is loaded again.
  func accepted(_ download: Download) {
    guard download.content.entry.resolver != nil, download.isJoined, let known = download.joined ?? download.identity,
      let generation = download.content.guarded.withLock({ $0.held.generation?.id })
    else { return }
    links[download.key]?.joins(generation, known)
  }

  /// The digest that links told of the version that is held.
  func checksum(of download: Download) -> Checksum? {
    links[download.key]?.checksum(of: download.content.guarded.withLock { $0.held.generation?.id })
  }

  /// The list says something else of an entry: its link is forgotten.
  func forget(_ key: ResourceKey) {
    if links[key]?.isAsked != true { links[key] = nil }
  }

  // MARK: Asking

  private func ask(_ name: String, _ download: Download, _ why: ResolverAsk.Reason, _ now: Instant) {
    guard resolvers[name, default: Resolver()].waiting.count < Self.mostWaiting else { return }
    let entry = download.content.entry
    let known = download.identity
    let validator = known.flatMap { GenerationCheck.ifRange(for: $0.validators) }
    let ask = ResolverAsk(
      key: download.key, source: entry.urls[0], why: why, size: known?.size, validator: validator)
    links[download.key, default: Renewal()].asked(now)
    resolvers[name, default: Resolver()].waiting.append(ask)
    send(name, now)
  }

  /// Sends as many asks as the resolver may have at once.
  private func send(_ name: String, _ now: Instant) {
    guard var resolver = resolvers[name], now >= resolver.restsUntil, !resolver.waiting.isEmpty else { return }
    while resolver.owes.count < Self.atOnce, !resolver.waiting.isEmpty {
      let ask = resolver.waiting.removeFirst()
      resolver.owes[ask.key] = now
      Log.debug("the resolver \(name) is asked for a link (\(ask.why.rawValue))")
      if room.resolver.withLock({ $0?.ask(ask, of: name) }) != true {
        resolvers[name] = resolver
        return ended(name, "it cannot be asked", now)
      }
    }
    resolvers[name] = resolver
  }

  func heard(_ news: ResolverNews, _ now: Instant) {
    switch news {
    case .gone(let why):
      for (name, resolver) in resolvers where !resolver.owes.isEmpty { ended(name, why, now) }
    // What a program that was ended had written before.
    case .ended(let name, _) where isResting(name, now), .answered(let name, _) where isResting(name, now): return
    case .ended(let name, let why): ended(name, why, now)
    case .answered(let name, let answer):
      guard resolvers[name]?.owes.removeValue(forKey: answer.key) != nil else {
        room.resolver.withLock { $0?.end(name) }
        return ended(name, "it answered for a file that it was not asked for", now)
      }
      resolvers[name]?.ends = 0
      resolvers[name]?.fault = nil
      answered(name, answer, now)
      send(name, now)
    }
  }

  /// Whether the program of a resolver has ended, and was not started again.
  private func isResting(_ name: String, _ now: Instant) -> Bool {
    resolvers[name].map { $0.owes.isEmpty && now < $0.restsUntil } ?? false
  }

  private func answered(_ name: String, _ answer: ResolverAnswer, _ now: Instant) {
    let download = downloads[answer.key]
    switch answer.link {
    case .failure(let refusal):
      links[answer.key]?.failed(refusal.words, now)
      Log.warning("the resolver \(name) gives no link for \(shown(download)): \(refusal.words)")
    case .success(let link):
      if let own = download?.content.entry.checksum, let other = link.checksum, other.algorithm == own.algorithm,
        other != own
      {
        links[answer.key]?.failed("its link is to a file with another checksum than the list has", now)
        break
      }
      links[answer.key]?.answered(link, now, date: room.clock.date)
      if links[answer.key]?.link == link { Log.debug("\(shown(download)): it has a new link") }
      forgetOthers()
    }
    guard let download else { return }
    attach(download)
    downloads.changed(download)
  }

  private func shown(_ download: Download?) -> String { download?.content.path ?? "a file" }

  /// The program of a resolver has ended: whose answers it owed may be asked for again, after a while.
  private func ended(_ name: String, _ why: String, _ now: Instant) {
    guard var resolver = resolvers[name] else { return }
    var owed = Array(resolver.owes.keys)
    resolver.owes = [:]
    resolver.ends += 1
    if resolver.ends > 2 {
      resolver.fault = why
      owed += resolver.waiting.map(\.key)
      resolver.waiting = []
    }
    let rest = min(Self.longestRest, Double(1 << min(resolver.ends - 1, 6)))
    resolver.restsUntil = now.adding(seconds: rest)
    resolvers[name] = resolver
    Log.warning("the resolver \(name) is started again in \(Int(rest)) s at the earliest: \(why)")
    for key in owed {
      links[key]?.failed(why, isAccident: true, now)
      downloads.changed(key)
    }
  }

  // MARK: Looking

  /// Ends programs whose answers are overdue, sends what may be sent by now, and has the scheduler plan what waits.
  func look(_ now: Instant) {
    for (name, resolver) in resolvers {
      let late = resolver.owes.filter { now.seconds(since: $0.value) >= Self.patience }.keys
      if !late.isEmpty {
        room.resolver.withLock { $0?.end(name) }
        let why = "it gave no answer within \(Int(Self.patience)) s"
        for key in late {
          resolvers[name]?.owes[key] = nil
          links[key]?.failed(why, now)
        }
        ended(name, why, now)
      }
      send(name, now)
    }
    for key in blocked { downloads.changed(key) }
    blocked.removeAll(keepingCapacity: true)
  }

  /// Forgets links that nobody uses, once there are many.
  private func forgetOthers() {
    guard links.count > Self.mostLinks else { return }
    links = links.filter { $0.value.isAsked || downloads[$0.key] != nil }
  }
}
