import Base
import Manifest
import Testing

@testable import Reading

/// Who goes from file to file. Each process runs a program of its own, if a test does not say otherwise.
@Suite struct PasserTables {
  private static func program(_ process: Int32) -> Program { Program(process: Int(process), number: Int(process)) }
  private let start = Instant(nanoseconds: 1_000_000_000)

  private func at(_ seconds: Double) -> Instant { start.adding(seconds: seconds) }

  /// Reads of `bytes` at the head of a file, by `process`.
  private func reads(_ bytes: Int64, by process: Int32, at second: Double) -> ReaderRuns {
    var runs = ReaderRuns()
    for offset in stride(from: 0, to: bytes, by: 64 << 10) {
      runs.note(offset: offset, count: min(64 << 10, bytes - offset), process: process, now: at(second))
    }
    return runs
  }

  private func key(_ number: Int) -> ResourceKey { ResourceKey(high: UInt64(number), low: 1) }
  private static let size: Int64 = 64 << 20

  /// `process` read so many bytes of the file `number`, which was closed then.
  private func close(
    _ passers: inout Passers, _ number: Int, _ bytes: Int64, by process: Int32 = 7, size: Int64 = size,
    isPaced: Bool = false, at second: Double
  ) {
    let read = Passers.read(reads(bytes, by: process, at: second), now: at(second), program: Self.program)
    passers.closed(key(number), read: read, players: isPaced ? [Int(process)] : [], size: size, now: at(second))
  }

  private func passing() -> Passers {
    var passers = Passers()
    for file in 0..<3 {
      #expect(!passers.contains(Self.program(7), at: at(Double(file))))
      close(&passers, file, 128 << 10, at: Double(file))
    }
    return passers
  }

