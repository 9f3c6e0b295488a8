import Base
import Glibc
import Storing

/// The files and folders that the server of a mount for another user needs. All paths are without symbolic links.
///
/// A server that was made to do what it should not may put links into the folders that it writes to, for the next
/// server to follow. So no such link leads to a place.
struct ServerPlaces {
  /// What the server reads of the system, where it exists: name service, certificates, time zones, libraries, the names
  /// of the programs that read.
  private static let system = [
    "/etc", "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf", "/run/nscd", "/var/lib/sss",
    "/var/lib/ca-certificates", "/usr", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store", "/proc",
    "/sys/devices/system/cpu", "/dev/urandom",
  ]

  /// The store.
  private(set) var store = ""
  /// What it writes, and reads.
  private(set) var written: [String] = []
  /// What it only reads.
  private(set) var read: [String] = []
  /// The records of mounts, which only the first server of a mount writes: it may have put links there.
  private var records: String?

  /// Creates the folders of a new mount, as the server would do later. With `goesOn` they are there.
  init(
    _ request: MountRequest, goesOn: Bool, environment: [String: String] = processEnvironment()
  ) throws(ServerError) {
    do throws(StoreError) {
      let path = try OpenedStore.path(request, environment)
      if !goesOn {
        // A store that knows copies refuses a library without them. An empty folder in the place of a disk that is not
        // there would help nobody.
        let isNew = access("\(path)/catalog.sqlite", F_OK) != 0
        try makeFolder(path, mode: 0o700)
        if isNew, let library = request.storage.library { try makeFolder(library, mode: 0o755) }
      }
      try write(path)
      store = written.first ?? path
      try write(request.storage.library ?? "\(store)/library")
      try writeRecords(environment, goesOn: goesOn)
      if let file = request.metricsFile { try writeMetrics(file, home: environment["HOME"]) }
      // What is opened before has no rule. And the store may be in the library.
      let places = request.allLists.map { Optional($0.place) }
      for opened in places + [path, request.log.file, request.log.file.map { $0 + ".1" }] {
        if let opened, opened.hasPrefix("/") { _ = try follow(opened) }
      }
      for list in request.fileLists { try read(list.place) }
      try read(request.origins.certificateFile)
      if request.share.place != nil { for file in MountSharing.keyFiles { try read(file) } }
      try read(request.origins.netrcFile ?? getenv("HOME").map { String(cString: $0) + "/.netrc" })
    } catch {
      throw .failed(error.message)
    }
    written.append("/dev/null")
    read += Self.system.compactMap { Self.canonical($0) }
    readResolver("/etc/resolv.conf")
  }

  /// The name servers. Programs replace that file, so it is its folder that counts, where that is a program's own.
  /// Where others have files in it too, the file itself has a rule.
  mutating func readResolver(_ path: String) {
    guard let link = Self.target(of: path) else { return }  // as it is in /etc
    let target = link.hasPrefix("/") ? link : Self.folder(of: path) + "/" + link
    let file = Self.canonical(target)
    let folder = file.map(Self.folder) ?? Self.canonical(Self.folder(of: target))
    if let folder, folder.hasPrefix("/run/") || folder.hasPrefix("/mnt/") { return read.append(folder) }
    if let file { return read.append(file) }
    Log.warning(
      "\(path) leads to \(target), which is not there: the server will not find hosts by their names, until it is there "
        + "and the mount is made anew, or upgraded")
  }

