import Base
import Control
import Glibc
import Manifest
import Reading
import Storing

/// Answers the requests of the control socket from the running file system.
final class ControlService: ControlHandler {
  private let fileSystem: MediaFileSystem
  private let catalog: Catalog
  private let status: CatalogStatus
  private let end: @Sendable () -> Void
  private let handover: Handover

  init(
    fileSystem: MediaFileSystem, catalog: Catalog, library: LibraryFolder, handover: Handover,
    stop: @escaping @Sendable () -> Void
  ) {
    self.handover = handover
    self.fileSystem = fileSystem
    self.catalog = catalog
    end = stop
    status = CatalogStatus(catalog: catalog, library: library, reports: fileSystem.reports)
  }

  func totals(_ query: StatusQuery) throws(ControlFailure) -> StatusTotals {
    fileSystem.commit()  // so that a file that failed just now counts
    return try status.totals(query)
  }
  func page(_ query: StatusQuery) throws(ControlFailure) -> StatusPage {
    if query.after == nil { fileSystem.commit() }
    return try status.page(query)
  }
  func stop() {
    handover.cancel()
    end()
  }
  var upgradeFacts: UpgradeFacts { handover.facts }
  func agreeToUpgrade(to program: ProgramFile) throws(ControlFailure) { try handover.agree(to: program) }
  func handOver() { end() }

  func fetch(_ paths: [String]) throws(ControlFailure) -> [FetchTarget] {
    var targets: [FetchTarget] = []
    for path in paths {
      try forEachFile(at: path) { (item, path) throws(ControlFailure) in
        targets.append(FetchTarget(path: path))
      }
    }
    fileSystem.fetch(try nodes(of: targets))
    return targets
  }

  private func nodes(of targets: [FetchTarget]) throws(ControlFailure) -> [Inode] {
    var inodes: [Inode] = []
    for target in targets {
      if let node = try reading({ () throws(StoreError) in try catalog.tree.find(path: target.path) }) {
        inodes.append(node.inode)
      }
    }
    return inodes
  }

  func progress(of targets: [FetchTarget]) -> [FetchProgress] {
    targets.map { target in
      do {
        guard let node = try catalog.tree.find(path: target.path) else {
          return FetchProgress(path: target.path, state: .failed, stored: 0, error: "it is no longer in the mount")
        }
        return FetchProgress(FileStatus(try fileSystem.reports.report(on: node)))
      } catch {
        return FetchProgress(path: target.path, state: .failed, stored: 0, error: "\(error)")
      }
    }
  }

  func readiness(_ paths: [String], from: Double?) throws(ControlFailure) -> [FileReadiness] {
    var files: [FileReadiness] = []
    for path in paths {
      try forEachFile(at: path) { (item, path) throws(ControlFailure) in
        guard files.count < ControlLimits.polled else {
          throw ControlFailure(.failed, "these are more than \(ControlLimits.polled) files: name fewer")
        }
        do throws(Errno) {
          files.append(FileReadiness(try fileSystem.reports.report(on: item.node, readsIndex: true), path, from: from))
        } catch {
          throw ControlFailure(.failed, "cannot read the state of \(path): \(error)")
        }
      }
    }
    return files
  }

  func clear(_ paths: [String]?) throws(ControlFailure) -> ClearReport {
    // Data can be stored only of files that the catalog or the memory knows, which may be none of a million.
    fileSystem.commit()
    let held = try inMemory()
    var report = ClearReport()
    guard let paths else {
      for node in held.values {
        let path = try reading { () throws(StoreError) in try catalog.tree.path(of: node.inode) }
        if let path { try clear(node, path, &report) }
      }
      try status.forEachKnown { (node, path) throws(ControlFailure) in
        if held[node.entry] == nil { try clear(node, path, &report) }
      }
      try clearPins(&report)
      return report
    }
    for path in paths {
      try forEachFile(at: path) { (item, path) throws(ControlFailure) in
        if item.isKnown || held[item.node.entry] != nil { try clear(item.node, path, &report) }
      }
    }
    return report
  }

  /// Unpins the files that a user fetched and of which nothing is stored yet.
  private func clearPins(_ report: inout ClearReport) throws(ControlFailure) {
    var after: ResourceKey?
    while true {
      let start = after
      let keys = try reading { () throws(StoreError) in try catalog.notes.pins(limit: 256, after: start) }
      for key in keys {
        let entry = try reading { () throws(StoreError) in try catalog.tree.entries(of: key).first }
        if let entry { try clear(entry.node, entry.path, &report) }
      }
      guard let last = keys.last else { return }
      after = last
    }
  }

