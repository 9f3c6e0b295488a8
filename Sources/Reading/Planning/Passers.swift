import Base
import Manifest

/// Threads of programs that go from file to file and read little of each: an unknown program that scans. Pure.
///
/// Each file that a program begins would give it the credit of a newcomer. One that begins many has that credit all the
/// time, and thirty of them leave a film that begins a thirtieth of the line. So who has passed by a few files has no
/// credit at the next one, until it has read on there. The kernel tells the thread that reads. Those in another PID
/// namespace all have the number 0: nothing is known of them.
struct Passers: Sendable {
  /// From so many files on.
  static let files = 3
  /// What is read of a file in passing, in bytes, at most.
  static let most: Int64 = Planner.streamLength
  /// Who begins no further file for so many seconds does not pass by any more.
  private static let longest = 20.0
  private static let kept = 256

  /// `keys`: of the last files, which count once.
  private var seen: [Int32: (files: Int, keys: [ResourceKey], last: Instant)] = [:]

  /// How many threads it remembers.
  var count: Int { seen.count }

  /// `runs` were the reads of the file `key` of `size` bytes, which was closed. Who read half of it did not pass by: a
  /// cover or subtitles are read whole before a film.
  mutating func closed(_ key: ResourceKey, _ runs: ReaderRuns, size: Int64, now: Instant) {
    var read: [Int32: Int64] = [:]
    for run in runs.runs where run.process > 0 && now.seconds(since: run.lastRead) < Self.longest {
      read[run.process, default: 0] += run.length
    }
    for (thread, bytes) in read {
      let keys = seen[thread]?.keys ?? []
      if bytes > Self.most {
        seen[thread] = nil
      } else if bytes < size / 2, !keys.contains(key) {
        seen[thread] = (passed(thread, now) + 1, keys.suffix(Self.files - 1) + [key], now)
      }
    }
    if seen.count > Self.kept { seen = seen.filter { now.seconds(since: $0.value.last) < Self.longest } }
  }

  /// Whether `thread`, which came to another file at `arrival`, passes by.
  func contains(_ thread: Int32, at arrival: Instant) -> Bool { passed(thread, arrival) >= Self.files }

  /// Whether all of them do; false for none.
  func containsAll(_ threads: some Collection<Int32>, at arrival: Instant) -> Bool {
    !threads.isEmpty && threads.allSatisfy { contains($0, at: arrival) }
  }

  /// Whether the reads of `run`, one of `runs` of the same file, are in passing.
  func contains(_ run: ReaderRuns.Run, of runs: ReaderRuns) -> Bool {
    contains(run.process, at: run.began)
      && !runs.runs.contains { $0.process == run.process && $0.length >= Self.most }
  }

  /// How many files it has passed by, one soon after the other.
  private func passed(_ thread: Int32, _ now: Instant) -> Int {
    // What it passed by later says nothing of a file to which it came before.
    seen[thread].map { (0..<Self.longest).contains(now.seconds(since: $0.last)) ? $0.files : 0 } ?? 0
  }
}
