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

  @Test func aPathIsMeantByTheTextThatStatusPrints() throws {
    try withRules(["Movie [1080p].mkv", "b.mkv"]) { (service, catalog) throws in
      for text in ["Movie [1080p].mkv", "Movie \\[1080p].mkv", "Movie \\[1080p\\].mkv"] {
        #expect(try service.rule(.keep, [text]).files == 1)
        #expect(try texts(service) == ["keep Movie \\[1080p].mkv"], "\(text)")
      }
      for text in ["Movie [1080p].mkv", "Movie \\[1080p].mkv", "Movie \\[1080p\\].mkv"] {
        _ = try service.rule(.keep, ["Movie [1080p].mkv"])
        _ = try service.rule(.auto, [text])
        #expect(try catalog.notes.rules().isEmpty, "\(text) ends it until the next mount only")
      }
      #expect(throws: ControlFailure.self) { try service.rule(.keep, ["Movie \\[720p].mkv"]) }
      // Its line leaves the list: the rule can still be ended.
      _ = try service.rule(.keep, ["Movie [1080p].mkv"])
      try catalog.list(["b.mkv"])
      _ = try service.rule(.auto, ["Movie \\[1080p\\].mkv"])
      #expect(try texts(service) == [])
    }
  }

  /// `x/123` is `x/123.mkv` by now, and its former name still leads to it.
  @Test func aRuleByAFormerNameIsForThePresentOne() throws {
    try withRules(["x/123", "b.mkv"], mayGain: ["x/123"]) { (service, catalog) throws in
      try catalog.changes.apply([.gainedExtension(ResourceKey(id: "x/123"), "mkv")], durably: true)
      try OpenedStore.settleNames(in: catalog)
      #expect(try service.rule(.keep, ["x/123"]).files == 1)
      #expect(try texts(service) == ["keep x/123.mkv"])
      _ = try service.rule(.auto, ["x/123"])
      #expect(try texts(service) == [])
      _ = try service.rule(.keep, ["x/123.mkv"])
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
