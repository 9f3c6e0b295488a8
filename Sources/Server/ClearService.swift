import Base
import Control
import Manifest
import Reading
import Storing

/// Deletes stored data on a client's order.
struct ClearService {
  let fileSystem: MediaFileSystem
  let catalog: Catalog
  let status: CatalogStatus
  /// Whether the client has left, and with it the order.
  let isLeft: () -> Bool

  /// What one order has come to.
  private struct Pass {
    let order: ClearOrder
    var report = ClearReport()
    /// Complete copies, whose origins are asked together.
    var complete: [(node: Node, path: String, stored: Int64)] = []
    /// The resources with several names that were looked at: each counts once.
    var seen: Set<ResourceKey> = []
    /// The hosts that did not answer: the order asks none of them again.
    var silent: Set<String> = []

    mutating func keep(_ path: String, _ reason: String) {
      report.keptFiles += 1
      if report.kept.count < ControlLimits.shown { report.kept.append(.init(path: path, reason: reason)) }
    }

    mutating func count(_ bytes: Int64) {
      report.files += 1
      report.bytes = .clampedSum(report.bytes, bytes)
    }
  }

  func clear(_ order: ClearOrder) throws(ControlFailure) -> ClearReport {
    // Data can be stored only of files that the catalog or the memory knows, which may be none of a million.
    try reading { () throws(StoreError) in try fileSystem.finishFetches() }
    fileSystem.commit()
    var pass = Pass(order: order)
    switch order.files {
    case .unlisted: try clearUnlisted(&pass)
    case .all:
      let held = try inMemory()
      for node in held.values {
        let path = try reading { () throws(StoreError) in try catalog.tree.path(of: node.inode) }
        if let path { try clear(node, path, &pass) }
      }
      try status.forEachKnown { (node, path) throws(ControlFailure) in
        if held[node.entry] == nil { try clear(node, path, &pass) }
      }
      if !order.isDryRun { try clearPins(&pass) }
    case .at(let paths):
      let held = try inMemory()
      let hasPins = try reading { () throws(StoreError) in try !catalog.notes.pins(limit: 1, after: nil).isEmpty }
      for path in paths {
        try catalog.forEachFile(at: path) { (item, path) throws(ControlFailure) in
          var isMeant = item.isKnown || held[item.node.entry] != nil
          // A user may have fetched it, of which nothing is stored yet.
          if !isMeant, hasPins { isMeant = try isPinned(item.node.key) }
          if isMeant { try clear(item.node, path, &pass) }
        }
      }
    }
    try clearComplete(&pass)
    return pass.report
  }

  /// Unpins the files that a user fetched and of which nothing is stored yet.
  private func clearPins(_ pass: inout Pass) throws(ControlFailure) {
    var after: ResourceKey?
    while true {
      let start = after
      let keys = try reading { () throws(StoreError) in try catalog.notes.pins(limit: 256, after: start) }
      for key in keys {
        let entry = try reading { () throws(StoreError) in try catalog.tree.entries(of: key).first }
        if let entry { try clear(entry.node, entry.path, &pass) }
      }
      guard let last = keys.last else { return }
      after = last
    }
  }

  private func isPinned(_ key: ResourceKey) throws(ControlFailure) -> Bool {
    try reading { () throws(StoreError) in try catalog.notes.isPinned(key) }
  }

  private func inMemory() throws(ControlFailure) -> [Int64: Node] {
    do throws(Errno) {
      return try fileSystem.nodesInMemory()
    } catch {
      throw ControlFailure(.failed, "cannot read the state of the files in memory: \(error)")
    }
  }