  private static func folder(of path: String) -> String {
    String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])
  }

  /// The records of the user's mounts. Without a home there are none: the server says so when it writes its own.
  private mutating func writeRecords(_ environment: [String: String], goesOn: Bool) throws(StoreError) {
    let folder: String
    do throws(StoreError) {
      folder = try MountRegistry(environment: environment, uid: geteuid()).writableFolder
      if !goesOn { try makeFolder(folder, mode: 0o700) }
    } catch {
      Log.debug(error.message)
      return
    }
    if goesOn { records = Self.canonical(folder) } else { try write(folder) }
  }

  /// The folder of the metrics file, in which the server makes a new file each time, and renames it. A rule for the
  /// user's home, or for a folder around it, would give the server all that the user has.
  private mutating func writeMetrics(_ file: String, home: String?) throws(StoreError) {
    let named = Self.folder(of: file)
    guard let folder = try named.isEmpty ? "" : follow(named) else { return }  // the server says that it is not there
    let homes = [home, getpwuid(geteuid()).map { String(cString: $0.pointee.pw_dir) }].compactMap { $0 }
    let isAround = homes.compactMap(Self.canonical).contains { ($0 + "/").utf8.starts(with: (folder + "/").utf8) }
    guard !isAround, !folder.isEmpty else {
      throw StoreError(
        kind: .invalid,
        message: "the metrics file \(file) is in the home of the mount's user, or around it: the server would get all "
          + "of that; name a file in a folder of its own")
    }
    try write(folder)
  }

  /// The program of `--on`, and files that it is given, must not be where the server writes: one that was made to do
  /// what it should not would put another there, and the launcher would run that without restriction.
  func check(program words: [String], of option: String) throws(ServerError) {
    var files = words.dropFirst().filter { $0.utf8.first == UInt8(ascii: "/") }
    if let name = words.first, case .success(let path) = Launcher.find(name, for: option) { files.append(path) }
    for file in files {
      let place: String?
      do throws(StoreError) { place = try follow(file) } catch { throw .failed("\(option): \(error.message)") }
      if isWritten(place ?? file) {
        throw .failed(
          "\(option): \(file) lies where the server of a mount for another user writes (store, library, metrics): "
            + "put it into another folder")
      }
    }
  }

  private mutating func write(_ path: String) throws(StoreError) {
    if let place = try follow(path), !isWritten(place) { written.append(place) }
  }

  private mutating func read(_ path: String?) throws(StoreError) {
    if let path, let place = try follow(path), !isWritten(place) { read.append(place) }
  }

  private func isWritten(_ path: String) -> Bool { written.contains { Self.isIn($0, path) } }

  private static func isIn(_ folder: String, _ path: String) -> Bool {
    path == folder || path.utf8.starts(with: (folder + "/").utf8)
  }

  private static func canonical(_ path: String) -> String? {
    guard let resolved = realpath(path, nil) else { return nil }
    defer { free(resolved) }
    return String(cString: resolved)
  }

  /// As realpath(3): nil if nothing is there. Throws if a link leads out of a folder that the server writes to.
  func follow(_ path: String) throws(StoreError) -> String? {
    var rest = Self.names(path)
    var place = ""
    var links = 0
    while let name = rest.popLast() {
      if name == ".." {
        place = String(place[..<(place.lastIndex(of: "/") ?? place.startIndex)])
        continue
      }
      let next = place + "/" + name
      guard let target = Self.target(of: next) else {
        place = next
        continue
      }
      if isWritten(place) || records.map({ Self.isIn($0, place) }) == true {
        throw StoreError(
          kind: .invalid,
          message: "\(next) is a symbolic link, which the server of a mount for another user does not follow: name "
            + "the folder or file itself in the option")
      }
      links += 1
      if links > 40 { return nil }  // ELOOP
      if target.utf8.first == UInt8(ascii: "/") { place = "" }
      rest += Self.names(target)
    }
    return access(place, F_OK) == 0 ? place : nil
  }

  /// The components of a path, the last one first.
  private static func names(_ path: String) -> [String] {
    path.utf8.split(separator: UInt8(ascii: "/")).map { String(Substring($0)) }.filter { $0 != "." }.reversed()
  }

  private static func target(of link: String) -> String? {
    var target = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = readlink(link, &target, target.count)
    guard count > 0 else { return nil }
    return String(decoding: target[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}
