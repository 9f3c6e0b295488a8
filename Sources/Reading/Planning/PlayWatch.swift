import Base
import Media

/// Notices that a file is being played, so that the next one is likely to follow. A copy needs no help: it goes on to
/// the next file by itself. Pure.
///
/// Evidence, of readers that are no lookers:
/// - It reads at a pace (``Playout``), and not so fast that it copies what is stored.
/// - It has taken a large part of the file, has it open, and asks for nothing: a player whose cache is full.
/// - It has had a complete file open for some time. The kernel may read such a file by itself, so that no read is seen.
///
/// The file counts as played until it is closed and was not read for a while.
struct PlayWatch: Sendable {
  /// How the file is played.
  struct Play: Sendable {
    /// The reads by which that is known; nil when none is seen.
    var run: ReaderRuns.Run?
    /// Bytes a second, if the reader shows a pace.
    var pace: Double?
    /// Since when the file is open.
    var since: Instant

    /// In how many seconds it ends; nil: not known. It shows no more than it has read, and than time has passed.
    func left(_ film: FilmIndex?, size: Int64?, now: Instant) -> Double? {
      guard let film else {
        guard let run, let pace, pace > 0, let size else { return nil }
        return Double(max(0, size - run.position)) / pace
      }
      guard let run else { return max(0, film.duration - now.seconds(since: since)) }
      let shown = min(film.time(at: run.position), film.time(at: run.start) + now.seconds(since: run.began))
      return max(0, film.duration - shown)
    }
  }

  /// What is known of the file.
  struct File {
    var runs: ReaderRuns
    var size: Int64?
    var isOpen = false
    var isComplete = false
    /// Whether a read waits.
    var isWaited = false
  }

  /// A reader that has taken much of the file and asks for nothing for so many seconds plays it.
  static let fullSeconds = 5.0
  /// Who has a complete file open for so many seconds plays it.
  static let openSeconds = 10.0

  private(set) var play: Play?
  private var openSince: Instant?

  /// Called now and then. `lineRate`: what the file's line brings, in bytes a second.
  mutating func look(
    _ file: File, _ playouts: Playouts, lineRate: Double, isLooker: (Int32) -> Bool, now: Instant
  ) {
    openSince = file.isOpen ? openSince ?? now : nil
    let reader = file.runs.runs.filter { !isLooker($0.process) && !file.runs.wentOn(from: $0) }
      .max { $0.lastRead < $1.lastRead }
    let pause = reader.map { now.seconds(since: $0.lastRead) }
    if !file.isOpen, pause ?? .infinity > Playouts.idleSeconds {
      play = nil
    } else if let found = evidence(file, reader, playouts, lineRate, now) {
      play = found
    } else if let reader {
      play?.run = reader
    }
  }

  private func evidence(
    _ file: File, _ reader: ReaderRuns.Run?, _ playouts: Playouts, _ lineRate: Double, _ now: Instant
  ) -> Play? {
    let since = openSince ?? now
    let fastest = Playouts.copyRate * lineRate
    guard let reader else {
      // Who only looks at a file closes it sooner.
      let isHeld = file.isComplete && file.runs.runs.isEmpty && now.seconds(since: since) >= Self.openSeconds
      return isHeld ? Play(run: nil, pace: nil, since: since) : nil
    }
    if let pace = playouts.pace(of: reader), pace < fastest { return Play(run: reader, pace: pace, since: since) }
    guard file.isOpen, !file.isWaited else { return nil }
    let age = now.seconds(since: reader.began)
    if file.isComplete {
      let isHeld = now.seconds(since: since) >= Self.openSeconds && age >= Self.openSeconds
      return isHeld && Double(reader.length) < fastest * age ? Play(run: reader, pace: nil, since: since) : nil
    }
    let enough = min(ReaderRuns.playedLength, (file.size ?? .max) / 2)
    guard reader.length >= enough, now.seconds(since: reader.lastRead) >= Self.fullSeconds else { return nil }
    return Play(run: reader, pace: nil, since: since)
  }
}
