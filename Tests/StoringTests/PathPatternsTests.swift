import TestSupport
import Testing

@testable import Storing

/// The paths and patterns of a request.
@Suite struct PathPatternsTests {
  @Test func meetsWhatOneOfThemIsFor() throws {
    var random = SeededRandom(seed: 8)
    let texts = ["", "a", "b", "a/a", "a/b", "b/a/b", "*", "a*", "a/*", "*/a", "**/a/*", "b/**", "c", "a/c/*"]
    let files = ["a", "b", "a/a", "a/b", "b/a", "b/b/a", "a/a/a", "a/c", "b/a/b/c", "d"]
    for _ in 0..<2000 {
      var named = PathPatterns()
      var asked: [PathPattern] = []
      for _ in 0..<Int.random(in: 1...5, using: &random) {
        asked.append(try PathPattern(texts[Int.random(in: texts.indices, using: &random)]))
      }
      for pattern in asked { named.add(pattern) }
      let (said, folders) = (asked.map(\.text), named.folders)
      #expect(named.all.count == Set(said).count && named.wildCount == named.all.count { $0.path == nil }, "\(said)")
      let met = files.filter { _ in Bool.random(using: &random) }
      for file in met {
        let isMeant = asked.contains { $0.isFor(file) }
        #expect(named.meet(file) == isMeant, "\(file) of \(said)")
        let homes = folders.count { $0.isEmpty || $0 == file || file.hasPrefix($0 + "/") }
        #expect(homes <= 1 && (!isMeant || homes == 1), "\(file) lies in \(folders)")
      }
      let unmet = named.all.filter { pattern in !met.contains { pattern.isFor($0) } }
      #expect(named.unmet.map(\.text) == unmet.map(\.text), "\(said)")
    }
  }
}
