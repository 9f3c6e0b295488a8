import Base
import Storing

/// The files that something goes on with: programs have them open, wait for them or read them, transfers are in flight,
/// or a user or the policy wants the rest. They are in memory, so that no catalog is walked to find them.
package struct ActiveFiles: Sendable {
  /// What somebody waits for comes first, then what is read, what is transferred, what is open, what is wanted.
  private enum Rank: Int, Comparable {
    case waits, read, transferred, open, wanted

    static func < (left: Rank, right: Rank) -> Bool { left.rawValue < right.rawValue }
  }

  private struct File {
    let content: Content
    let rank: Rank
  }

  private let room: ReadingRoom
  private var files: [File] = []
  /// How many there are.
  package var count: Int { files.count }
  /// Their stored bytes.
  package private(set) var stored: Int64 = 0
  /// The sum of their known sizes.
  package private(set) var size: Int64 = 0
  /// How many of them have a size that is not known.
  package private(set) var unknownSizes: Int64 = 0
  /// Bytes a second that they bring.
  package private(set) var rate = 0.0
  /// Their transfers in flight.
  package private(set) var transfers = 0

  /// Looks at the files in memory once. No call of the system is made.
  init(_ room: ReadingRoom) {
    self.room = room
    let now = room.clock.now
    for content in room.table.withLock({ Array($0.current.values) }) {
      let (rank, activity, held, known) = content.guarded.withLock { guarded in
        (Self.rank(guarded, now), guarded.activity, guarded.held.stored.count, guarded.held.size)
      }
      guard let rank else { continue }
      files.append(File(content: content, rank: rank))
      stored = .clampedSum(stored, held)
      if let known { size = .clampedSum(size, known) } else { unknownSizes += 1 }
      rate += activity?.rate(now: now) ?? 0
      transfers += activity?.transfers ?? 0
    }
    files.sort { ($0.rank, $0.content.path) < ($1.rank, $1.content.path) }
  }

  private static func rank(_ guarded: Content.Guarded, _ now: Instant) -> Rank? {
    if !guarded.waiters.isEmpty { return .waits }
    let isOpen = guarded.waiters.opens > 0
    let isRead = guarded.waiters.runs.runs.contains { now.seconds(since: $0.lastRead) < ReaderRuns.longestPause }
    if isOpen, isRead { return .read }
    if let activity = guarded.activity, activity.transfers > 0 { return .transferred }
    if isOpen { return .open }
    return guarded.activity?.isWanted == true && guarded.held.isPartial ? .wanted : nil
  }

  /// The reports of the first `most`. Waits for the disk.
  package func reports(_ most: Int) throws(Errno) -> [FileReport] {
    let reports = FileReports(room)
    var result: [FileReport] = []
    for file in files.prefix(most) { result.append(try reports.report(on: file.content, path: file.content.path)) }
    return result
  }
}
