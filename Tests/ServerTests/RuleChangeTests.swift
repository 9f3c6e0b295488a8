import Base
import Storing
import Testing

@testable import Server

/// What a request for rules changes.
@Suite struct RuleChangeTests {
  private func said(_ words: [(subject: RuleSubject, value: Int64, path: String)]) throws -> (
    rules: Rules, changes: Int
  ) {
    var rules = Rules()
    var changes = 0
    for word in words {
      let result = try RuleService.changed(rules, word.subject, word.value, [PathPattern(word.path)])
      changes = result.changes.count
      // The changes lead to the same rules as those that are returned.
      for change in result.changes {
        switch change {
        case .set(let rule): rules.set(rule)
        case .remove(let subject, let pattern): rules.remove(subject, pattern)
        }
      }
      #expect(rules.all.map(\.pattern.text) == result.rules.all.map(\.pattern.text))
      #expect(rules.all.map(\.value) == result.rules.all.map(\.value))
    }
    return (rules, changes)
  }

  @Test func autoEndsARuleAndLeavesNothingBehind() throws {
    let ended = try said([(.storage, 1, "shows"), (.storage, 0, "shows")])
    #expect(ended.rules.isEmpty && ended.changes == 1)
    #expect(try said([(.storage, 0, "shows")]).changes == 0, "a rule for what holds anyway")
  }

  @Test func autoWithinAKeptFolderIsAnExceptionUntilTheFolderIsAutoToo() throws {
    let kept = try said([(.storage, 1, "shows"), (.storage, 0, "shows/s1")]).rules
    #expect(kept.verdict(for: "shows/s1/a").storage == .auto && kept.verdict(for: "shows/b").storage == .keep)
    #expect(try said([(.storage, 1, "shows"), (.storage, 0, "shows/s1"), (.storage, 0, "shows")]).rules.isEmpty)
  }

  @Test func autoForAFolderLeavesAMoreSpecificRule() throws {
    let rules = try said([(.storage, 2, ""), (.storage, 1, "shows/s1"), (.storage, 0, "shows")]).rules
    #expect(rules.verdict(for: "shows/s1/a").storage == .keep)
    #expect(rules.verdict(for: "shows/b").storage == .auto)
    #expect(rules.verdict(for: "movies/c").storage == .online)
  }

  @Test func resumeOfTheMountLeavesNothingPausedAndNoStorageRuleChanged() throws {
    let rules = try said([
      (.downloads, 1, "shows"), (.downloads, 1, "*.mkv"), (.storage, 1, "shows"), (.downloads, 0, ""),
    ]).rules
    #expect(rules.all.map(\.subject) == [.storage])
  }

  /// The catalog finds a rule by its text: a row of another text for the same path would be back at the next mount.
  @Test(arguments: [0, 2] as [Int64]) func aRuleGoesUnderTheTextThatItWasGivenAs(value: Int64) throws {
    let typed = try PathPattern("a \\[1\\].mkv")
    let rules = Rules([PathRule(subject: .storage, pattern: typed, value: 1, number: 1)])
    let changes = try RuleService.changed(rules, .storage, value, [PathPattern(path: "a [1].mkv")]).changes
    guard case .remove(.storage, let gone) = changes.first else { throw Errno.notFound }
    #expect(gone.text == typed.text && changes.count == (value == 0 ? 1 : 2))
  }

  @Test func thereIsABound() throws {
    let patterns = try (0...Rules.mostPatterns).map { try PathPattern("\($0)*") }
    #expect(throws: (any Error).self) { try RuleService.changed(Rules(), .storage, 1, patterns) }
    let paths = (0...Rules.most).map { PathPattern(path: "\($0)") }
    #expect(throws: (any Error).self) { try RuleService.changed(Rules(), .storage, 1, paths) }
    let full = try RuleService.changed(Rules(), .storage, 1, Array(paths.dropLast())).rules
    #expect(full.all.count == Rules.most)
    #expect(try RuleService.changed(full, .storage, 0, [paths[0]]).rules.all.count == Rules.most - 1)
  }

  /// A look at all rules for each path would take an hour.
  @Test func manyRulesEndAtOnce() throws {
    let paths = (0..<50_000).map { PathPattern(path: "shows/\($0)") }
    let kept = Rules(paths.enumerated().map { PathRule(subject: .storage, pattern: $1, value: 1, number: Int64($0)) })
    let ended = try RuleService.changed(kept, .storage, 0, paths)
    #expect(ended.rules.isEmpty && ended.changes.count == paths.count)
    var folder = kept
    folder.set(PathRule(subject: .storage, pattern: PathPattern(path: "shows"), value: 2, number: 60_000))
    let excepted = try RuleService.changed(folder, .storage, 0, paths).rules
    #expect(excepted.count == paths.count + 1 && excepted.verdict(for: "shows/7/a").storage == .auto)
    #expect(excepted.verdict(for: "shows/a").storage == .online)
  }
}
