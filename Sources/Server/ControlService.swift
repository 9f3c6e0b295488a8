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
  private let numbers: MetricsSource
  private let facts: MountFacts
  private let settings: SettingService
  private let list: ListKeeper
  let events: EventHub

  init(
    fileSystem: MediaFileSystem, catalog: Catalog, library: LibraryFolder, settings: SettingService,
    handover: Handover, facts: MountFacts, numbers: MetricsSource, events: EventHub, list: ListKeeper,
    stop: @escaping @Sendable () -> Void
  ) {
    self.handover = handover
    self.list = list
    self.settings = settings
    self.facts = facts
    self.events = events
    self.numbers = numbers
    self.fileSystem = fileSystem
    self.catalog = catalog
    end = stop
    status = CatalogStatus(
      catalog: catalog, store: facts.store, library: library, reports: fileSystem.reports,
      leases: { key in numbers.share?.leases.filter { $0.key == key }.map(\.range) ?? [] })
  }

  func totals(_ query: StatusQuery) throws(ControlFailure) -> StatusTotals {
    if query.active { return activity }
    fileSystem.commit()  // so that a file that failed just now counts
    var totals = try status.totals(query)
    if query.paths == nil { totals.lines = lines }
    var mount = try reading { () throws(StoreError) in try settings.applied(to: facts) }
    let use = fileSystem.storeUse
    (mount.held, mount.copies, mount.full) = (use.held, use.copies, use.lack?.advice)
    mount.listProblem = list.problem
    mount.share = numbers.share.map {
      MountFacts.words(of: $0, reads: fileSystem.metrics().reads, now: .now) { fileSystem.reports.path(of: $0) }
    }
    totals.mount = mount
    return totals
  }
  /// The sums over the files that something goes on with.
  private var activity: StatusTotals {
    let active = fileSystem.reports.active
    var totals = StatusTotals()
    totals.files = Int64(active.count)
    (totals.stored, totals.size, totals.unknownSizes) = (active.stored, active.size, active.unknownSizes)
    (totals.rate, totals.transfers) = (active.rate, Int64(active.transfers))
    totals.lines = lines
    return totals
  }
  private var lines: [LineStatus] {
    let now = Instant.now
    return fileSystem.reports.lines(ControlLimits.lines).map { LineStatus($0, now) }
  }
  func page(_ query: StatusQuery) throws(ControlFailure) -> StatusPage {
    if query.active {
      let files: [FileStatus]
      do throws(Errno) { files = try fileSystem.reports.active.reports(query.limit).map(FileStatus.init) } catch {
        throw ControlFailure(.failed, "cannot read the state of the files in memory: \(error)")
      }
      let rules = fileSystem.rules
      return try reading { () throws(StoreError) in
        let ruled = try files.map { (file) throws(StoreError) in try file.ruled(by: rules, in: catalog.tree) }
        return StatusPage(files: ruled, next: nil)
      }
    }
    if query.after == nil { fileSystem.commit() }
    return try status.page(query)
  }
  func metrics() throws(ControlFailure) -> String {
    try reading { () throws(StoreError) in try numbers.text() }
  }
  func rule(_ word: RuleWord, _ paths: [String], isLeft: () -> Bool) throws(ControlFailure) -> RuleReport {
    try RuleService(fileSystem: fileSystem, catalog: catalog).rule(word, paths, isLeft: isLeft)
  }
  func cancel(_ paths: [String]) throws(ControlFailure) -> ClearReport {
    try RuleService(fileSystem: fileSystem, catalog: catalog).cancel(paths)
  }
  func set(_ values: [String: String], host: String?) throws(ControlFailure) -> [SettingStatus] {
    try settings.set(values, host: host, fileSystem)
  }
  func reload(isLeft: () -> Bool) throws(ControlFailure) -> ReloadReport { try list.reload(isLeft: isLeft) }
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
      try catalog.forEachFile(at: path) { (item, path) throws(ControlFailure) in
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
      try catalog.forEachFile(at: path) { (item, path) throws(ControlFailure) in
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

  func clear(_ order: ClearOrder, isLeft: @escaping () -> Bool) throws(ControlFailure) -> ClearReport {
    try ClearService(fileSystem: fileSystem, catalog: catalog, status: status, isLeft: isLeft).clear(order)
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
    if report.opens > 0 { opens = Int64(report.opens) }
    if !report.readers.isEmpty { readers = report.readers.map { ReaderStatus($0, now) } }
    if case .origin(let until) = report.awaits {
      waitsUntil = Int64(time(nil)) + Int64(max(0, until.seconds(since: now)).rounded(.up))
    }
  }
}

extension ReaderStatus {
  init(_ reader: FileReport.Reader, _ now: Instant) {
    self.init(
      pid: reader.process > 0 ? reader.process : nil, process: reader.name, position: reader.position,
      pace: reader.pace.rounded(), waited: reader.waitsSince.map { max(0, now.seconds(since: $0)).tenths },
      waitsFor: reader.awaits.map(FileWait.init))
  }
}

extension LineStatus {
  init(_ line: LineReport, _ now: Instant) {
    self.init(
      host: line.host, rate: line.rate(now: now).rounded(), transfers: line.transfers,
      connections: line.connections(now: now), limit: line.limit, http: line.httpVersion.map { Double($0) / 10 },
      roundTrip: line.roundTrip, errors: line.errors, error: line.error?.message,
      errorAge: line.error.map { Int64(max(0, now.seconds(since: $0.at))) },
      waitsUntil: line.retryAt.map { Int64(time(nil)) + Int64(max(0, $0.seconds(since: now)).rounded(.up)) },
      clockAhead: line.clockAhead)
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
    case .resume: self = .resume
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
