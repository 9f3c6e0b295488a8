import Base
import Manifest
import Storing

// What becomes of files in memory when the list changes under the mount.

extension MediaFileSystem {
  /// The list says something else of these resources than before. Call it once the catalog has it. Any thread.
  ///
  /// A file with other URLs goes on over them, with what is stored and all open handles. Of a file that the list does
  /// not have any more, handles read what is stored, and get ESTALE for the rest.
  package func listChanged(_ resources: Set<ResourceKey>) {
    if resources.isEmpty { return }
    let contents = room.table.withLock { table in
      // Whoever has just read the catalog, and has not put the file into the table yet, reads it again.
      table.departures += 1
      for key in table.errors.keys where resources.contains(key) { table.errors.forget(key) }
      return table.current.values.filter { resources.contains($0.key) }
    }
    for content in contents { listChanged(content) }
    // A rule may be for names that came.
    room.transfers.post(.rulesChanged)
  }

  private func listChanged(_ first: Content) {
    var content = first
    do throws(Errno) {
      while true {
        let (entries, rules) = try room.io { () throws(StoreError) in
          (try room.store.tree.entries(of: content.key), try room.rules(of: content.key))
        }
        let entry = entries.first { $0.path == content.path } ?? entries.first
        content.listed(as: entry, rules)
        let isUnknown = content.guarded.withLock { $0.held.size == nil }
        if isUnknown {
          room.table.withLock { table in
            for entry in entries { table.listedSizes.changed(entry.node.inode, size: entry.source.facts?.size) }
          }
        }
        // A new version that came meanwhile has what this one had before.
        guard let current = room.table.withLock({ $0.current[content.key] }), current !== content else { break }
        content = current
      }
      room.transfers.post(.listed(content))
    } catch {
      Log.warning("\(content.path): it goes on with the links that it had")
    }
  }
}

extension TransferThread {
  /// The list says something else of a file in memory than before.
  func listed(_ content: Content) {
    guard downloads[content.key] != nil else { return }
    let download = downloads.download(of: content)
    let isUnlisted = download.content.guarded.withLock { $0.waiters.isUnlisted }
    if isUnlisted { return delist(download) }
    if download.hasNewSource {
      // Its part in the use of its former line.
      if download.lineUse.standing != nil { downloads.setStanding(download, nil) }
      renewals.forget(download.key)
      download.takeSource()
      downloads.forgetError(of: download)
    } else if download.attempts.hasFailed {
      download.forgive()
    }
    // What was being fetched when its line went goes on when that comes back.
    let goesOn = download.content.guarded.withLock { guarded in
      guarded.held.isPartial && (guarded.held.generation?.continues == true || guarded.held.isPinned)
    }
    if goesOn { download.wish.rest = true }
    downloads.changed(download)
  }

  private func delist(_ download: Download) {
    download.wish.rest = false
    download.wish.head = false
    scheduler.nextFiles.removed(download.key)
    download.cancelAll()
    download.attempts.hasFailed = true
    let waiting = download.content.guarded.withLock { $0.waiters.takeAll() }
    answers.tell(waiting, .stale, download.content)
    downloads.publish(download)
  }
}
