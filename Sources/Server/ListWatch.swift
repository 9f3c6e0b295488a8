import Base
import Glibc

/// Hears by inotify(7) that a list may have changed. The thread of ``ListKeeper`` owns it: it is a class only for its
/// `deinit`.
///
/// It watches the folder that a list is in, and, where symbolic links lead to that, the folder of each of them; of a
/// list that is a folder, that one and those below it. What it cannot hear (another machine's writes, a folder that is
/// renamed) shows by stat(2), every few seconds.
final class ListWatch {
  /// The most folders below a list that is a folder: so many watches a user has at least (Linux 5.11).
  private static let mostFolders = 8192
  /// The most links on the way to a list, as in the kernel's path_resolution(7).
  private static let mostLinks = 40
  private static let events = UInt32(
    IN_CLOSE_WRITE | IN_MODIFY | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB)

  private let request: MountRequest
  private let descriptor: FileDescriptor
  /// What a watch is for: the names in that folder; nil: any name.
  private struct Watched {
    var folder: String
    var list: NamedList
    var names: Set<String>?
  }
  private var watched: [Int32: Watched] = [:]
  private var hasToldOfMany = false
  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 8)

  init(_ request: MountRequest) {
    self.request = request
    let number = inotify_init1(Int32(IN_CLOEXEC | IN_NONBLOCK))
    descriptor = FileDescriptor(owning: number)
    if number < 0 { Log.info("changes of the list show after some seconds: inotify: \(Errno.current)") }
  }

  deinit { buffer.deallocate() }

  /// Readable when something may have changed; -1 where that cannot be heard.
  var number: Int32 { descriptor.rawValue }

  /// Watches what the paths lead to now, and nothing else. The kernel keeps one watch for each folder, however often it
  /// is asked.
  func renew() {
    if number < 0 { return }
    let before = watched
    watched = [:]
    for list in request.allLists {
      if let top = request.calling(for: list, { follow(list) }) { addFolders(top, of: list) }
    }
    for watch in before.keys where watched[watch] == nil { _ = inotify_rm_watch(number, watch) }
  }

  /// Follows the path as the kernel does. Another file can come to be at its end by each link on the way, and by the
  /// first name that is missing. Returns the list if it is a folder.
  private func follow(_ list: NamedList) -> String? {
    var place: [String] = []
    var rest = Array(list.path(request.lists).split(separator: "/").map(String.init).reversed())
    var links = 0
    while let name = rest.popLast() {
      if name == "." { continue }
      if name == ".." {
        _ = place.popLast()
        continue
      }
      let folder = Self.text(place)
      place.append(name)
      var status = stat()
      let isThere = lstat(Self.text(place), &status) == 0
      guard isThere, status.st_mode & S_IFMT == S_IFLNK else {
        if isThere, !rest.isEmpty { continue }
        add(folder, name: name, of: list)
        return isThere && status.st_mode & S_IFMT == S_IFDIR ? Self.text(place) : nil
      }
      add(folder, name: name, of: list)
      links += 1
      guard links <= Self.mostLinks, let target = Self.target(of: Self.text(place)) else { return nil }
      if target.hasPrefix("/") { place = [] } else { place.removeLast() }
      rest += target.split(separator: "/").map(String.init).reversed()
    }
    return Self.text(place)  // by `..` at its end
  }

  private func addFolders(_ top: String, of list: NamedList) {
    var folders = [top]
    var next = 0
    while next < folders.count {
      let folder = folders[next]
      next += 1
      let most = Self.mostFolders - folders.count
      folders += request.calling(for: list) {
        add(folder, name: nil, of: list)
        return Self.folders(in: folder, most)
      }
    }
    if folders.count >= Self.mostFolders, !hasToldOfMany {
      hasToldOfMany = true
      Log.warning(
        "the list \(top) has \(Self.mostFolders) folders or more: changes in those beyond show at 'mediafs reload'")
    }
  }

  private static func folders(in folder: String, _ most: Int) -> [String] {
    guard let stream = opendir(folder) else { return [] }
    defer { closedir(stream) }
    var found: [String] = []
    while found.count < most, let entry = readdir(stream) {
      guard entry.pointee.d_type == UInt8(DT_DIR) else { continue }
      let name = withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
      if name != "." && name != ".." { found.append(folder + "/" + name) }
    }
    return found
  }

  private func add(_ folder: String, name: String?, of list: NamedList) {
    let watch = inotify_add_watch(descriptor.rawValue, folder, Self.events | UInt32(IN_ONLYDIR))
    if watch < 0 { return }
    // A list beside its own folder: what is nearer counts.
    guard let name else { return watched[watch] = Watched(folder: folder, list: list, names: nil) }
    watched[watch, default: Watched(folder: folder, list: list, names: [])].names?.insert(name)
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
        guard let place = watched[event.wd] else { continue }
        // In a list that is a folder, other programs keep files of their own.
        let isOfFolder = event.mask & UInt32(IN_ISDIR) != 0 || name.lowercased().hasSuffix(".strm")
        guard place.names.map({ $0.contains(name) }) ?? isOfFolder else { continue }
        // In a list that is a folder, each name counts.
        let came = place.names == nil ? IN_CREATE | IN_DELETE | IN_MOVED_FROM : 0
        if event.mask & UInt32(IN_CLOSE_WRITE | IN_MOVED_TO | came) != 0 {
          found = .closed
        } else if event.mask & UInt32(IN_CREATE) != 0,
          request.calling(for: place.list, { Self.isWhole(place.folder + "/" + name) })
        {
          found = .closed
        } else if event.mask & UInt32(IN_MODIFY) != 0 {
          found = .written
        }
      }
    }
  }

  /// Whether what was made there is whole at once, as a link is: a file has yet to be written.
  private static func isWhole(_ path: String) -> Bool {
    var status = stat()
    return lstat(path, &status) == 0 && status.st_mode & S_IFMT != S_IFREG
  }

  private static func target(of link: String) -> String? {
    var bytes = [UInt8](repeating: 0, count: Int(PATH_MAX))
    let count = readlink(link, &bytes, bytes.count)
    return count > 0 ? String(decoding: bytes[..<count], as: UTF8.self) : nil
  }

  private static func text(_ place: [String]) -> String { "/" + place.joined(separator: "/") }
}

extension ListMark {
  /// What stat(2) tells of the files of all lists, in one; nil if one of them is not there.
  init?(of request: MountRequest) {
    var all: ListMark?
    for list in request.allLists {
      guard let mark = ListMark(of: list, request) else { return nil }
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
    joined.isPlain = isPlain && other.isPlain
    return joined
  }

  /// What stat(2) tells of the file of one of them.
  init?(of list: NamedList, _ request: MountRequest) {
    guard let mark = request.calling(for: list, { ListMark(path: list.path(request.lists)) }) else { return nil }
    self = mark
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
    isPlain = [S_IFREG, S_IFDIR].contains(status.st_mode & S_IFMT)
  }
}
