import Base
import Glibc

extension FileReport {
  /// A program that reads the file.
  package struct Reader: Sendable, Equatable {
    /// The process, or 0 if it is in another PID namespace.
    package var process: Int32
    /// Its name, as `ps` shows it; nil if the system does not tell.
    package var name: String?
    /// Up to where its reads have been answered, in bytes.
    package var position: Int64
    /// Bytes a second that it reads, over its last seconds.
    package var pace: Double
    /// When the read that waits began to wait; nil: none waits.
    package var waitsSince: Instant?
    /// What the read waits for; nil: none waits, or its bytes are on the way.
    package var awaits: Awaited?
  }
}

extension Waiters {
  /// The readers of the file, in the order of their places. One that takes turns between two places is told twice; one
  /// that jumped is told where it is now.
  func readers(_ now: Instant) -> [FileReport.Reader] {
    guard opens > 0 else { return [] }
    var readers: [FileReport.Reader] = []
    for run in runs.runs {
      // Of processes in another PID namespace it is not known which of two places the reader has left.
      let pause = run.process > 0 ? Self.longestPause : ReaderRuns.longestPause
      let wait = parkedReads.filter { runs.run(of: $0.range)?.number == run.number }.map(\.arrivedAt).min()
      guard wait != nil || (now.seconds(since: run.lastRead) < pause && !runs.wentOn(from: run)) else { continue }
      readers.append(
        FileReport.Reader(
          process: run.process, position: runs.answered(run, parked: parkedReads),
          pace: run.pace.rate(now: now, pause: ReaderRuns.longestPause), waitsSince: wait))
    }
    return readers.sorted { $0.position < $1.position }
  }
}

extension FileReport.Reader {
  /// The same with the process that the kernel's thread belongs to, and its name. nil: the process has ended.
  func named() -> FileReport.Reader? {
    guard process > 0 else { return self }
    if waitsSince == nil, kill(process, 0) != 0, errno == ESRCH { return nil }
    var reader = self
    if let whole = ProcessNames.process(ofThread: process) { reader.process = whole }
    reader.name = ProcessNames.name(of: reader.process)
    return reader
  }
}
