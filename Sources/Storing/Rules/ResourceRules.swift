import Manifest

/// Which rule decides about a resource that is listed at several paths.
extension Rules {
  /// The rule that decides about a resource that is listed at all of `paths`, of which the first one is asked about:
  /// the rule for that path if it says what holds, else the one for another path that does. nil if none does.
  package func rule(_ subject: RuleSubject, for paths: [String]) -> PathRule? {
    let verdict = verdict(for: paths)
    let value =
      switch subject {
      case .storage: verdict.storage.rawValue
      case .downloads: (verdict.isPaused ? DownloadRule.paused : .run).rawValue
      }
    let own = paths.first.flatMap { rule(subject, for: $0) }
    if own?.value ?? 0 == value { return own }
    return paths.dropFirst().lazy.compactMap { rule(subject, for: $0) }.first { $0.value == value && !$0.isDefault }
  }

  /// The rule that keeps a resource that is listed at all of `paths`; nil if none does.
  package func keeping(_ paths: [String]) -> PathRule? {
    rule(.storage, for: paths).flatMap { $0.value == StorageRule.keep.rawValue ? $0 : nil }
  }
}

extension CatalogTree {
  /// The paths of a resource, `path` first.
  package func names(of key: ResourceKey, first path: String) throws(StoreError) -> [String] {
    [path] + (try entries(of: key).map(\.path).filter { !$0.utf8.elementsEqual(path.utf8) })
  }
}
