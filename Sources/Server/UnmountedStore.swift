import Base
import Control
import Glibc
import Manifest
import Storing

/// Deletes stored data of a store that no server uses: the command itself takes the store's lock.
///
/// No origin can be asked then. So complete copies go only by force.
package struct UnmountedStore {
  private let mount: MountRecord
  private let folder: StoreFolder
  private let catalog: Catalog
  /// Nil if it is not there, or is not the one that has the catalog's copies: nothing follows from their absence then.
  private let library: LibraryFolder?
  /// Why there is none.
  private let strangeness: String?

  /// Takes the lock of the store of `mount`. Throws `failed` if there is none, or a server uses it.
  package init(_ mount: MountRecord) throws(ControlFailure) {
    self.mount = mount
    var status = stat()
    guard stat(mount.store + "/catalog.sqlite", &status) == 0 else {
      throw ControlFailure(.failed, "there is no store at \(mount.store): \(Errno.current)")
    }
    do throws(StoreError) {
      folder = try StoreFolder.open(mount.store, mountpoint: mount.mountpoint, wait: 0)
      catalog = try Catalog.open(path: folder.catalogPath, access: .readWrite)
      strangeness = try KnownLibrary.isStrange(mount.library, to: catalog)
      // Opening a library creates its folder.
      let isThere = stat(mount.library, &status) == 0
      library = isThere && strangeness == nil ? try LibraryFolder(mount.library) : nil
      if let library { try StoreRecovery.run(catalog: catalog, folder: folder, library: library) }
    } catch {
      throw ControlFailure(.failed, error.message)
    }
  }

  /// Carries the order out.
  package func clear(_ order: ClearOrder) throws(ControlFailure) -> ClearReport {
    var report = ClearReport()
    do throws(StoreError) {
      switch order.files {
      case .unlisted:
        var after: Int64 = 0
        while let last = try clearUnlisted(after, order, &report) { after = last }
      case .all: try clear(order, &report) { _ in true }
      case .at(let paths):
        let patterns = try paths.map { (path) throws(StoreError) in
          // By a former name too.
          if let present = try catalog.tree.presentPath(path) { return PathPattern(path: present) }
          throw StoreError(kind: .invalid, message: "the mount has no \(path)")
        }
        try clear(order, &report) { path in patterns.contains { $0.isFor(path) } }
      }
      try catalog.close()
    } catch {
      throw ControlFailure(.failed, error.message)
    }
    return report
  }

  private func clearUnlisted(
    _ after: Int64, _ order: ClearOrder, _ report: inout ClearReport
  ) throws(StoreError) -> Int64? {
    let found = try catalog.generations.unlisted(limit: 256, after: after)
    for known in found { try delete(known, order, &report) }
    return found.last?.id
  }

  private func clear(
    _ order: ClearOrder, _ report: inout ClearReport, _ isMeant: (String) -> Bool
  ) throws(StoreError) {
    let rules = try catalog.notes.rules()
    var after: ResourceKey?
    var seen: ResourceKey?
    repeat {
      let page = try catalog.known(after: after, limit: ControlLimits.page)
      // The names of a resource follow each other. It counts once.
      for entry in page.entries where entry.node.key != seen && isMeant(entry.path) {
        guard let known = entry.generation else { continue }
        seen = known.key
        if let reason = try obstacle(known, entry.path, rules, order) {
          report.keptFiles += 1
          if report.kept.count < ControlLimits.shown { report.kept.append(.init(path: entry.path, reason: reason)) }
        } else {
          try delete(known, order, &report)
        }
      }
      after = page.next
    } while after != nil
    if !order.isDryRun { try unpin(rules, isMeant) }
  }

  /// What a user fetched, and of which nothing is stored yet, the next mount would fetch.
  private func unpin(_ rules: Rules, _ isMeant: (String) -> Bool) throws(StoreError) {
    var after: ResourceKey?
    while true {
      let keys = try catalog.notes.pins(limit: 256, after: after)
      guard let last = keys.last else { return }
      after = last
      var changes: [CatalogChange] = []
      for key in keys {
        let names = try catalog.tree.entries(of: key).map(\.path)
        if names.contains(where: isMeant), rules.keeping(names) == nil { changes.append(.pinned(key, false)) }
      }
      if !changes.isEmpty { try catalog.changes.apply(changes, durably: true) }
    }
  }

  /// Why a file is left as it is; nil if it is not.
  private func obstacle(
    _ known: GenerationRecord, _ path: String, _ rules: Rules, _ order: ClearOrder
  ) throws(StoreError) -> String? {
    if let rule = rules.keeping(try catalog.tree.names(of: known.key, first: path)) {
      return "the rule to keep \(rule.pattern.shown) would fetch it again"
    }
    guard known.state == .complete, let copy = known.copy else { return nil }
    guard let library else { return strangeness ?? "the library \(mount.library) cannot be found" }
    switch try library.check(copy) {
    case .modified: return "you changed its copy in the library"
    case .missing: return nil
    case .intact:
      if order.isForced { return nil }
      return "no server runs that could ask its origin whether it still has this version: mount it, or give --force"
    }
  }

  /// The catalog first, durably, then the partial file. A copy goes before its row: after a kill in between, the next
  /// open finds that the row's copy is missing.
  private func delete(
    _ known: GenerationRecord, _ order: ClearOrder, _ report: inout ClearReport
  ) throws(StoreError) {
    let isComplete = known.state == .complete
    let bytes = isComplete ? known.size ?? 0 : known.stored.count
    if bytes == 0, !known.continues { return }
    if bytes > 0 {
      report.files += 1
      report.bytes = .clampedSum(report.bytes, bytes)
    }
    if order.isDryRun { return }
    if let copy = known.copy, let library { try library.remove(copy) }
    try catalog.changes.apply([.dropped(generation: known.id), .pinned(known.key, false)], durably: true)
    try PartialFile.remove(known.id, in: folder)
  }
}
