import Base
import Manifest
import TestSupport
import Testing

@testable import Media
@testable import Reading
@testable import Storing

/// Which file comes next, and what is fetched of it.
@Suite struct NextTables {
  @Test(
    "Digits count as numbers, case does not count",
    arguments: [
      ["1.mp3", "2.mp3", "10.mp3"], ["01.mp3", "2.mp3", "010.mp3"], ["a 9 b", "a 10 a", "a 10 b"],
      ["Show S01E09.mkv", "show s01e10.mkv", "Show S02E01.mkv", "Show S10E01.mkv"], ["e1.mkv", "e1a.mkv", "e2.mkv"],
      ["a", "B", "c"], ["a", "a1", "ab"], ["", "0", "00", "1", "a"], ["A", "a"], ["007", "7a", "8"],
      ["99999999999999999999999", "100000000000000000000000"], ["Ünder 2", "Ünder 10"], ["x01", "x1"],
    ])
  func naturalOrder(_ names: [String]) {
    for first in names.indices {
      for second in names.indices {
        #expect(
          NaturalOrder.isAscending(names[first], names[second]) == (first < second),
          "\(names[first]) before \(names[second])")
      }
    }
  }

  @Test("It is a strict order of random names")
  func randomNames() {
    var random = SeededRandom(seed: 11)
    let letters = Array("0019aAb.")
    let names = Set(
      (0..<80).map { _ in
        String((0..<Int.random(in: 0...5, using: &random)).map { _ in letters[Int.random(in: 0..<8, using: &random)] })
      })
    let sorted = names.sorted(by: NaturalOrder.isAscending)
    for (index, name) in sorted.enumerated() {
      for other in sorted[(index + 1)...] {
        #expect(
          NaturalOrder.isAscending(name, other) && !NaturalOrder.isAscending(other, name), "\(name) and \(other)")
      }
    }
  }

  private func following(_ name: String, _ names: [String], _ count: Int = 2) throws -> [String] {
    let nodes = names.enumerated().map { index, name in
      Node(
        entry: Int64(index + 2), inode: Inode(index + 2), parent: 1, kind: .file, name: name,
        key: ResourceKey(high: 1, low: UInt64(index)), size: nil, modified: nil)
    }
    let node = try #require(nodes.first { $0.name == name })
    return NextInFolder.following(node, in: nodes, count: count).map(\.name)
  }

  @Test("The list's order counts, unless a program sorted it; covers and subtitles do not count")
  func order() throws {
    #expect(try following("b.mp3", ["c.mp3", "b.mp3", "a.mp3", "d.mp3"]) == ["a.mp3", "d.mp3"])
    #expect(try following("9.mp3", ["1.mp3", "10.mp3", "11.mp3", "9.mp3"]) == ["10.mp3", "11.mp3"])
    #expect(try following("A9.mp3", ["a1.mp3", "A10.mp3", "a11.mp3", "A9.mp3"]) == ["A10.mp3", "a11.mp3"])
    #expect(try following("e1.mkv", ["e1.mkv", "e1.srt", "e2.mp4", "e2.srt", "e3.mkv"]) == ["e2.mp4", "e3.mkv"])
    #expect(try following("a.bin", ["a.bin", "b.txt", "c.bin", "d", "e.mp4"]) == ["c.bin"])
    #expect(try following("a.mp3", ["b.mp3", "a.mp3"]) == [])
    #expect(try following("z.mp3", ["b.mp3", "z.mp3"]) == [])
    #expect(try following("1.mp3", ["1.mp3", "2.mp3", "3.mp3", "4.mp3"], 3) == ["2.mp3", "3.mp3", "4.mp3"])
  }

  @Test("What is fetched: what programs first read, and 20 seconds, by the index if it is known")
  func ranges() {
    let size: Int64 = 100 << 20
    let probes = ProbeSet(head: 300_000, tail: 40_000)
    let tail = ByteRange(size - 40_000, size)
    func ranges(_ film: FilmIndex?, _ needs: [ByteRange], _ rate: Double?) -> [ByteRange] {
      AheadGoal.ranges(size: size, probes: probes, film: film, needs: needs, rate: rate)
    }
    #expect(ranges(nil, [], 1e6) == [ByteRange(0, 300_000), tail, ByteRange(0, 20_300_000)])
    #expect(ranges(nil, [], nil) == [ByteRange(0, 300_000), tail, ByteRange(0, 5_300_000)])
    #expect(ranges(nil, [], 1e30).last == ByteRange(0, size))
    // What its index needs, but neither bytes behind its end, nor an index that is larger than any.
    let index = ByteRange(90_000_000, 90_500_000)
    #expect(ranges(nil, [index], 1e6).contains(index))
    #expect(ranges(nil, [ByteRange(size - 1, size + 9)], 1e6).count == 3)
    #expect(ranges(nil, [ByteRange(0, 9 << 20)], 1e6).count == 3)
    // Tracks that lie apart: the first seconds of each.
    let lanes = [
      FilmIndex.Lane(starts: [1000, 2_000_000, 4_000_000], ends: [2_000_000, 4_000_000, 6_000_000]),
      FilmIndex.Lane(starts: [50_000_000, 50_100_000, 50_200_000], ends: [50_100_000, 50_200_000, 50_300_000]),
    ]
    let film = FilmIndex(duration: 60, slot: 15, lanes: lanes, isExact: true)
    #expect(
      ranges(film, [], 1e9) == [
        ByteRange(0, 300_000), tail, ByteRange(1000, 4_000_000), ByteRange(50_000_000, 50_200_000),
      ])
    #expect(AheadGoal.ranges(size: 1000, probes: probes, film: nil, needs: [], rate: 1).allSatisfy { $0.end <= 1000 })
    #expect(AheadGoal.ranges(size: 0, probes: probes, film: nil, needs: [], rate: 1).isEmpty)
  }

  @Test("What is left to play: no more was shown than was read, and than time has passed")
  func left() {
    let film = FilmIndex(
      duration: 100, slot: 50, lanes: [.init(starts: [0, 500], ends: [500, 1000])], isExact: true)
    let began = Instant(nanoseconds: 1_000_000_000)
    var runs = ReaderRuns()
    runs.note(offset: 0, count: 800, process: 7, now: began)
    var play = PlayWatch.Play(run: runs.runs[0], pace: nil, since: began)
    #expect(play.left(film, size: 1000, now: began.adding(seconds: 10)) == 90)
    #expect(play.left(film, size: 1000, now: began.adding(seconds: 95)) == 20)
    #expect(play.left(nil, size: 1000, now: began) == nil)
    play.pace = 10
    #expect(play.left(nil, size: 1000, now: began) == 20)
    play.run = nil
    #expect(play.left(film, size: 1000, now: began.adding(seconds: 30)) == 70)
    #expect(play.left(nil, size: 1000, now: began) == nil)
  }
}
