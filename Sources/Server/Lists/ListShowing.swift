import Base
import Storing

/// Has what shows the tree follow the list's imports, and the kernel told a second time of what they change. The thread
/// of ``ListKeeper`` uses it.
final class ListShowing: Sendable {
  /// After how many seconds the kernel is told of changes a second time.
  static let again = 1.0
  private let request: MountRequest
  private let update: TreeUpdate
  /// What the kernel is to be told a second time, and since when, the oldest first.
  private let recent = Lock<[(changes: [TreeChange], since: Instant)]>([])

  init(_ request: MountRequest, _ update: TreeUpdate) { (self.request, self.update) = (request, update) }

  /// Who shows the tree during an import, and refuses what nobody asked for. `goOn`: throws if nothing may change any
  /// more.
  func watcher(isAsked: Bool, goOn: @escaping () throws(StoreError) -> Void) -> ImportWatcher {
    let folders = request.lists?.folders
    let isFirst = { @Sendable (change: TreeChange) -> Bool in folders?.isListedFirst(change.parent) == true }
    return ImportWatcher(
      lists: request.named.map(\.folder),
      compared: { [request] (losses) throws(StoreError) in
        if !isAsked { try Self.refuse(losses, request) }
      },
      beforeCommit: { [update, request] (changes) throws(StoreError) in
        try goOn()
        if !isAsked { try Self.refuse(changes.losses, request) }
        update.prepare(changes.tree.filter { !isFirst($0) })
      },
      committed: { [recent, update] changes in
        var told = changes
        told.tree.removeAll(where: isFirst)
        update.forget(changes.tree.filter(isFirst))
        update.announce(told)
        if !changes.tree.isEmpty { recent.withLock { $0.append((changes.tree, .now)) } }
      })
  }

  /// An import changed nothing, whatever it was about to change.
  func failed() { update.prepare([]) }

  /// Waits, for some seconds at most, until programs that watch the mount know of all that was announced.
  func settle() { update.settle() }

  /// A lookup that began before a commit may be answered after the kernel was told to forget the name. Returns when
  /// there is something to repeat, in seconds.
  func repeatRecent() -> Double? {
    while let (changes, since) = recent.withLock({ $0.first }) {
      let rest = Self.again - Instant.now.seconds(since: since)
      if rest > 0 { return rest }
      _ = recent.withLock { $0.removeFirst() }
      update.forget(changes)
    }
    return nil
  }

  /// A list that was cut at the end of a line is a list too, and a media server deletes what vanishes.
  private static func refuse(_ losses: [ListLoss], _ request: MountRequest) throws(StoreError) {
    guard let loss = losses.first(where: \.isMost) else { return }
    let list = loss.folder.flatMap { folder in request.allLists.first { $0.folder == folder } }
    let (who, whose) = list.map { ("the list \($0.shown)", "its") } ?? ("the list", "the mount's")
    throw StoreError(
      kind: .invalid,
      message: "\(who) lacks \(loss.removed) of \(whose) \(loss.names) names now, and nobody asked to "
        + "remove so many: the mount stays as it was; if the list is right, run 'mediafs reload'")
  }
}

/// What shows the tree, and is told of its changes.
struct TreeUpdate: Sendable {
  /// Before the catalog has them; with none: after an import that failed. It must not call the catalog.
  let prepare: @Sendable ([TreeChange]) -> Void
  /// After it has them.
  let announce: @Sendable (ListChanges) -> Void
  /// Makes the kernel forget these names, and their folders' listings.
  let forget: @Sendable ([TreeChange]) -> Void
  /// Waits, for some seconds at most, until programs that watch the mount know of all that was announced.
  let settle: @Sendable () -> Void
}
