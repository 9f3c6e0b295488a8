import Base
import Fetching

/// Stats that wait for a size: which of them have waited enough, and get the placeholder.
extension Engine {
  /// Whether all who wait for a file are stats that were answered by this.
  func answersStats(of source: Source, _ now: Instant) -> Bool {
    guard source.content.guarded.withLock({ $0.state.hasWaiters }) else { return false }
    watchStats(source, now)
    return !source.content.guarded.withLock { $0.state.hasWaiters }
  }

  /// Answers the stats of a file that need not wait: its host is silent, or who asks has waited enough in this folder.
  /// The size is asked for in the background, so that a later stat finds it.
  func watchStats(_ source: Source, _ now: Instant) {
    let stats = source.content.guarded.withLock { $0.state.parkedProbes.filter { $0.kind == .attributes } }
    if stats.isEmpty { return }
    let isSilent = hasOnlySilentMirrors(source, now)
    let key = HostState.key(of: source.target.url)
    let host = hosts[key]
    var over: Set<Ticket> = []
    for stat in stats {
      var answerBy: Instant?
      if let host, host.answers {
        let asked = source.transfers.map(\.started).min() ?? stat.since
        answerBy = asked.adding(seconds: 2 * host.line.roundTrip + Self.answerSlack)
      }
      patience.asks(stat.looker, now: now)
      let isOver = patience.isOver(stat.looker, since: stat.since, answerBy: answerBy, now: now)
      if isOver { hosts[key, default: newHost].waitedInVain(since: stat.since, now: now) }
      if isOver || isSilent { over.insert(stat.ticket) }
    }
    if over.isEmpty { return }
    showPlaceholder(source, now) { over.contains($0.ticket) }
    source.wantsHead = true
    dirty.insert(source.key)
  }

  /// What an origin may take beyond two round trips, in seconds.
  private static let answerSlack = 0.25

  /// Answers those stats with what is known: many programs take a failed stat for absence.
  func showPlaceholder(_ source: Source, _ now: Instant, where isTaken: (ParkedProbe) -> Bool = { _ in true }) {
    let stats = source.content.guarded.withLock { guarded in
      guarded.state.takeProbes { $0.kind == .attributes && isTaken($0) }
    }
    for stat in stats {
      patience.endedInVain(stat.looker, since: stat.since, now: now)
      port.reply(stat.ticket, attributes: attributes(of: source.content, inode: stat.inode))
    }
  }

  /// The most questions to silent hosts that nobody waits for, of all such hosts together: each holds a connection for
  /// as long as a transfer may be silent.
  static let mostQuestions = 8

  /// How many of those are out.
  func openQuestions(_ now: Instant) -> Int {
    owners.values.count { source in
      source.transfers.contains { running in
        running.active.purpose == .index && !running.responded && hosts[running.host]?.silence.holds(now) ?? false
      }
    }
  }

  /// Whether all mirrors that a file can be asked for at are silent. One of which nothing is known yet is asked for at
  /// one that is not, where there is one.
  private func hasOnlySilentMirrors(_ source: Source, _ now: Instant) -> Bool {
    let isSilent = { (index: Int) -> Bool in
      let mirror = source.mirrors[index]
      return self.hosts[HostState.key(of: mirror.resolved ?? mirror.url)]?.silence.covers(source.key, now) ?? false
    }
    guard isSilent(source.mirror) else { return false }
    guard let other = source.mirrors.indices.first(where: { source.mirrors[$0].refusal == nil && !isSilent($0) })
    else { return true }
    if source.generationMirror == nil, source.transfers.allSatisfy({ !$0.responded }) {
      for running in source.transfers { cancel(running.active.id, of: source) }
      source.mirror = other
    }
    return false
  }
}
