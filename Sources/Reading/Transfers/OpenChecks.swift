import Base
import Fetching

/// Answers the opens that wait for whether the origin changed the file (P8). Owned by the transfer thread.
///
/// Such an open makes the request that the first read needs anyway. If the answer is of the known version, the file is
/// opened. If it is of another one, a second answer is requested at once. When that one agrees, `Generations` answers
/// the open with ESTALE, and the kernel looks the name up again and opens the new inode.
final class OpenChecks {
  /// How long an open waits at most, in seconds. Then the file is opened as if it had not asked.
  static let longest = 1.0

  private let lines: Lines
  private let answers: Answers

  init(lines: Lines, answers: Answers) {
    self.lines = lines
    self.answers = answers
  }

  /// Opens the file for those who need not wait: programs that look at many files, those who have waited for long
  /// enough, and all if the origin cannot be asked or does not answer.
  func look(at download: Download, _ now: Instant) {
    let checks = download.content.guarded.withLock { $0.waiters.parkedProbes.filter { $0.kind == .check } }
    if checks.isEmpty { return }
    let isHopeless = isHopeless(download, now)
    let over = checks.filter { check in
      isHopeless || now.seconds(since: check.since) >= Self.longest || download.isLooker(check.process)
    }
    open(Set(over.map(\.ticket)), download)
  }

  /// The origin answered with the known version, or with the new one that is now known.
  func confirmed(_ download: Download, _ now: Instant) {
    let checks = download.content.guarded.withLock { guarded in
      guarded.held.checked(at: now)
      return guarded.waiters.parkedProbes.filter { $0.kind == .check }
    }
    open(Set(checks.map(\.ticket)), download)
  }

  private func open(_ tickets: Set<Ticket>, _ download: Download) {
    if tickets.isEmpty { return }
    let taken = download.content.guarded.withLock { guarded in
      guarded.waiters.takeProbes { tickets.contains($0.ticket) }
    }
    for check in taken { answers.answer(check, download.content) }
  }

  /// Whether no answer is to be expected: the download failed, its host is known to be away, or nothing may be
  /// requested.
  private func isHopeless(_ download: Download, _ now: Instant) -> Bool {
    let line = lines.line(of: download)
    return download.attempts.hasFailed || download.attempts.retry.failures > 0 || line.isUnreachable
      || line.silence.covers(download.key, now) || !download.attempts.retry.permits(now, readerWaits: true)
  }
}
