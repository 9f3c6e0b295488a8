import Base

/// Processes that go from file to file and read little of each: an unknown program that scans. Pure.
///
/// Each file that a program begins would give it the credit of a newcomer. One that begins many has that credit all the
/// time, and thirty of them leave a film that begins a thirtieth of the line. So who has passed by a few files has no
/// credit at the next one, until it has read on there. Processes in another PID namespace all have the number 0:
/// nothing is known of them.
struct Passers: Sendable {
  /// From so many files on.
  static let files = 3
  /// What is read of a file in passing, in bytes, at most.
  static let most: Int64 = Planner.streamLength
  /// A pause of so many seconds between two files ends it.
  private static let longest = 5.0
  private static let kept = 256

  private var seen: [Int32: (files: Int, last: Instant)] = [:]

  /// `runs` were the reads of a file that was closed.
  mutating func closed(_ runs: ReaderRuns, now: Instant) {
    var read: [Int32: Int64] = [:]
    for run in runs.runs where run.process > 0 && now.seconds(since: run.lastRead) < Self.longest {
      read[run.process, default: 0] += run.length
    }
    for (process, bytes) in read {
      guard bytes <= Self.most else {
        seen[process] = nil
        continue
      }
      seen[process] = (files: passed(process, now) + 1, last: now)
    }
    if seen.count > Self.kept { seen = seen.filter { now.seconds(since: $0.value.last) < Self.longest } }
  }

  /// Whether `process` passes by.
  func contains(_ process: Int32, _ now: Instant) -> Bool { passed(process, now) >= Self.files }

  /// Whether all of them do; false for none.
  func containsAll(_ processes: some Collection<Int32>, _ now: Instant) -> Bool {
    !processes.isEmpty && processes.allSatisfy { contains($0, now) }
  }

  /// How many files it has passed by, one soon after the other.
  private func passed(_ process: Int32, _ now: Instant) -> Int {
    seen[process].map { now.seconds(since: $0.last) < Self.longest ? $0.files : 0 } ?? 0
  }
}
