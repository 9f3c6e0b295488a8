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
    /// Why, if that is known.
    var lack: StoreLack?
    /// Whether a file that is not in memory will be resumed when its turn comes.
    var isWanted: Bool
    /// What the user's rules say of it.
    var rules = FileRules()
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
  /// How many handles of it are open.
  var opens = 0
  /// Who reads it. What they wait for is derived.
  var readers: [FileReport.Reader] = []
  /// nil: the file is no film, its index is not stored, or nobody asked for it.
  var film: FilmFacts?

  init() {}

  /// What the catalog says. `copies`: nil when their folder is not there.
  init(
    _ generation: GenerationRecord?, _ problem: NotedProblem?, copies: (any CompletedCopies)?, libraryPath: String,
    now: Instant
  ) throws(StoreError) {
    self.problem = problem.map { LastError($0, now: now) }
    guard let generation else { return }
    size = generation.size
    stored = generation.stored
    guard generation.state == .complete, let copy = generation.copy else { return }
    stored = ByteRangeSet(ByteRange(0, copy.size))
    self.copy = try Copy(copy, copies, path: libraryPath)
  }
}

extension FileFacts.Copy {
  init(_ copy: LibraryCopy, _ copies: (any CompletedCopies)?, path: String) throws(StoreError) {
    guard let copies else {
      self = .unreachable(path)
      return
    }
    switch try copies.check(copy) {
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
  /// What the catalog says with no server running. `copies`: nil when their folder is not there.
  package init(
    path: String, generation: GenerationRecord?, problem: NotedProblem?, copies: (any CompletedCopies)?,
    libraryPath: String
  ) throws(StoreError) {
    let now = Instant.now
    let facts = try FileFacts(generation, problem, copies: copies, libraryPath: libraryPath, now: now)
    self.init(path: path, facts, now: now)
  }
}
