import Base
import Storing
import Testing

@testable import Reading

/// What is learned of how programs look at files.
@Suite struct ProbeSetTables {
  private static let kibibyte: Int64 = 1 << 10

  private func look(_ head: Int64, _ tail: Int64 = 0) -> ProbeSet {
    ProbeSet(head: head * Self.kibibyte, tail: tail * Self.kibibyte)
  }

  @Test("A kind is the extension, in lower case")
  func kinds() {
    #expect(MediaKind.name(of: "a/Film.MKV") == "mkv")
    for path in ["a/film", "a.b/film", "film.", "film.averylongname", ""] { #expect(MediaKind.name(of: path) == nil) }
    #expect(MediaKind.hasTail("mp4") && !MediaKind.hasTail("txt") && !MediaKind.hasTail(nil))
  }

  @Test("One look tells what the next of its kind reads, and nothing of other kinds")
  func first() {
    var sets = ProbeSets()
    sets.looked(at: "mp4", look(122, 40))
    #expect(sets["mp4"] == look(124, 40))
    #expect(sets["mkv"] == nil && sets[nil] == nil)
  }

  @Test("The probe set follows most looks: one odd file changes little, a new habit all")
  func follows() throws {
    var sets = ProbeSets()
    for _ in 0..<10 { sets.looked(at: "mp4", look(100)) }
    sets.looked(at: "mp4", look(200))
    #expect(try #require(sets["mp4"]).head < 160 * Self.kibibyte)
    for _ in 0..<20 { sets.looked(at: "mp4", look(300)) }
    #expect(try #require(sets["mp4"]).head > 290 * Self.kibibyte)
    for _ in 0..<40 { sets.looked(at: "mp4", look(64)) }
    #expect(try #require(sets["mp4"]).head < 80 * Self.kibibyte)
  }

  @Test("A tail is fetched when most looks read one")
  func tails() throws {
    var sets = ProbeSets()
    sets.looked(at: "mp4", look(100, 40))
    sets.looked(at: "mp4", look(100))
    #expect(try #require(sets["mp4"]).tail > 0)
    for _ in 0..<5 { sets.looked(at: "mp4", look(100)) }
    #expect(try #require(sets["mp4"]).tail == 0)
    for _ in 0..<5 { sets.looked(at: "mp4", look(100, 40)) }
    #expect(try #require(sets["mp4"]).tail == 40 * Self.kibibyte)
  }

  @Test("Who reads more than a look does not teach; nor does one who read nothing of the head")
  func plays() {
    var sets = ProbeSets()
    sets.looked(at: "mp4", look(600))
    sets.looked(at: "mp4", look(0, 40))
    #expect(sets["mp4"] == nil)
  }

  @Test("The number of kinds is bounded: the one that was looked at longest ago goes")
  func bounded() {
    var sets = ProbeSets()
    for number in 0..<ProbeSets.most { sets.looked(at: "k\(number)", look(64)) }
    sets.looked(at: "k0", look(64))
    for number in 0..<10 { sets.looked(at: "new\(number)", look(64)) }
    for number in 1...10 { #expect(sets["k\(number)"] == nil) }
    #expect(sets["k0"] != nil && sets["k11"] != nil && sets["new9"] != nil)
  }

  private func note(_ name: String, _ head: Int64, _ tail: Int64, files: Int64 = 1, at: Int64 = 0) -> KindNote {
    KindNote(name: name, head: head, tail: tail, files: files, at: at)
  }

  @Test("A note of an earlier mount is taken over, and gives way to what this mount learned")
  func notes() throws {
    var before = ProbeSets()
    for _ in 0..<3 { before.looked(at: "mp4", look(100, 40)) }
    before.looked(at: "mkv", look(64))
    let mp4 = try #require(before.note(of: "mp4", at: 7))
    #expect(mp4 == note("mp4", 100 << 10, 40 << 10, files: 3, at: 7) && before.note(of: "avi", at: 7) == nil)
    var sets = ProbeSets()
    sets.looked(at: "mkv", look(32))
    sets.load([mp4, try #require(before.note(of: "mkv", at: 7))])
    #expect(sets["mp4"] == before["mp4"] && sets["mkv"] == look(32))
    sets.looked(at: "mp4", look(100, 40))
    #expect(sets.note(of: "mp4", at: 8) == note("mp4", 100 << 10, 40 << 10, files: 4, at: 8))
  }

  @Test("Of notes that make no sense nothing is believed that would cost bytes or end the program")
  func absurdNotes() throws {
    var sets = ProbeSets()
    sets.load([
      note("avi", .max, .max, files: .max, at: .max), note("ogg", 0, 0), note("wav", 1, -1), note("mp3", -1, 0),
      note("mka", 1, 0, files: .min, at: .min), note("avi", 1, 1),
    ])
    #expect(sets["avi"] == ProbeSet(head: ProbeSets.longest, tail: ProbeSets.longest))
    for kind in ["ogg", "wav", "mp3"] { #expect(sets[kind] == nil) }
    for _ in 0..<2 { for kind in ["avi", "mka"] { sets.looked(at: kind, look(64, 64)) } }
    #expect(sets.note(of: "avi", at: 1)?.files == .max && sets.note(of: "mka", at: 1)?.files == 3)
    // The latest count where there are too many.
    sets.load((0..<1000).map { note("k\($0)", 4096, 0, at: Int64($0)) }.shuffled())
    #expect(sets["k999"] != nil && sets["k0"] == nil && sets["avi"] != nil)
    #expect((0..<1000).count { sets["k\($0)"] != nil } == ProbeSets.most - 2)
  }

  @Test("A trace of reads tells the head from the tail and from what lies between")
  func trace() {
    let size: Int64 = 100 << 20
    var trace = LookTrace()
    #expect(trace.look == nil)
    // Read-ahead in another order than that of the file.
    for start: Int64 in [64, 0, 128] { trace.note(ByteRange(at: start << 10, count: 64 << 10), size: size) }
    trace.note(ByteRange(at: 50 << 20, count: 4096), size: size)
    trace.note(ByteRange(size - 40_000, size), size: size)
    trace.note(ByteRange(size - 128, size), size: size)
    #expect(trace.look == ProbeSet(head: 192 << 10, tail: 40_000))
    // It is played: that is no look.
    for start in stride(from: Int64(192 << 10), to: 2 << 20, by: 128 << 10) {
      trace.note(ByteRange(at: start, count: 128 << 10), size: size)
    }
    #expect(trace.look == nil)
  }
}
