import Control
import Manifest
import Reading
import TestSupport
import Testing

@testable import Server
@testable import Storing

/// Rules over the control socket of a running file system: what its memory has is what the next mount finds.
@Suite struct RuleServiceTests {
  /// A file system over a list of these paths. After `body`, the catalog must have the rules that hold.
  private func withRules(
    _ paths: [String], mayGain: Set<String> = [], _ body: (ControlService, Catalog) throws -> Void
  ) throws {
    try withTemporaryFolder { folder in
      let opened = try StoreFolder.open(folder.file("store"), mountpoint: "/nowhere", wait: 0)
      let catalog = try Catalog.open(path: opened.catalogPath, access: .readWrite)
      try catalog.list(paths, mayGain: mayGain)
      try withService(of: catalog, opened, try LibraryFolder(folder.file("library"))) { service in
        try body(service, catalog)
        let stored = try catalog.notes.rules().all.map { AppliedRule($0) }
        let held = try service.totals(StatusQuery())
        #expect(held.ruleCount == stored.count && held.rules == Array(stored.prefix(ControlLimits.shown)))
      }
    }
  }

  private func texts(_ service: ControlService) throws -> [String] {
    try (service.totals(StatusQuery()).rules ?? []).map { "\($0.word) \($0.pattern)" }
  }

  @Test func oneWalkCountsForAllPatterns() throws {
    let paths = (0..<3000).map { "\($0 % 300)/\($0).mkv" }
    let named = (0..<200).map { "*\($0).mkv" } + ["0", "0/0.mkv", "1/*.txt", "1", "1"]
    let patterns = try named.map { try PathPattern($0) }
    try withRules(paths) { (service, catalog) throws in
      let before = catalog.connections.runs
      // Not `keep`: the keeper begins to fetch what is kept, and its statements count with the request's.
      let report = try service.say(.online, named)
      let runs = catalog.connections.runs - before
      // A few for each path, each rule and each folder.
      #expect(runs < 5000, "\(runs) statements")
      #expect(report.files == Int64(paths.count { path in patterns.contains { $0.isFor(path) } }), "\(report)")
      #expect(report.unmatched == ["1/*.txt"], "\(report)")
    }
  }

  @Test func aPatternBelowTheMountpointIsForTheRoot() throws {
    try withRules(["a.mkv", "x/b.mkv"]) { (service, _) throws in
      #expect(try service.say(.keep, ["/*.mkv"]).files == 1)
      #expect(try service.say(.online, ["*.mkv"]).files == 2)
      #expect(try texts(service) == ["keep /*.mkv", "online *.mkv"])
      #expect(try service.say(.auto, ["/*.mkv", "*.mkv"]).files == 2)
      #expect(try service.say(.keep, ["/a.mkv"]).files == 1)
      #expect(try texts(service) == ["keep a.mkv"])
      let missing = #expect(throws: ControlFailure.self) { try service.say(.keep, ["/c.mkv"]) }
      #expect(missing?.message.hasPrefix("the mount has no c.mkv") == true)
    }
  }

  @Test func aRequestHasSoManyPatterns() throws {
    try withRules(["a"]) { (service, _) throws in
      let many = (0...Rules.mostPatterns).map { "\($0)*" }
      for word in RuleWord.allCases {
        let refused = #expect(throws: ControlFailure.self) { try service.say(word, many) }
        #expect(refused?.message.contains("at most \(Rules.mostPatterns)") == true)
      }
      #expect(throws: ControlFailure.self) { try service.cancel(many) }
      #expect(try service.cancel(Array(many.dropLast())) == ClearReport())
    }
  }

