import Base
import Glibc
import Manifest
import Reading
import Storing

extension ServedFolders {
  /// What is known of a server's folder.
  struct Page {
    /// Whether the tree shows something of it.
    var isKnown = false
    /// When the server said last what it has, in seconds since 1970.
    var checked: Int64 = 0
    var isAsked = false
    /// Whether it has come, and the tree does not show it yet.
    var hasCome = false
    var failure: (message: String, at: Instant)?
    /// How many answers came that the tree did not show then.
    var answers = 0

    /// Whether nobody asked for it, and it is not known.
    var isNew: Bool { !isKnown && !hasCome && !isAsked && !hasFailed(within: ServedFolders.againAhead) }

    func hasFailed(within seconds: Double) -> Bool {
      failure.map { Instant.now.seconds(since: $0.at) < seconds } ?? false
    }
  }

  /// The folders, by their URLs, of which other listings came.
  struct News: Equatable {
    var urls: Set<String> = []
    /// Whether a reload asked for one of them.
    var isAsked = false
  }

  /// Folders whose listings can be imported without the list.
  struct Scope: Equatable {
    var roots: [Inode]
    /// The URLs of `roots`; others may be left.
    var urls: Set<String>
  }

  /// An open that waits.
  struct Waiting {
    var ticket: Ticket
    var folder: Inode
    var until: Instant
  }

  /// What is known of all of them, and who waits. It asks nobody: the lock of the folders is around each of its calls.
  struct State {
    var shown: [Inode: ManifestFolder] = [:]
    /// Those that show a URL's.
    var places: [String: Set<Inode>] = [:]
    /// Those in which the list itself names something.
    var mixed: Set<Inode> = []
    /// The URLs of those that show in a folder with another one, which `shown` has.
    var hidden: Set<String> = []
    /// By URL.
    var pages: [String: Page] = [:]
    /// Those in a folder, by its URL, of which nothing was known.
    var unlisted: [String: ArraySlice<ServerFolder>] = [:]
    var waiting: [Waiting] = []
    /// What the import that goes on found: when each came, nil for nothing, and how many answers had come. It counts
    /// once the tree shows it.
    var read: [String: (fetched: Int64?, answers: Int)] = [:]
    /// Another listing is remembered than the tree shows.
    var news = News()
    /// Whether it is known which folders are servers': a server that goes on with a mount has to read the list first.
    var hasShown = false
    /// Whether the list cannot be read again: then no folder can show more than it does.
    var isFixed = false

    var failures: [String] { places.keys.compactMap { pages[$0]?.failure?.message } }

    func source(_ folder: Inode) -> ServerFolder? { shown[folder]?.source }

    func page(_ folder: Inode) -> Page? { source(folder).map { pages[$0.url] ?? Page() } }

    /// Until when an open waits at most. What has come shows in a moment, or is refused.
    func end(of one: Waiting) -> Instant {
      let comes = !hasShown || page(one.folder)?.hasCome == true
      return comes ? one.until.adding(seconds: ServedFolders.again) : one.until
    }

    mutating func hide(_ folder: Inode) {
      guard let former = shown.removeValue(forKey: folder) else { return }
      places[former.source.url]?.remove(folder)
      if places[former.source.url]?.isEmpty == true { places[former.source.url] = nil }
    }

    mutating func show(_ folder: ManifestFolder, at inode: Inode) {
      hide(inode)
      shown[inode] = folder
      places[folder.source.url, default: []].insert(inode)
      if folder.source.depth > 0, pages[folder.source.url]?.isKnown != true {
        unlisted[ServedFolders.parent(of: folder.source.url), default: []].append(folder.source)
      }
    }

    /// Removes and returns the first folders in that of `url` of which nothing is known.
    mutating func takeUnlisted(in url: String) -> [ServerFolder] {
      guard var rest = unlisted[url] else { return [] }
      var found: [ServerFolder] = []
      while found.count < ServedFolders.ahead, let one = rest.popFirst() {
        if places[one.url] != nil, pages[one.url]?.isNew ?? true { found.append(one) }
      }
      unlisted[url] = rest.isEmpty ? nil : rest
      return found
    }

    /// Notes what an import shows. Returns who need not wait any longer, and what is to be asked for.
    mutating func note(_ report: ImportReport?) -> (answered: [Waiting], asks: [ServerFolder]) {
      let now = Int64(time(nil))
      for (url, found) in read {
        var page = pages[url] ?? Page()
        page.isKnown = found.fetched != nil
        // What came since is for the next import.
        if page.answers == found.answers { page.hasCome = false }
        // A clock that was ahead would make it fresh for long.
        page.checked = min(now, max(page.checked, found.fetched ?? 0))
        pages[url] = page
      }
      read = [:]
      var asks: [ServerFolder] = []
      let servers = report?.servers ?? [:]
      // The report has all folders of a listing that was read again.
      for folder in servers.values where folder.source.depth > 0 {
        unlisted[ServedFolders.parent(of: folder.source.url)] = nil
      }
      for (inode, folder) in servers.sorted(by: { $0.key < $1.key }) {
        show(folder, at: inode)
        let page = pages[folder.source.url] ?? Page()
        if folder.source.depth == 0, !page.isKnown, !isFixed, !page.hasFailed(within: ServedFolders.againAhead) {
          asks.append(folder.source)
        }
      }
      let answered = take { $0.isFixed || $0.page($1.folder)?.isKnown != false }
      for one in answered where !isFixed {
        if let url = source(one.folder)?.url { asks += takeUnlisted(in: url) }
      }
      return (answered, asks + waiting.compactMap { source($0.folder) })
    }

    /// Removes and returns those who wait for a folder of which `isWanted` is true.
    mutating func take(_ isWanted: (State, Waiting) -> Bool) -> [Waiting] {
      if waiting.isEmpty { return [] }
      let now = self
      let taken = waiting.filter { isWanted(now, $0) }
      waiting.removeAll { isWanted(now, $0) }
      return taken
    }
  }
}
