import Base
import Glibc

/// Hears by inotify(7) that a list may have changed. The thread of ``ListKeeper`` owns it: it is a class only for its
/// `deinit`.
///
/// It watches the folder that a list's path names, and the one that the list is in where the path has symbolic links;
/// of a list that is a folder, that one and those below it. What it cannot hear (another machine's writes, a folder
/// that is renamed) shows by stat(2), every few seconds.
final class ListWatch {
  /// The most folders below a list that is a folder: so many watches a user has at least (Linux 5.11).
  private static let mostFolders = 8192
  private static let events = UInt32(
    IN_CLOSE_WRITE | IN_MODIFY | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB)

  private let paths: [String]
  private let descriptor: FileDescriptor
  /// What each watch is for: the names in that folder; nil: any name.
  private var names: [Int32: Set<String>?] = [:]
  private var hasToldOfMany = false
  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 8)

  init(paths: [String]) {
    self.paths = paths
    let number = inotify_init1(Int32(IN_CLOEXEC | IN_NONBLOCK))
    descriptor = FileDescriptor(owning: number)
    if number < 0 { Log.info("changes of the list show after some seconds: inotify: \(Errno.current)") }
  }

  deinit { buffer.deallocate() }

  /// Readable when something may have changed; -1 where that cannot be heard.
  var number: Int32 { descriptor.rawValue }

  /// Watches what the paths lead to now. The kernel keeps one watch for each folder, however often it is asked.
  func renew() {
    if number < 0 { return }
    for path in paths { renew(path) }
  }

  private func renew(_ path: String) {
    add(Self.folder(of: path), name: Self.name(of: path))
    guard let resolved = realpath(path, nil) else { return }
    let place = String(cString: resolved)
    free(resolved)
    if place != path { add(Self.folder(of: place), name: Self.name(of: place)) }
    var status = stat()
    if stat(place, &status) == 0, status.st_mode & S_IFMT == S_IFDIR { addFolders(place) }
  }

  private func addFolders(_ top: String) {
    var folders = [top]
    var next = 0
    while next < folders.count {
      let folder = folders[next]
      next += 1
      add(folder, name: nil)
      guard let stream = opendir(folder) else { continue }
      defer { closedir(stream) }
      while let entry = readdir(stream), folders.count < Self.mostFolders {
        guard entry.pointee.d_type == UInt8(DT_DIR) else { continue }
        let name = withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        if name != "." && name != ".." { folders.append(folder + "/" + name) }
      }
    }
    if folders.count >= Self.mostFolders, !hasToldOfMany {
      hasToldOfMany = true
      Log.warning(
        "the list \(top) has \(Self.mostFolders) folders or more: changes in those beyond show at 'mediafs reload'")
    }
  }

  private func add(_ folder: String, name: String?) {
    let watch = inotify_add_watch(descriptor.rawValue, folder, Self.events | UInt32(IN_ONLYDIR))
    if watch < 0 { return }
    // A list beside its own folder: what is nearer counts.
    guard let name else { return names[watch] = .some(nil) }
    guard let known = names[watch] else { return names[watch] = .some([name]) }
    if let known { names[watch] = .some(known.union([name])) }
  }

  /// Takes what came: the strongest of it.
  func take() -> ListSettling.Event? {
    if number < 0 { return nil }
    var found: ListSettling.Event?
    while true {
      let count = Glibc.read(descriptor.rawValue, buffer.baseAddress, buffer.count)
      if count <= 0 { return found }
      var position = 0
      while position + MemoryLayout<inotify_event>.size <= count {
        let event = buffer.loadUnaligned(fromByteOffset: position, as: inotify_event.self)
        position += MemoryLayout<inotify_event>.size
        let name = String(
          decoding: UnsafeRawBufferPointer(rebasing: buffer[position..<position + Int(event.len)]).prefix { $0 != 0 },
          as: UTF8.self)
        position += Int(event.len)
        if event.mask & UInt32(IN_Q_OVERFLOW) != 0 { return .closed }
        guard let wanted = names[event.wd] else { continue }
        // In a list that is a folder, other programs keep files of their own.
        let isOfFolder = event.mask & UInt32(IN_ISDIR) != 0 || name.lowercased().hasSuffix(".strm")
        guard wanted.map({ $0.contains(name) }) ?? isOfFolder else { continue }
        // In a list that is a folder, each name counts.
        let came = wanted == nil ? IN_CREATE | IN_DELETE | IN_MOVED_FROM : 0
        if event.mask & UInt32(IN_CLOSE_WRITE | IN_MOVED_TO | came) != 0 {
          found = .closed
        } else if event.mask & UInt32(IN_MODIFY) != 0 {
          found = .written
        }
      }
    }
  }

  private static func folder(of path: String) -> String {
    let end = path.lastIndex(of: "/") ?? path.startIndex
    return end == path.startIndex ? "/" : String(path[..<end])
  }

  private static func name(of path: String) -> String { path.split(separator: "/").last.map(String.init) ?? path }
}

extension ListMark {
  /// Whether `path` can be read more than once: unlike a pipe. What is not there may come back.
  static func isReadable(_ path: String) -> Bool {
    var status = stat()
    guard stat(path, &status) == 0 else { return true }
    return [S_IFREG, S_IFDIR].contains(status.st_mode & S_IFMT)
  }

  /// What stat(2) tells of the files of all lists, in one; nil if one of them is not there.
  init?(of request: MountRequest) {
    var all: ListMark?
    for list in request.allLists {
      guard let mark = ListMark(path: list.path(request.lists)) else { return nil }
      all = all.map { $0.joined(with: mark) } ?? mark
    }
    guard let all else { return nil }
    self = all
  }

  /// Another mark for each pair.
  private func joined(with other: ListMark) -> ListMark {
    var joined = self
    joined.device = device &* 31 &+ other.device
    joined.inode = inode &* 31 &+ other.inode
    joined.size = size &* 31 &+ other.size
    joined.modified = modified &* 31 &+ other.modified
    joined.changed = changed &* 31 &+ other.changed
    return joined
  }

  /// What stat(2) tells of a path.
  init?(path: String) {
    var status = stat()
    guard stat(path, &status) == 0 else { return nil }
    self.init(status)
  }

  init(_ status: stat) {
    device = UInt64(status.st_dev)
    inode = UInt64(status.st_ino)
    size = Int64(status.st_size)
    modified = Int64(status.st_mtim.tv_sec) &* 1_000_000_000 &+ Int64(status.st_mtim.tv_nsec)
    changed = Int64(status.st_ctim.tv_sec) &* 1_000_000_000 &+ Int64(status.st_ctim.tv_nsec)
  }
}
