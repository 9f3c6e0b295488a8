import Base
import Manifest

/// Programs that go from file to file: unknown programs that scan, or copy small files. Pure.
///
/// Each file that a program begins would give it the credit of a newcomer. One that begins many has that credit all the
/// time, and thirty of them leave a film that begins a thirtieth of the line. So who has passed by a few files has no
/// credit at the next one, until it has read more there than of those. A scanner may have a thread or a process for
/// each file. So a process is judged by its own files, and one that has had fewer than three by those of all that run
/// the same program. Nothing is known of those in another PID namespace.
struct Passers: Sendable {
  /// From so many files on.
  static let files = 3
  /// What is read of a file in passing, in bytes, at most: a newcomer's credit.
  static let credit = Playout.creditBytes
  /// A program that has read so many bytes of a file passes by there only if it read more of another.
  static let little: Int64 = Planner.streamLength
  /// Who begins no further file for so many seconds does not pass by any more.
  private static let longest = 20.0
  private static let kept = 256

  private struct Passer {
    var files = 0
    /// The last of them, which count once.
    var keys: [ResourceKey] = []
    /// The most that it read of one, in bytes.
    var most: Int64 = 0
    /// Since when it has passed by so many; nil: not yet.
    var since: Instant?
    var last: Instant
  }
  /// Those of processes, and those of programs.
  private var seen: [Int: Passer] = [:]
  /// With how many of them those that rest are removed.
  private var limit = Self.kept

  /// How many processes and programs it remembers.
  var count: Int { seen.count }

  /// The file `key` of `size` bytes was closed, of which each process and program had read so many bytes. `players`:
  /// those that showed a pace. Who read half of a short one did not pass by: a cover or subtitles are read whole before
  /// a film.
  mutating func closed(_ key: ResourceKey, read: [Int: Int64], players: Set<Int> = [], size: Int64, now: Instant) {
    for (program, bytes) in read {
      if bytes > Self.credit || players.contains(program) {
        seen[program] = nil
        continue
      }
      var passer = Passer(last: now)
      if let former = seen[program], now.seconds(since: former.last) < Self.longest { passer = former }
      guard bytes < size / 2 || bytes > Self.little, !passer.keys.contains(key) else { continue }
      passer.files += 1
      passer.most = max(passer.most, bytes)
      passer.keys = passer.keys.suffix(Self.files - 1) + [key]
      passer.last = now
      if passer.files == Self.files { passer.since = now }
      seen[program] = passer
    }
    guard seen.count > limit else { return }
    seen = seen.filter { now.seconds(since: $0.value.last) < Self.longest }
    limit = max(Self.kept, 2 * seen.count)
  }

  /// The bytes that each process and each program has read in sequence, in all runs of a file that are not long ago.
  static func read(_ runs: ReaderRuns, now: Instant, program: (Int32) -> Program) -> [Int: Int64] {
    var read: [Int: Int64] = [:]
    for run in runs.runs + runs.gone where run.process > 0 && now.seconds(since: run.lastRead) < longest {
      for number in program(run.process).numbers { read[number, default: 0] += run.length }
    }
    return read
  }

  /// What is known of `program`: of its process if that has closed three files, else of all processes of its name.
  private func passer(_ program: Program) -> Passer? {
    if let own = seen[program.process], own.files >= Self.files { return own }
    return seen[program.number]
  }

  /// Whether `program`, which came to another file at `arrival`, passes by. What it passed by later says nothing of a
  /// file to which it came before.
  func contains(_ program: Program, at arrival: Instant) -> Bool {
    guard let passer = passer(program), let since = passer.since else { return false }
    return since <= arrival && arrival.seconds(since: passer.last) < Self.longest
  }

  /// Whether all of them do; false for none.
  func containsAll(_ programs: some Collection<Program>, at arrival: Instant) -> Bool {
    !programs.isEmpty && programs.allSatisfy { contains($0, at: arrival) }
  }

  /// Whether the reads of `run`, one of `runs` of the same file, are in passing.
  func contains(_ run: ReaderRuns.Run, of runs: ReaderRuns, now: Instant, program: (Int32) -> Program) -> Bool {
    let mine = program(run.process)
    guard contains(mine, at: run.began), let passer = passer(mine) else { return false }
    let read = Self.read(runs, now: now, program: program)[mine.process] ?? 0
    return read < max(Self.little, passer.most)
  }
}