  private func inMemory() throws(ControlFailure) -> [Int64: Node] {
    do throws(Errno) {
      return try fileSystem.nodesInMemory()
    } catch {
      throw ControlFailure(.failed, "cannot read the state of the files in memory: \(error)")
    }
  }

  private func clear(_ node: Node, _ path: String, _ report: inout ClearReport) throws(ControlFailure) {
    do throws(Errno) {
      let before = try fileSystem.reports.report(on: node)
      if before.state == .modified {
        report.keptFiles += 1
        report.kept.append(.init(path: path, reason: "you changed its copy in the library"))
        return
      }
      guard try fileSystem.clear(node) else { return }
      report.files += 1
      report.bytes = .clampedSum(report.bytes, before.stored)
    } catch {
      throw ControlFailure(.failed, "cannot clear \(path): \(error)")
    }
  }

  /// Calls `body` for every file at or below a path, folder by folder, with one page of names in memory at a time.
  private func forEachFile(
    at path: String, _ body: (SurveyedNode, String) throws(ControlFailure) -> Void
  ) throws(ControlFailure) {
    guard let first = try reading({ () throws(StoreError) in try catalog.tree.find(path: path) }) else {
      throw ControlFailure(.notFound, "the mount has no \(path)")
    }
    if first.kind == .file { return try body(SurveyedNode(node: first, isKnown: true), path) }
    // The folders from `path` to the current one, and the position in each.
    var folders = [(inode: first.inode, prefix: path.isEmpty ? "" : path + "/", cookie: Int64(0))]
    while let folder = folders.last {
      let items = try reading { () throws(StoreError) in
        try catalog.tree.survey(folder.inode, after: folder.cookie, limit: 256)
      }
      guard let last = items.last else {
        folders.removeLast()
        continue
      }
      folders[folders.count - 1].cookie = last.node.entry
      for item in items where item.node.kind == .file { try body(item, folder.prefix + item.node.name) }
      if last.node.kind == .folder { folders.append((last.node.inode, folder.prefix + last.node.name + "/", 0)) }
    }
  }

  private func reading<Value>(_ body: () throws(StoreError) -> Value) throws(ControlFailure) -> Value {
    do throws(StoreError) { return try body() } catch { throw ControlFailure(.failed, error.message) }
  }
}

extension FileStatus {
  /// Converts a report for the protocol, in which ages and times of day stand for instants.
  init(_ report: FileReport) {
    self.init(
      path: report.path, state: State(report.state), stored: report.stored,
      size: report.size, ranges: report.ranges.ranges.map { [$0.start, $0.end] }, rate: report.rate,
      transfers: report.transfers, error: report.error, advice: report.advice)
    if let film = report.film {
      (duration, holdsTo, playsFrom) = (film.duration.tenths, film.holdsTo.tenths, film.playsFrom?.tenths)
    }
    let now = Instant.now
    errorAge = report.errorAt.map { Int64(max(0, now.seconds(since: $0))) }
    waitsFor = report.awaits.map(FileWait.init)
    if case .origin(let until) = report.awaits {
      waitsUntil = Int64(time(nil)) + Int64(max(0, until.seconds(since: now)).rounded(.up))
    }
  }
}

extension FileReadiness {
  /// What a report says of a play from the second `from` on; nil: from where the file is read, or its start.
  init(_ report: FileReport, _ path: String, from: Double?) {
    self.init(path: path, state: FileStatus.State(report.state), stored: report.stored)
    (waitsFor, error) = (report.awaits.map(FileWait.init), report.error)
    if let film = report.film {
      let verdict = film.verdict(from: from)
      duration = film.duration.tenths
      self.from = (from ?? film.readAt ?? 0).tenths
      playsThrough = verdict.playsThrough
      (stallsAt, readyIn) = (verdict.stallsAt?.tenths, verdict.readyIn?.tenths)
    } else if report.state == .complete {
      playsThrough = true  // every byte is stored, whatever they are
    }
  }
}

extension Double {
  /// Rounded to tenths.
  fileprivate var tenths: Double { (self * 10).rounded() / 10 }
}

extension FileWait {
  init(_ awaited: FileReport.Awaited) {
    switch awaited {
    case .reader: self = .reader
    case .line: self = .line
    case .turn: self = .turn
    case .space: self = .space
    case .origin: self = .origin
    }
  }
}

extension FileStatus.State {
  init(_ state: FileReport.State) {
    switch state {
    case .remote: self = .remote
    case .partial: self = .partial
    case .complete: self = .complete
    case .failed: self = .failed
    case .modified: self = .modified
    }
  }
}
