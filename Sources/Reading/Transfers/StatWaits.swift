import Base
import Fetching

/// Stats that wait for a size: which of them have waited enough, and get the placeholder. Owned by the transfer thread.
final class StatWaits {
  /// The most questions to silent hosts that nobody waits for, of all such hosts together: each holds a connection for
  /// as long as a transfer may be silent.
  static let mostQuestions = 8
  /// What an origin may take beyond two round trips, in seconds.
  private static let answerSlack = 0.25

  private let room: ReadingRoom
  private let lines: Lines
  private let downloads: Downloads
  private let answers: Answers
  /// How long stats may wait for sizes yet.
  private var patience: StatPatience
  /// Questions to silent hosts that are in flight: those of the last look, and those since.
  private var questions = 0

  init(room: ReadingRoom, lines: Lines, downloads: Downloads, answers: Answers) {
    self.room = room
    self.lines = lines
    self.downloads = downloads
    self.answers = answers
    patience = StatPatience(timeout: room.options.timeout)
  }

  /// The machine slept, or the network changed: all that was waited counts for nothing.
  func restart() { patience.restart() }

  /// Those of the probes that are stats got the placeholder.
  func endedInVain(_ probes: [ParkedProbe], now: Instant) {
    for stat in probes where stat.kind == .attributes {
      patience.endedInVain(stat.looker, since: stat.since, now: now)
    }
  }

  /// Whether all who wait for a file are stats that were answered by this.
  func answersAll(of download: Download, _ now: Instant) -> Bool {
    guard download.content.guarded.withLock({ !$0.waiters.isEmpty }) else { return false }
    look(at: download, now)
    return download.content.guarded.withLock { $0.waiters.isEmpty }
  }

  /// Answers the stats of a file that need not wait: its host is silent, or who asks has waited enough in this folder.
  /// The size is asked for in the background, so that a later stat finds it.
  func look(at download: Download, _ now: Instant) {
    let stats = download.content.guarded.withLock { guarded in
      guarded.waiters.parkedProbes.filter { $0.kind == .attributes }
    }
    if stats.isEmpty { return }
    let isSilent = hasOnlySilentMirrors(download, now)
    let host = Line.key(of: download.mirrors.target.url)
    let line = lines[host]
    var over: Set<Ticket> = []
    for stat in stats {
      var answerBy: Instant?
      if line.answers {
        let asked = download.transfers.map(\.started).min() ?? stat.since
        answerBy = asked.adding(seconds: 2 * line.estimate.roundTrip + Self.answerSlack)
      }
      patience.asks(stat.looker, now: now)
      let isOver = patience.isOver(stat.looker, since: stat.since, answerBy: answerBy, now: now)
      if isOver { lines.update(host) { $0.waitedInVain(since: stat.since, now: now) } }
      if isOver || isSilent { over.insert(stat.ticket) }
    }
    if over.isEmpty { return }
    showPlaceholder(download, now) { over.contains($0.ticket) }
    download.wish.head = true
    downloads.changed(download)
  }

  /// Answers those stats with what is known: many programs take a failed stat for absence.
  func showPlaceholder(_ download: Download, _ now: Instant, where isTaken: (ParkedProbe) -> Bool = { _ in true }) {
    let stats = download.content.guarded.withLock { guarded in
      guarded.waiters.takeProbes { $0.kind == .attributes && isTaken($0) }
    }
    endedInVain(stats, now: now)
    for stat in stats { answers.answer(stat, download.content) }
  }

  // MARK: Questions in the background

  /// Counts the questions in flight: once a look.
  func countQuestions(_ now: Instant) {
    questions = downloads.transferring.count { download in
      download.transfers.contains { running in
        running.active.purpose == .index && !running.responded && lines[running.host].silence.holds(now)
      }
    }
  }

  /// Whether a background question to `host` would be one too many.
  func refuses(_ host: String, _ now: Instant) -> Bool {
    questions >= Self.mostQuestions && lines[host].silence.holds(now)
  }

  /// A background question to `host` was begun.
  func asked(_ host: String, _ now: Instant) {
    if lines[host].silence.holds(now) { questions += 1 }
  }

  /// Whether the size of a file, for which a stat did not wait, may be asked for now.
  func isAskable(_ download: Download, _ now: Instant) -> Bool {
    guard download.wish.head, download.transfers.isEmpty, download.attempts.failure == nil,
      download.attempts.retry.permits(now, readerWaits: false)
    else { return false }
    let host = Line.key(of: download.mirrors.target.url)
    return lines[host].admits(.index, bytes: 0, isQuiet: lines.isQuiet, now: now) && !refuses(host, now)
  }

  /// Whether all mirrors that a file can be asked for at are silent. One of which nothing is known yet is asked for at
  /// one that is not, where there is one.
  private func hasOnlySilentMirrors(_ download: Download, _ now: Instant) -> Bool {
    let isSilent = { [lines] (index: Int) -> Bool in
      let mirror = download.mirrors[index]
      return lines[Line.key(of: mirror.resolved ?? mirror.url)].silence.covers(download.key, now)
    }
    guard isSilent(download.mirrors.current) else { return false }
    guard
      let other = (0..<download.mirrors.count).first(where: { !isSilent($0) && download.mirrors[$0].refusal == nil })
    else { return true }
    if download.mirrors.ofGeneration == nil, download.transfers.allSatisfy({ !$0.responded }) {
      download.cancelAll()
      download.mirrors.go(to: other)
    }
    return false
  }
}
