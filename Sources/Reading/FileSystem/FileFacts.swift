import Base
import Glibc
import Manifest
import Storing

/// The facts from which a ``FileReport`` is derived. Unknown facts are left out.
struct FileFacts: Sendable {
  /// The state of the completed copy.
  enum Copy: Sendable, Equatable {
    case intact
    /// A user changed it. Its path.
    case modified(String)
    /// A user removed it.
    case missing
    /// Its library does not exist. The library's path.
    case unreachable(String)
  }

  /// What only a running server knows.
  struct Server: Sendable {
    /// Whether the store or its disk is at its limit.
    var lacksSpace: Bool
    /// Whether a file that is not in memory will be resumed when its turn comes.
    var isWanted: Bool
  }

  var size: Int64?
  /// The stored ranges; the whole file while there is a copy.
  var stored = ByteRangeSet()
  /// nil: the file was not completed.
  var copy: Copy?
  /// The error in the catalog: the download failed for good.
  var problem: LastError?
  /// The last error in the server's memory.
  var lastError: LastError?
  /// nil: no server runs, or the transfer thread has not looked at the file.
  var activity: Activity?
  /// nil: no server runs.
  var server: Server?

  init() {}

  /// What the catalog says. `library`: nil when its folder is not there.
  init(
    _ generation: GenerationRecord?, _ problem: NotedProblem?, library: LibraryFolder?, libraryPath: String,
    now: Instant
  ) throws(StoreError) {
    self.problem = problem.map { LastError($0, now: now) }
    guard let generation else { return }
    size = generation.size
    stored = generation.stored
    guard generation.state == .complete, let copy = generation.copy else { return }
    stored = ByteRangeSet(ByteRange(0, copy.size))
    self.copy = try Copy(copy, library, path: libraryPath)
  }
}

extension FileFacts.Copy {
  init(_ copy: LibraryCopy, _ library: LibraryFolder?, path: String) throws(StoreError) {
    guard let library else {
      self = .unreachable(path)
      return
    }
    switch try library.check(copy) {
    case .intact: self = .intact
    case .modified: self = .modified("\(path)/\(copy.path)")
    case .missing: self = .missing
    }
  }
}

extension LastError {
  /// The catalog's error, whose time is by the wall clock. If that clock was set back, the error counts as new.
  init(_ problem: NotedProblem, now: Instant) {
    let age = max(0, Int64(time(nil)) - problem.at)
    self.init(message: problem.message, at: now.adding(seconds: -Double(min(age, 1 << 32))))
  }
}

extension FileReport {
  /// What the catalog says with no server running. `library`: nil when its folder is not there.
  package init(
    path: String, generation: GenerationRecord?, problem: NotedProblem?, library: LibraryFolder?, libraryPath: String
  ) throws(StoreError) {
    let now = Instant.now
    let facts = try FileFacts(generation, problem, library: library, libraryPath: libraryPath, now: now)
    self.init(path: path, facts, now: now)
  }
}

extension MediaFileSystem {
  /// The state of a file in memory; nil when only the catalog knows it.
  package func liveReport(on node: Node, path: String) throws(Errno) -> FileReport? {
    guard let content = room.table.withLock({ $0.contents[node.inode] ?? $0.current[node.key] }) else { return nil }
    var facts = FileFacts()
    let (isComplete, generation, isWanted) = content.guarded.withLock { guarded in
      facts.stored = guarded.held.stored
      facts.size = guarded.held.size
      facts.activity = guarded.activity
      return (guarded.held.isCopy, guarded.held.generation, room.goesOn(guarded.held.generation, guarded.held.isPinned))
    }
    facts.lastError = room.table.withLock { $0.errors[content.key] }
    facts.server = FileFacts.Server(lacksSpace: room.health.intake != .everything, isWanted: isWanted)
    if facts.activity == nil {
      let problem = try room.io { () throws(StoreError) in try store.catalog.problem(of: content.key) }
      facts.problem = problem.map { LastError($0, now: room.clock.now) }
    }
    if isComplete, let copy = generation?.copy {
      facts.copy = try room.io { () throws(StoreError) in
        try FileFacts.Copy(copy, store.library, path: store.library.path)
      }
    }
    return FileReport(path: path, facts, now: room.clock.now)
  }

  /// The state of a file that is not in memory, from what the catalog knows.
  package func report(
    on node: Node, path: String, generation: GenerationRecord?, problem: NotedProblem?
  ) throws(StoreError) -> FileReport {
    let now = room.clock.now
    var facts = try FileFacts(generation, problem, library: store.library, libraryPath: store.library.path, now: now)
    facts.lastError = room.table.withLock { $0.errors[node.key] }
    var isWanted = room.goesOn(generation, false)
    // Of what is neither begun nor failed nothing but a pin is known, and few are pinned: not asked for each of a
    // million.
    if !isWanted, generation != nil || facts.lastError != nil { isWanted = try store.catalog.isPinned(node.key) }
    facts.server = FileFacts.Server(lacksSpace: room.health.intake != .everything, isWanted: isWanted)
    return FileReport(path: path, facts, now: now)
  }

  /// The state of a file, wherever it is known.
  package func report(on node: Node) throws(Errno) -> FileReport {
    let path = try room.io { () throws(StoreError) in try store.catalog.path(of: node.inode) } ?? node.name
    if let live = try liveReport(on: node, path: path) { return live }
    return try room.io { () throws(StoreError) in
      try report(
        on: node, path: path, generation: try store.catalog.generation(current: node.key),
        problem: try store.catalog.problem(of: node.key))
    }
  }

  /// The resources whose last error is in memory. The catalog may know nothing of them.
  package var failing: [ResourceKey] { room.table.withLock { $0.errors.keys } }

  /// Whether an error of the resource is in memory.
  package func remembersError(of key: ResourceKey) -> Bool { room.table.withLock { $0.errors[key] != nil } }
}

extension ReadingRoom {
  /// Whether a file that nobody has open will be completed when its turn comes.
  func goesOn(_ generation: GenerationRecord?, _ isPinned: Bool) -> Bool {
    guard isPinned || generation?.continues == true else { return false }
    return options.continuation.goesOn(isRequested: isPinned, isOpen: false)
  }
}
