import Base
import Fetching

/// Decides which of the stats that wait for a size get the placeholder. Owned by the transfer thread.
final class StatWaits {
  /// The most background requests to all silent hosts together. Each holds a connection for as long as a transfer may
  /// be silent.
  static let mostQuestions = 8
  /// How long an origin may take beyond two round trips, in seconds.
  private static let answerSlack = 0.25

  private let room: ReadingRoom
  private let lines: Lines
  private let downloads: Downloads
  private let answers: Answers
  /// How long each process may still wait for sizes.
  private var patience: StatPatience
  /// The most wishes for sizes that stay while sizes get only a little of the line (``Line/rationsSizes``).
  static let mostWanted = 1000
  /// How many of them the sweep has seen.
  private var wanted = 0
  /// Requests to silent hosts in flight: those of the last look, and those begun since.
  private var questions = 0

  init(room: ReadingRoom, lines: Lines, downloads: Downloads, answers: Answers) {
    self.room = room
    self.lines = lines
    self.downloads = downloads
    self.answers = answers
    patience = StatPatience(timeout: room.options.timeout)
  }

  /// The machine slept, or the network changed: the time waited so far does not count.
  func restart() { patience.restart() }

  /// The stats among `probes` got the placeholder: their wait is counted.
  func endedInVain(_ probes: [ParkedProbe], now: Instant) {
    for stat in probes where stat.kind == .attributes {
      patience.endedInVain(stat.listing, since: stat.since, now: now)
    }
  }

  /// Whether all who waited for a file were stats that this call answered.
  func answersAll(of download: Download, _ now: Instant) -> Bool {
    guard download.content.guarded.withLock({ !$0.waiters.isEmpty }) else { return false }
    look(at: download, now)
    return download.content.guarded.withLock { $0.waiters.isEmpty }
  }

  /// Answers the stats of a file that need not wait: its host is silent, or the process has waited enough in this
  /// folder. The size is requested in the background, so that a later stat finds it.
  func look(at download: Download, _ now: Instant) {
    let stats = download.content.guarded.withLock { guarded in
      guarded.waiters.parkedProbes.filter { $0.kind == .attributes }
    }
    if stats.isEmpty { return }
    let isSilent = hasOnlySilentMirrors(download, now)
    let host = download.mirrors.host
    let line = lines[host]
    var over: Set<Ticket> = []
    for stat in stats {
      var answerBy: Instant?
      if line.isKnownToAnswer {
        let asked = download.transfers.map(\.started).min() ?? stat.since
        answerBy = asked.adding(seconds: 2 * line.estimate.roundTrip + Self.answerSlack)
      }
      patience.asks(stat.listing, now: now)
      let isOver = patience.isOver(stat.listing, since: stat.since, answerBy: answerBy, now: now)
      if isOver { lines.update(host) { $0.waitedInVain(since: stat.since, now: now) } }
      if isOver || isSilent { over.insert(stat.ticket) }
    }
    if over.isEmpty { return }
    showPlaceholder(download, now) { over.contains($0.ticket) }
    download.wish.head = true
    downloads.changed(download)
  }

  /// Answers the chosen stats with what is known. Many programs take a failed stat for absence.
  func showPlaceholder(_ download: Download, _ now: Instant, where isTaken: (ParkedProbe) -> Bool = { _ in true }) {
    let stats = download.content.guarded.withLock { guarded in
      guarded.waiters.takeProbes { $0.kind == .attributes && isTaken($0) }
    }
    endedInVain(stats, now: now)
    for stat in stats { answers.answer(stat, download.content) }
  }

  // MARK: Background requests

  /// Counts the requests in flight to silent hosts. Called at the beginning of each look.
  func beginLook(_ now: Instant) {
    wanted = 0
    questions = downloads.transferring.count { download in
      download.transfers.contains { running in
        running.active.purpose == .index && !running.responded && lines[running.host].silence.holds(now)
      }
    }
  }

  /// Whether `host` is silent and the most background requests to silent hosts are in flight.
  func refuses(_ host: String, _ now: Instant) -> Bool {
    questions >= Self.mostQuestions && lines[host].silence.holds(now)
  }

  /// Notes that a background request to `host` was begun.
  func began(_ host: String, _ now: Instant) {
    if lines[host].silence.holds(now) { questions += 1 }
  }

  /// Whether the size of a file whose stat got the placeholder may be requested now.
  func isAskable(_ download: Download, _ now: Instant) -> Bool {
    guard download.wish.head, download.transfers.isEmpty, !download.attempts.hasFailed,
      download.attempts.retry.permits(now, readerWaits: false)
    else { return false }
    let host = download.mirrors.host
    return lines[host].admits(.index, bytes: Generations.glance, claim: .share, isQuiet: lines.isQuiet, now: now)
      && !refuses(host, now)
  }

  /// Whether the wish for a size stays until its turn comes. Otherwise the sweep forgets it, and a later stat makes it
  /// again.
  func keeps(_ download: Download) -> Bool {
    guard download.wish.head, lines.line(of: download).rationsSizes else { return false }
    wanted += 1
    return wanted <= Self.mostWanted
  }

  /// Whether all mirrors of a file are silent. A file whose generation is unknown changes to a mirror that is not, if
  /// there is one.
  private func hasOnlySilentMirrors(_ download: Download, _ now: Instant) -> Bool {
    let isSilent = { [lines] (index: Int) -> Bool in
      let mirror = download.mirrors[index]
      return lines[Line.key(of: mirror.resolved ?? mirror.url)].silence.covers(download.key, now)
    }
    guard isSilent(download.mirrors.current) else { return false }
    guard
      let other = download.mirrors.places.first(where: {
        !isSilent($0) && download.mirrors[$0].refusal == nil && !download.mirrors.asksToWait($0, now)
      })
    else { return true }
    if download.mirrors.ofGeneration == nil, download.transfers.allSatisfy({ !$0.responded }) {
      download.cancelAll()
      download.mirrors.go(to: other)
      download.attempts.retry.changed(toMirrorNaming: nil)
    }
    return false
  }
}
