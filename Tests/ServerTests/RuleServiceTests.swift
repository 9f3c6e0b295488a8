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
}
