import Testing

@testable import Storing

/// Which rule decides about a resource that is listed at several paths.
@Suite struct ResourceRuleTables {
  @Test(
    "The rule that decides is one that says what holds of the whole resource",
    arguments: [
      (RuleSubject.storage, 1, nil, "a"), (.storage, nil, 1, "b"), (.storage, nil, nil, nil), (.storage, 1, 1, "a"),
      // Online only if all are.
      (.storage, 2, nil, nil), (.storage, nil, 2, nil), (.storage, 2, 2, "a"), (.storage, 2, 1, "b"),
      (.storage, 0, nil, "a"), (.storage, nil, 0, nil), (.storage, 0, 1, "b"), (.storage, 0, 2, "a"),
      // Paused only if all are.
      (.downloads, 1, nil, nil), (.downloads, nil, 1, nil), (.downloads, 1, 1, "a"), (.downloads, 0, 1, "a"),
    ] as [(RuleSubject, Int64?, Int64?, String?)])
  func decides(_ subject: RuleSubject, _ first: Int64?, _ second: Int64?, _ deciding: String?) {
    var rules = Rules()
    for (path, value) in [("a", first), ("b", second)] {
      guard let value else { continue }
      rules.set(PathRule(subject: subject, pattern: PathPattern(path: path), value: value, number: 1))
    }
    let rule = rules.rule(subject, for: ["a", "b"])
    #expect(rule?.pattern.path == deciding)
    let verdict = rules.verdict(for: ["a", "b"])
    switch subject {
    case .storage:
      #expect(verdict.storage.rawValue == rule?.value ?? 0)
      #expect((rules.keeping(["a", "b"]) != nil) == (verdict.storage == .keep))
    case .downloads: #expect(verdict.isPaused == (rule?.value == 1))
    }
  }
}
