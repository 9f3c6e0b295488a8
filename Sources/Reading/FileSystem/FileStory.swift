import Base
import Manifest
import Storing

extension FileReport {
  /// What else is known of a file: where it comes from and lies, what was fetched of it for whom, and what went wrong.
  package struct Story: Sendable {
    /// One of its URLs.
    package struct Origin: Sendable {
      /// Scheme, host and port, without secrets.
      package var host: String
      /// Whether the next request goes there; false if no server has the file in memory.
      package var isAsked: Bool
      /// Why it was given up; nil if it was not.
      package var refusal: String?
    }

    /// Why the rest of a file is fetched although nobody waits for it.
    package enum Reason: Sendable {
      /// A user asked for the file by name.
      case asked
      /// It was played, or the policy says so.
      case played
    }

    /// Its line of the list, from 1.
    package var line: Int
    package var origins: [Origin]
    /// The Content-Type that the origin sent.
    package var mediaType: String?
    /// What the origin tells its versions by; nil until it has answered.
    package var validators: Validators?
    /// Whether the origin serves ranges; nil: it was not asked for one lately.
    package var servesRanges: Bool?
    /// When the origin was last heard of this version; nil: not while this server has had it in memory.
    package var checkedAt: Instant?
    package var fetched = FetchedBytes()
    /// The last errors, the newest first, each with its last time.
    package var errors: [(message: String, at: Instant)] = []
    /// The id of the generation that is stored in part, which names its partial file.
    package var partial: Int64?
    /// The path of the complete copy in the library.
    package var copy: String?
    /// Why its rest is fetched; nil: it is not.
    package var goesOn: Reason?
  }
}

extension FileReport.Story {
  /// What the catalog knows.
  package init(_ entry: EntryRecord, _ generation: GenerationRecord?, isPinned: Bool) {
    line = entry.source.line
    origins = entry.source.urls.map {
      FileReport.Story.Origin(host: Log.redacted(url: Line.key(of: $0)), isAsked: false)
    }
    guard let generation else {
      if isPinned { goesOn = .asked }
      return
    }
    mediaType = generation.mediaType
    validators = generation.validators
    if let copy = generation.copy {
      self.copy = copy.path
      return
    }
    if !generation.stored.isEmpty { partial = generation.id }
    goesOn = isPinned ? .asked : generation.continues ? .played : nil
  }
}

extension FileReport.Story {
  /// The catalog knows that its download failed for good.
  package mutating func failed(_ problem: NotedProblem) {
    let error = LastError(problem, now: .now)
    errors = [(error.message, error.at)]
  }
}

extension FileReports {
  /// The story of a file of the tree; nil if it is none.
  package func story(of node: Node) throws(StoreError) -> FileReport.Story? {
    guard let entry = try room.store.tree.entry(node.inode), entry.node.kind == .file else { return nil }
    let content = room.table.withLock { $0.contents[node.inode] ?? $0.current[node.key] }
    let live = content?.guarded.withLock { guarded in
      (
        generation: guarded.held.generation, stored: guarded.held.stored, activity: guarded.activity,
        checkedAt: guarded.held.checkedAt, isPinned: guarded.held.isPinned
      )
    }
    var generation = live?.generation
    if let live { generation?.stored = live.stored }
    if generation == nil { generation = try room.store.generations.current(of: node.key) }
    let isPinned = if let live { live.isPinned } else { try room.store.notes.isPinned(node.key) }
    var story = FileReport.Story(entry, generation, isPinned: isPinned)
    (story.fetched, story.errors) = room.table.withLock { table in
      (table.fetched[node.key] ?? FetchedBytes(), table.errors.history(of: node.key).map { ($0.message, $0.at) })
    }
    if story.errors.isEmpty, let problem = try room.store.notes.problem(of: node.key) {
      story.failed(problem)
    }
    guard let live else { return story }
    story.checkedAt = live.checkedAt
    guard let activity = live.activity else { return story }
    if !activity.fetched.isEmpty { story.fetched = activity.fetched }
    story.servesRanges = activity.servesRanges
    for index in story.origins.indices {
      story.origins[index].isAsked = index == activity.mirror
      if index < activity.refusals.count { story.origins[index].refusal = activity.refusals[index] }
    }
    return story
  }
}