  @Test("Who read little of three files, one soon after the other, passes by, until it reads on or rests")
  func passes() {
    let passers = passing()
    #expect(passers.contains(Self.program(7), at: at(3)) && !passers.contains(Self.program(8), at: at(3)))
    #expect(
      passers.containsAll([Self.program(7)], at: at(3)) && !passers.containsAll([7, 8].map(Self.program), at: at(3)))
    #expect(!passers.containsAll([], at: at(3)), "nobody waits")
    var rested = passers
    #expect(!rested.contains(Self.program(7), at: at(40)))
    close(&rested, 4, 4096, at: 40)
    #expect(!rested.contains(Self.program(7), at: at(40)), "it begins anew")
    for (bytes, isPaced) in [(2 << 20, true), (10 << 20, false)] as [(Int64, Bool)] {
      var readsOn = passers
      close(&readsOn, 4, bytes, isPaced: isPaced, at: 3)
      #expect(!readsOn.contains(Self.program(7), at: at(3)), "it plays, or read on")
    }
  }

  @Test("In a file of which it reads on it does not pass by, nor where it jumps there")
  func readsOn() throws {
    let passers = passing()
    var runs = reads(256 << 10, by: 7, at: 3)
    #expect(passers.contains(try #require(runs.runs.first), of: runs, now: at(4), program: Self.program))
    for offset in stride(from: Int64(256 << 10), to: 512 << 10, by: 64 << 10) {
      runs.note(offset: offset, count: 64 << 10, process: 7, now: at(3))
    }
    #expect(!passers.contains(try #require(runs.runs.first), of: runs, now: at(4), program: Self.program))
    runs.note(offset: 40 << 20, count: 64 << 10, process: 7, now: at(4))
    #expect(runs.runs.allSatisfy { !passers.contains($0, of: runs, now: at(4), program: Self.program) })
  }

  @Test("Who reads on in the last of them has its credit again, and what was passed by later says nothing of before")
  func readsOnLater() throws {
    var passers = passing()
    let before = reads(64 << 10, by: 7, at: 1)
    #expect(!passers.contains(try #require(before.runs.first), of: before, now: at(4), program: Self.program))
    close(&passers, 2, 10 << 20, at: 4)
    #expect(!passers.contains(Self.program(7), at: at(5)))
  }

  @Test("Two files that are opened for each chunk are two; a cover and subtitles that are read whole are none")
  func others() {
    var passers = Passers()
    for second in 0..<9 { close(&passers, second % 2, 64 << 10, at: Double(second)) }
    for sidecar in 2..<9 { close(&passers, sidecar, 32 << 10, size: 40_000, at: Double(sidecar)) }
    #expect(!passers.contains(Self.program(7), at: at(9)))
  }

  @Test("Nothing is known of threads without a number, nor of who opened a file and did not read it")
  func unknown() {
    var passers = Passers()
    for file in 0..<9 {
      close(&passers, file, 4096, by: 0, at: Double(file))
      passers.closed(key(file), read: [:], size: Self.size, now: at(Double(file)))
    }
    #expect(!passers.contains(Self.program(0), at: at(9)))
  }

  @Test("Who reads megabytes of each file, or copies small ones, passes by until it has read more of one")
  func muchOfEach() throws {
    for size in [Self.size, 2 << 20] {
      var passers = Passers()
      for file in 0..<3 { close(&passers, file, 2 << 20, size: size, at: Double(file)) }
      for (read, passes) in [(1 << 20, true), (2 << 20, false)] as [(Int64, Bool)] {
        let runs = reads(read, by: 7, at: 3)
        #expect(passers.contains(try #require(runs.runs.first), of: runs, now: at(4), program: Self.program) == passes)
      }
    }
  }

  @Test("A process that ended before its file was closed has passed by, too")
  func ended() {
    var runs = reads(128 << 10, by: 7, at: 0)
    runs.ended(7)
    #expect(runs.runs.isEmpty && Passers.read(runs, now: at(1), program: Self.program) == [7: 128 << 10])
    #expect(Passers.read(runs, now: at(30), program: Self.program).isEmpty)
  }

  @Test("Processes of one program pass by together, until they have had three files of their own")
  func together() throws {
    let program = { (process: Int32) in Program(process: Int(process), number: 5) }
    var passers = Passers()
    for file in 0..<40 {
      let runs = reads(4096, by: Int32(100 + file), at: Double(file))
      let read = Passers.read(runs, now: at(Double(file)), program: program)
      passers.closed(key(file), read: read, size: Self.size, now: at(Double(file)))
    }
    // Others begin and end files meanwhile.
    let contains = { (passers: Passers, process: Int32, second: Double) in
      passers.contains(program(process), at: at(second))
    }
    #expect(!contains(passers, 7, 1) && contains(passers, 7, 3) && contains(passers, 7, 40))
    #expect(!contains(passers, 7, 60))
    // On a slow line each of many scanners has closed few files.
    for file in 0..<2 { close(&passers, file, 4096, by: 8, at: 39 + Double(file)) }
    #expect(contains(passers, 8, 40.5) && contains(passers, 7, 40.5))
    // A player's threads are one process.
    var runs = reads(256 << 10, by: 7, at: 40)
    for offset in stride(from: Int64(40 << 20), to: 41 << 20, by: 64 << 10) {
      runs.note(offset: offset, count: 64 << 10, process: 9, now: at(40))
    }
    let one = { (_: Int32) in Program(process: 7, number: 5) }
    #expect(!passers.contains(try #require(runs.runs.first), of: runs, now: at(40), program: one))
    #expect(passers.contains(try #require(runs.runs.first), of: runs, now: at(40), program: program))
  }

  @Test("Many threads with a file each are forgotten, and none of those that go on")
  func forgets() {
    var passers = Passers()
    for file in 0..<4000 {
      let second = Double(file) * 0.05
      close(&passers, file, 4096, by: Int32(100 + file), at: second)
      if file % 10 == 0 { close(&passers, file, 4096, at: second) }
    }
    #expect(passers.contains(Self.program(7), at: at(200)))
    #expect(passers.count < 1000, "\(passers.count)")
  }
}
