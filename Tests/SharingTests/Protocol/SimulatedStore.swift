@testable import Sharing

/// An object store with conditional writes. Writers of one key at the same moment may queue as SeaweedFS has them do:
/// who comes while another writes tries again a second later.
struct SimulatedStore {
  enum Key: Hashable {
    case block(Int), lease(Int), claim(Int, Int), format
  }

  enum Value: Hashable {
    case bytes(version: Int), lease(Lease), claim(node: Int)
  }

  struct Object {
    var value: Value
    var version: Int
    /// Until when a writer is at it.
    var busyUntil: Int64 = 0
  }

  enum Outcome {
    case done(Int), refused, busy
  }

  let writersQueue: Bool
  private(set) var objects: [Key: Object] = [:]
  private var busy: [Key: Int64] = [:]
  private var versions = 0
  /// Blocks whose bytes were replaced by others.
  private(set) var overwritten = 0
  private(set) var blocks = 0

  // How often each key was asked for in this second, the most of any second, and which key that was.
  private var second: Int64 = -1
  private var counts: [Key: Int] = [:]
  private(set) var hottest = 0
  private(set) var hottestKey: Key?
  private(set) var busiestSecond = 0
  private var inSecond = 0

  init(writersQueue: Bool) { self.writersQueue = writersQueue }

  mutating func count(_ key: Key, now: Int64) {
    if now / 1_000_000 != second {
      second = now / 1_000_000
      counts.removeAll(keepingCapacity: true)
      inSecond = 0
    }
    inSecond += 1
    busiestSecond = max(busiestSecond, inSecond)
    counts[key, default: 0] += 1
    if let count = counts[key], count > hottest { (hottest, hottestKey) = (count, key) }
  }

  func read(_ key: Key) -> Object? { objects[key] }

  /// `version` nil: only if absent.
  mutating func write(_ key: Key, _ value: Value, replacing version: Int?, now: Int64) -> Outcome {
    if writersQueue, let until = busy[key], until > now { return .busy }
    if writersQueue { busy[key] = now + 10_000 }
    guard objects[key]?.version == version else { return .refused }
    if case .block = key {
      if objects[key] != nil { overwritten += 1 }
      blocks += 1
    }
    versions += 1
    objects[key] = Object(value: value, version: versions)
    return .done(versions)
  }
}
