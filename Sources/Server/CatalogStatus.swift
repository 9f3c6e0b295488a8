import Base
import Control
import Glibc
import Manifest
import Reading
import Storing

/// The status of a mount's files, from its catalog and, if one runs, its server.
///
/// It reads every page anew from the catalog and keeps nothing between two pages, so that a mount of any size takes the
/// same memory.
package struct CatalogStatus: StatusSource, Sendable {
  private let catalog: Catalog
  /// Nil if the library's folder does not exist: the state of the copies is then unknown.
  private let library: LibraryFolder?
  private let libraryPath: String
  private let storePath: String
  /// The reports of a running server, which knows some files better than the catalog does. Nil if no server runs.
  private let reports: FileReports?
  /// What of a resource this mount fetches for all that share.
  private let leases: @Sendable (ResourceKey) -> [ByteRange]

  /// The status of a running server, or of a catalog alone.
  init(
    catalog: Catalog, store: String, library: LibraryFolder, reports: FileReports?,
    leases: @escaping @Sendable (ResourceKey) -> [ByteRange] = { _ in [] }
  ) {
    self.leases = leases
    self.catalog = catalog
    storePath = store
    self.library = library
    libraryPath = library.path
    self.reports = reports
  }

  /// Opens the catalog of a mount for reading, while no server runs.
  package init(_ mount: MountRecord) throws(ControlFailure) {
    libraryPath = mount.library
    storePath = mount.store
    reports = nil
    leases = { _ in [] }
    do throws(StoreError) {
      catalog = try Catalog.open(path: mount.store + "/catalog.sqlite", access: .readOnly)
      // Opening a library creates its folder. A command that only reads must not create it.
      var status = stat()
      library = stat(mount.library, &status) == 0 ? try LibraryFolder(mount.library) : nil
    } catch {
      throw ControlFailure(.failed, error.message)
    }
  }

  // MARK: - StatusSource

  /// The sums over the whole mount, or over the files that the paths name.
  package func totals(_ query: StatusQuery) throws(ControlFailure) -> StatusTotals {
    var sums = StatusTotals()
    var rest = query
    rest.after = nil
    rest.limit = ControlLimits.page
    let rules = try rules()
    sums.ruleCount = rules.all.count
    sums.rules = rules.all.prefix(ControlLimits.shown).map { AppliedRule($0) }
    if query.paths != nil {
      repeat {
        let page = try walk(rest)
        for file in page.files { sums.add(file) }
        rest.after = page.next
      } while rest.after != nil
      return sums
    }
    repeat {
      let page = try known(rest)
      for file in page.files { sums.add(file) }
      rest.after = page.next
    } while rest.after != nil
    sums.unlisted = try unlisted()
    // Nothing is known of all other files.
    let all = try reading { () throws(StoreError) in try catalog.tree.counts().files }
    let others = max(0, all - sums.files)
    sums.files += others
    sums.remote += others
    sums.unknownSizes += others
    return sums
  }

  /// The next page of files, in the tree's order or in the order of their resources.
  package func page(_ query: StatusQuery) throws(ControlFailure) -> StatusPage {
    let rules = try rules()
    var page = query.all || query.paths != nil ? try walk(query) : try known(query)
    page.files = try reading { () throws(StoreError) in
      try page.files.map { (file) throws(StoreError) in try file.ruled(by: rules, in: catalog.tree) }
    }
    return page
  }

  /// The bytes of partial files that the list does not name any more.
  private func unlisted() throws(ControlFailure) -> Int64 {
    var sum: Int64 = 0
    var after: Int64 = 0
    while true {
      let start = after
      let found = try reading { () throws(StoreError) in
        try catalog.generations.unlisted(limit: ControlLimits.page, after: start)
      }
      guard let last = found.last else { return sum }
      for known in found { sum = .clampedSum(sum, known.stored.count) }
      after = last.id
    }
  }

  /// The user's rules: a server has them in memory.
  private func rules() throws(ControlFailure) -> Rules {
    if let reports { return reports.rules }
    return try reading { () throws(StoreError) in try catalog.notes.rules() }
  }

  // MARK: - Files of which something is known

  /// A page of the files of which something is known, in the order of their resources. The cursor is the key of the
  /// last resource.
  private func known(_ query: StatusQuery) throws(ControlFailure) -> StatusPage {
    var after: ResourceKey?
    if let cursor = query.after {
      let numbers = cursor.split(separator: ",").compactMap { UInt64($0, radix: 16) }
      guard numbers.count == 2 else { throw invalidCursor }
      after = ResourceKey(high: numbers[0], low: numbers[1])
    }
    let page = try reading { () throws(StoreError) in try catalog.known(after: after, limit: query.limit) }
    var files: [FileStatus] = []
    for entry in page.entries {
      if let now = try live(entry.node, entry.path) {
        files.append(now)
      } else {
        files.append(try status(of: entry.node, entry.path, entry.generation, entry.problem, query.film))
      }
    }
    if page.next == nil { files += try failing() }
    return StatusPage(
      files: files, next: page.next.map { "\(String($0.high, radix: 16)),\(String($0.low, radix: 16))" })
  }

  /// Calls `body` for every file of which data, or an error, is stored.
  func forEachKnown(_ body: (Node, String) throws(ControlFailure) -> Void) throws(ControlFailure) {
    var after: ResourceKey?
    repeat {
      let start = after
      let page = try reading { () throws(StoreError) in try catalog.known(after: start, limit: ControlLimits.page) }
      for entry in page.entries { try body(entry.node, entry.path) }
      after = page.next
    } while after != nil
  }

  // MARK: - The tree

  /// A folder that the walk is in, and the entry after which its listing goes on.
  private struct Frame {
    var folder: Inode
    var cookie: Int64
  }

  /// A page of all files at and below the paths, folder by folder. The cursor holds the index of the current path and
  /// the position in each folder that leads to the next file.
  private func walk(_ query: StatusQuery) throws(ControlFailure) -> StatusPage {
    let paths = query.paths ?? [""]
    var (index, frames) = try position(query.after)
    var files: [FileStatus] = []
    while files.count < query.limit {
      if let frame = frames.last {
        try list(frame, &frames, query, &files)
        continue
      }
      guard index < paths.count else { return StatusPage(files: files, next: nil) }
      let path = paths[index]
      guard let node = try reading({ () throws(StoreError) in try catalog.tree.find(path: path) }) else {
        throw ControlFailure(.notFound, "the mount has no \(path)")
      }
      index += 1
      switch node.kind {
      case .folder: frames = [Frame(folder: node.inode, cookie: 0)]
      case .file:
        var file = try status(of: SurveyedNode(node: node, isKnown: true), path: path, readsIndex: query.film)
        if query.story { file.story = try story(of: node) }
        files.append(file)
      }
    }
    let stack = frames.map { "\($0.folder)/\($0.cookie)" }
    let isOver = frames.isEmpty && index == paths.count
    return StatusPage(files: files, next: isOver ? nil : (["\(index)"] + stack).joined(separator: ","))
  }

  private func position(_ cursor: String?) throws(ControlFailure) -> (index: Int, frames: [Frame]) {
    guard let cursor else { return (0, []) }
    let parts = cursor.split(separator: ",")
    guard let first = parts.first, let index = Int(first), index >= 0 else { throw invalidCursor }
    var frames: [Frame] = []
    for part in parts.dropFirst() {
      let numbers = part.split(separator: "/")
      guard numbers.count == 2, let folder = Inode(numbers[0]), let cookie = Int64(numbers[1]) else {
        throw invalidCursor
      }
      frames.append(Frame(folder: folder, cookie: cookie))
    }
    return (index, frames)
  }

  /// Lists the next files of a folder, up to its next subfolder, which the walk then enters. At the end of the folder,
  /// the walk leaves it.
  private func list(
    _ frame: Frame, _ frames: inout [Frame], _ query: StatusQuery, _ files: inout [FileStatus]
  ) throws(ControlFailure) {
    let limit = query.limit - files.count
    let (items, folderPath) = try reading { () throws(StoreError) in
      let items = try catalog.tree.survey(frame.folder, after: frame.cookie, limit: limit)
      return (items, items.isEmpty ? nil : try catalog.tree.path(of: frame.folder))
    }
    guard let last = items.last, let folderPath else {
      frames.removeLast()
      return
    }
    frames[frames.count - 1].cookie = last.node.entry
    let prefix = folderPath.isEmpty ? "" : folderPath + "/"
    let hasPins = try hasPins()
    for item in items where item.node.kind == .file {
      let path = prefix + item.node.name
      var file = try status(of: item, path: path, hasPins: hasPins, readsIndex: query.film)
      if query.story { file.story = try story(of: item.node) }
      files.append(file)
    }
    if last.node.kind == .folder { frames.append(Frame(folder: last.node.inode, cookie: 0)) }
  }

  // MARK: - One file

  /// The status of one file. `hasPins`: whether the catalog has any pin; false saves a look-up.
  private func status(
    of item: SurveyedNode, path: String, hasPins: Bool = true, readsIndex: Bool = false
  ) throws(ControlFailure) -> FileStatus {
    let node = item.node
    if let now = try live(node, path) { return now }
    // A rule may want a file of which nothing is known.
    let rules = try reading { () throws(StoreError) in try reports?.rules(of: node.key) ?? FileRules() }
    if !item.isKnown, rules == FileRules(), !(try isWantedOrFailed(node.key, hasPins)) {
      return FileStatus(path: path, size: node.size, waitsFor: reports == nil ? nil : .reader)
    }
    let (generation, problem) = try reading { () throws(StoreError) in
      (try catalog.generations.current(of: node.key), try catalog.notes.problem(of: node.key))
    }
    return try status(of: node, path, generation, problem, readsIndex)
  }

  /// What else is known of a file.
  private func story(of node: Node) throws(ControlFailure) -> FileStory? {
    let story = try reading { () throws(StoreError) in
      if let reports { return try reports.story(of: node) }
      return try catalog.tree.entry(node.inode).map { (entry) throws(StoreError) in
        let generation = try catalog.generations.current(of: node.key)
        var story = FileReport.Story(entry, generation, isPinned: try catalog.notes.isPinned(node.key))
        if let problem = try catalog.notes.problem(of: node.key) { story.failed(problem) }
        return story
      }
    }
    var told = story.map { FileStory($0, store: storePath, library: libraryPath, isLive: reports != nil) }
    let leases = leases(node.key).prefix(ControlLimits.origins)
    if !leases.isEmpty { told?.leases = leases.map { [$0.start, $0.end] } }
    return told
  }

  /// Whether something is known of a resource without a generation in the catalog: a user has pinned it, or the server
  /// remembers an error.
  private func isWantedOrFailed(_ key: ResourceKey, _ hasPins: Bool) throws(ControlFailure) -> Bool {
    guard let reports else { return false }
    if reports.remembersError(of: key) { return true }
    return hasPins ? try reading { () throws(StoreError) in try catalog.notes.isPinned(key) } : false
  }

  /// Whether the catalog has any pin. Most have none, which saves a walk over a million names as many look-ups.
  private func hasPins() throws(ControlFailure) -> Bool {
    if reports == nil { return false }
    return try !reading { () throws(StoreError) in try catalog.notes.pins(limit: 1, after: nil) }.isEmpty
  }

  /// The status of a file that a running server has in memory; nil if the catalog alone knows the file.
  private func live(_ node: Node, _ path: String) throws(ControlFailure) -> FileStatus? {
    do throws(Errno) {
      return try reports?.live(on: node, path: path).map(FileStatus.init)
    } catch {
      throw ControlFailure(.failed, "cannot read the state of \(path): \(error)")
    }
  }

  private func status(
    of node: Node, _ path: String, _ generation: GenerationRecord?, _ problem: NotedProblem?, _ readsIndex: Bool
  ) throws(ControlFailure) -> FileStatus {
    try reading { () throws(StoreError) in
      if let reports {
        return FileStatus(
          try reports.report(
            on: node, path: path, generation: generation, problem: problem, readsIndex: readsIndex))
      }
      return FileStatus(
        try FileReport(
          path: path, generation: generation, problem: problem, copies: library, libraryPath: libraryPath))
    }
  }

  /// The files of which the server remembers an error but the catalog knows nothing.
  private func failing() throws(ControlFailure) -> [FileStatus] {
    var files: [FileStatus] = []
    for key in reports?.failing ?? [] {
      let entries = try reading { () throws(StoreError) in
        if try catalog.generations.current(of: key) != nil { return [EntryRecord]() }
        return try catalog.notes.problem(of: key) == nil ? try catalog.tree.entries(of: key) : []
      }
      for entry in entries {
        files.append(try status(of: SurveyedNode(node: entry.node, isKnown: true), path: entry.path))
      }
    }
    return files
  }

  private var invalidCursor: ControlFailure { ControlFailure(.malformed, "\"after\" is not the \"next\" of a page") }

  private func reading<Result>(_ body: () throws(StoreError) -> Result) throws(ControlFailure) -> Result {
    do throws(StoreError) { return try body() } catch { throw ControlFailure(.failed, error.message) }
  }
}
