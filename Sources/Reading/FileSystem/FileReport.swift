import Base
import Manifest
import Storing

/// The state of one file, for `status` and the extended attributes.
public struct FileReport: Sendable {
  /// What a file is.
  public enum State: String, Sendable {
    /// Nothing of it is stored.
    case remote
    /// Some of it is.
    case partial
    /// All of it, verified, in the library.
    case complete
    /// The origin (or the store) failed for good.
    case failed
    /// A user changed the copy in the library: it is theirs.
    case modified
  }

  /// Its path in the mount.
  public var path: String
  /// What it is.
  public var state: State
  /// Stored bytes.
  public var stored: Int64
  /// Bytes, when known.
  public var size: Int64?
  /// What is stored.
  public var ranges: ByteRangeSet
  /// Bytes a second of late.
  public var rate: Double
  /// Transfers under way.
  public var transfers: Int
  /// What went wrong last.
  public var error: String?
}

extension MediaFileSystem {
  /// The state of a file that is in memory; nil when only the catalog knows it.
  public func liveReport(on node: Node, path: String) throws(Errno) -> FileReport? {
    guard let content = engine.table.withLock({ $0.contents[node.inode] ?? $0.current[node.key] }) else { return nil }
    return try report(on: content, path: path)
  }

  /// The state of a file of the tree.
  public func report(on node: Node) throws(Errno) -> FileReport {
    let path = try engine.io { () throws(StoreError) in try store.catalog.path(of: node.inode) } ?? node.name
    if let live = try liveReport(on: node, path: path) { return live }
    let generation = try engine.io { () throws(StoreError) in try store.catalog.generation(current: node.key) }
    let problem = try engine.io { () throws(StoreError) in try store.catalog.problem(of: node.key) }
    return try engine.io { () throws(StoreError) in
      try FileReport(path: path, generation: generation, problem: problem, library: store.library)
    }
  }

  private func report(on content: Content, path: String) throws(Errno) -> FileReport {
    let (stored, size, activity, generation, phase) = content.guarded.withLock { guarded in
      (guarded.state.stored, guarded.state.size, guarded.activity, guarded.generation, guarded.phase)
    }
    var state: FileReport.State = stored.isEmpty ? .remote : .partial
    if phase == .complete, let copy = generation?.copy {
      let check = try engine.io { () throws(StoreError) in try store.library.check(copy) }
      state = check == .intact ? .complete : check == .missing ? .remote : .modified
    }
    if activity.isFailed { state = .failed }
    var error = activity.error
    if state == .modified, error == nil, let copy = generation?.copy {
      error = "the copy \(store.library.path)/\(copy.path) was changed"
    }
    return FileReport(
      path: path, state: state, stored: state == .remote ? 0 : stored.count, size: size,
      ranges: state == .remote ? ByteRangeSet() : stored, rate: activity.rate, transfers: activity.transfers,
      error: error)
  }
}

extension FileReport {
  /// What the catalog alone says, with no server running.
  public init(
    path: String, generation: GenerationRecord?, problem: String?, library: LibraryFolder
  ) throws(StoreError) {
    var state: State = .remote
    var ranges = ByteRangeSet()
    if let generation {
      ranges = generation.stored
      if generation.state == .complete, let copy = generation.copy {
        switch try library.check(copy) {
        case .intact:
          state = .complete
          ranges = ByteRangeSet(ByteRange(0, copy.size))
        case .modified: state = .modified
        case .missing: ranges = ByteRangeSet()
        }
      } else if !ranges.isEmpty {
        state = .partial
      }
    }
    if problem != nil, state != .complete { state = .failed }
    self.init(
      path: path, state: state, stored: ranges.count, size: generation?.size, ranges: ranges, rate: 0, transfers: 0,
      error: problem)
  }
}