  private func clear(_ node: Node, _ path: String, _ pass: inout Pass) throws(ControlFailure) {
    try goOn()
    let names = try reading { () throws(StoreError) in try catalog.tree.names(of: node.key, first: path) }
    if names.count > 1, !pass.seen.insert(node.key).inserted { return }
    let before: FileReport
    do throws(Errno) { before = try fileSystem.reports.report(on: node) } catch {
      throw ControlFailure(.failed, "cannot clear \(path): \(error)")
    }
    if before.state == .modified { return pass.keep(path, "you changed its copy in the library") }
    if let rule = fileSystem.rules.keeping(names) {
      return pass.keep(
        path, "the rule to keep \(rule.pattern.shown) would fetch it again: end it with 'mediafs auto'")
    }
    if before.state == .complete, !pass.order.isForced {
      pass.complete.append((node, path, before.stored))
      if pass.complete.count == MediaFileSystem.askedAtOnce { try clearComplete(&pass) }
      return
    }
    try delete(node, path, before.stored, &pass)
  }

  /// Clears the complete copies of which the origins still have the same version: no other copy may be left of another.
  private func clearComplete(_ pass: inout Pass) throws(ControlFailure) {
    let files = pass.complete
    if files.isEmpty { return }
    pass.complete = []
    let answers = try reading { () throws(StoreError) in
      try fileSystem.askVersions(of: files.map(\.node), silent: &pass.silent, isLeft: isLeft)
    }
    for file in files {
      try goOn()
      switch answers[file.node.key] {
      case .same: try delete(file.node, file.path, file.stored, &pass)
      case .unproved(let why): pass.keep(file.path, "\(why); --force deletes it all the same")
      case nil: pass.keep(file.path, "it changed meanwhile: try again")
      }
    }
  }

  private func delete(_ node: Node, _ path: String, _ stored: Int64, _ pass: inout Pass) throws(ControlFailure) {
    if pass.order.isDryRun {
      if stored > 0 { pass.count(stored) }
      return
    }
    do throws(Errno) {
      if try fileSystem.clear(node) { pass.count(stored) }
    } catch {
      throw ControlFailure(.failed, "cannot clear \(path): \(error)")
    }
  }

  /// What was deleted stays so.
  private func goOn() throws(ControlFailure) {
    if isLeft() { throw ControlFailure(.failed, "the client has left") }
  }

  private func clearUnlisted(_ pass: inout Pass) throws(ControlFailure) {
    var after: Int64 = 0
    while true {
      let start = after
      let found = try reading { () throws(StoreError) in try catalog.generations.unlisted(limit: 256, after: start) }
      guard let last = found.last else { return }
      after = last.id
      for known in found {
        try goOn()
        let isGone = try reading { () throws(StoreError) in
          pass.order.isDryRun ? true : try fileSystem.clearUnlisted(known)
        }
        if isGone {
          pass.count(known.stored.count)
        } else {
          let paths = try reading { () throws(StoreError) in try catalog.tree.formerPaths(of: known.key) }
          pass.keep(
            paths.first ?? "a file that is no longer listed", "it is no longer listed, and a program has it open")
        }
      }
    }
  }

  private func reading<Value>(_ body: () throws(StoreError) -> Value) throws(ControlFailure) -> Value {
    do throws(StoreError) { return try body() } catch { throw ControlFailure(.failed, error.message) }
  }
}

extension Catalog {
  /// Calls `body` for every file at or below a path, folder by folder, with one page of names in memory at a time.
  func forEachFile(
    at path: String, _ body: (SurveyedNode, String) throws(ControlFailure) -> Void
  ) throws(ControlFailure) {
    guard let first = try controlled({ () throws(StoreError) in try tree.find(path: path) }) else {
      throw ControlFailure(.notFound, "the mount has no \(path)")
    }
    if first.kind == .file { return try body(SurveyedNode(node: first, isKnown: true), path) }
    var walk = TreeWalk([path])
    while let files = try controlled({ () throws(StoreError) in try walk.next(in: tree, limit: 256) }) {
      for (item, path) in files { try body(item, path) }
    }
  }

  private func controlled<Value>(_ body: () throws(StoreError) -> Value) throws(ControlFailure) -> Value {
    do throws(StoreError) { return try body() } catch { throw ControlFailure(.failed, error.message) }
  }
}
