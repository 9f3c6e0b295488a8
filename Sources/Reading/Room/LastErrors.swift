import Base
import Manifest

/// What went wrong with a resource, and when.
struct LastError: Sendable, Equatable {
  var message: String
  var at: Instant
}

/// The last error of each resource, from when it happens until bytes come again: as long as the server runs.
struct LastErrors: Sendable {
  /// Resources of which errors are kept at most. Beyond that the older half goes.
  static let most = 1024

  private var errors: [ResourceKey: LastError] = [:]

  subscript(key: ResourceKey) -> LastError? { errors[key] }

  /// The resources that have an error.
  var keys: [ResourceKey] { Array(errors.keys) }

  mutating func note(_ error: LastError, of key: ResourceKey) {
    if errors.count >= Self.most, errors[key] == nil {
      let kept = errors.sorted { $0.value.at > $1.value.at }.prefix(Self.most / 2)
      errors = Dictionary(uniqueKeysWithValues: Array(kept))
    }
    errors[key] = error
  }

  mutating func forget(_ key: ResourceKey) { errors[key] = nil }
}