  @Test func nothingIsCountedForNobody() throws {
    try withRules((0..<3000).map { "\($0 % 3)/\($0)" }) { (service, catalog) throws in
      var looks = 0
      let left = #expect(throws: ControlFailure.self) {
        try service.rule(.keep, [""]) {
          looks += 1
          return looks == 3
        }
      }
      #expect(left?.kind == .gone && looks == 3)
      #expect(try texts(service) == ["keep "], "the rule holds all the same")
    }
  }

  @Test func aPathIsMeantByTheTextThatStatusPrints() throws {
    try withRules(["Movie [1080p].mkv", "b.mkv"]) { (service, catalog) throws in
      for text in ["Movie [1080p].mkv", "Movie \\[1080p].mkv", "Movie \\[1080p\\].mkv"] {
        #expect(try service.say(.keep, [text]).files == 1)
        #expect(try texts(service) == ["keep Movie \\[1080p].mkv"], "\(text)")
      }
      for text in ["Movie [1080p].mkv", "Movie \\[1080p].mkv", "Movie \\[1080p\\].mkv"] {
        _ = try service.say(.keep, ["Movie [1080p].mkv"])
        _ = try service.say(.auto, [text])
        #expect(try catalog.notes.rules().isEmpty, "\(text) ends it until the next mount only")
      }
      #expect(throws: ControlFailure.self) { try service.say(.keep, ["Movie \\[720p].mkv"]) }
      // Its line leaves the list: the rule can still be ended.
      _ = try service.say(.keep, ["Movie [1080p].mkv"])
      try catalog.list(["b.mkv"])
      _ = try service.say(.auto, ["Movie \\[1080p\\].mkv"])
      #expect(try texts(service) == [])
    }
  }

  /// `x/123` is `x/123.mkv` by now, and its former name still leads to it.
  @Test func aRuleByAFormerNameIsForThePresentOne() throws {
    try withRules(["x/123", "b.mkv"], mayGain: ["x/123"]) { (service, catalog) throws in
      try catalog.changes.apply([.gainedExtension(ResourceKey(id: "x/123"), "mkv")], durably: true)
      try OpenedStore.settleNames(in: catalog)
      #expect(try service.say(.keep, ["x/123"]).files == 1)
      #expect(try texts(service) == ["keep x/123.mkv"])
      _ = try service.say(.auto, ["x/123"])
      #expect(try texts(service) == [])
      _ = try service.say(.keep, ["x/123.mkv"])
      try catalog.changes.apply([.pinned(ResourceKey(id: "x/123"), true)], durably: true)
      #expect(try service.cancel(["x/123"]).kept.map(\.path) == ["x/123.mkv"])
    }
  }

  /// A server that was killed between the two leaves rules for names that no entry has.
  @Test func rulesFollowTheirNamesAtTheNextMountToo() throws {
    try withRules(["123", "456", "789"], mayGain: ["123", "456"]) { _, catalog in
      func keep(_ path: String, _ value: StorageRule, _ number: Int64) -> CatalogChange {
        .rule(
          .set(PathRule(subject: .storage, pattern: PathPattern(path: path), value: value.rawValue, number: number)))
      }
      let gained = ["123", "456"].map { CatalogChange.gainedExtension(ResourceKey(id: $0), "mkv") }
      try catalog.changes.apply(
        gained + [keep("123", .keep, 1), keep("456", .keep, 2), keep("789", .keep, 3)], durably: true)
      #expect(try catalog.tree.applyPendingExtensions() == 2)
      try catalog.changes.apply([keep("456.mkv", .online, 4)], durably: true)
      try OpenedStore.settleNames(in: catalog)
      let rules = try catalog.notes.rules().all
      #expect(rules.map(\.pattern.text) == ["123.mkv", "789", "456.mkv"] && rules.map(\.value) == [1, 1, 2])
      try catalog.changes.apply(rules.map { .rule(.remove(.storage, $0.pattern)) }, durably: true)
    }
  }
}

extension ControlService {
  /// Says `word`, and waits for the answer.
  fileprivate func say(_ word: RuleWord, _ paths: [String]) throws(ControlFailure) -> RuleReport {
    try rule(word, paths) { false }
  }
}
