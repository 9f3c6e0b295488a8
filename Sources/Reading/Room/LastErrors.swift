import Base
import Manifest

/// The last error of a resource, and when it happened.
struct LastError: Sendable, Equatable {
  var message: String
  var at: Instant
}

/// The last error of each resource, in memory only. An error is kept until bytes arrive for its resource.
struct LastErrors: Sendable {
  /// The most resources whose errors are kept. At this number ``note(_:of:)`` drops the older half.
  static let most = 1024

  private var errors: [ResourceKey: LastError] = [:]

  /// Errors that no bytes end: at most as many as the session memory has suspects.
  private var lasting: [ResourceKey: LastError] = [:]

  /// The last few different errors of each resource, the newest first, also after bytes arrived.
  private var histories: [ResourceKey: [LastError]] = [:]
  /// How many of each.
  private static let mostOfOne = 4

  /// What the log had last of each resource, and when.
  private var logged: [ResourceKey: LastError] = [:]
  /// After how many seconds it has the same again.
  private static let pause = 60.0

  func history(of key: ResourceKey) -> [LastError] { histories[key] ?? [] }

  subscript(key: ResourceKey) -> LastError? { errors[key] ?? lasting[key] }

  /// The resources that have an error.
  var keys: [ResourceKey] { Array(errors.keys) + lasting.keys.filter { errors[$0] == nil } }

  /// Notes an error that stays as long as the server.
  mutating func noteForGood(_ error: LastError, of key: ResourceKey) { lasting[key] = error }

  mutating func note(_ error: LastError, of key: ResourceKey) {
    if errors.count >= Self.most, errors[key] == nil {
      let kept = errors.sorted { $0.value.at > $1.value.at }.prefix(Self.most / 2)
      errors = Dictionary(uniqueKeysWithValues: Array(kept))
    }
    errors[key] = error
    if histories.count >= Self.most, histories[key] == nil {
      let kept = histories.sorted { ($0.value.first?.at ?? .never) > ($1.value.first?.at ?? .never) }
      histories = Dictionary(uniqueKeysWithValues: Array(kept.prefix(Self.most / 2)))
    }
    let others = (histories[key] ?? []).filter { $0.message != error.message }
    histories[key] = Array(([error] + others).prefix(Self.mostOfOne))
  }

  /// Whether the log is to have a message: a program that opens a file again and again has the same one once a minute.
  mutating func isNews(_ message: String, of key: ResourceKey, _ now: Instant) -> Bool {
    if let last = logged[key], last.message == message, now.seconds(since: last.at) < Self.pause { return false }
    if logged.count >= Self.most { logged = logged.filter { now.seconds(since: $0.value.at) < Self.pause } }
    if logged.count >= Self.most { logged = [:] }
    logged[key] = LastError(message: message, at: now)
    return true
  }

  mutating func forget(_ key: ResourceKey) { (errors[key], logged[key]) = (nil, nil) }
}
