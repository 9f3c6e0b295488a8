import Base
import Glibc
import Manifest
import Testing

@testable import Storing

/// A temporary folder that is removed when the process ends: catalogs in it may outlive this object.
final class CatalogFolder {
  let path: String

  init() {
    var template = Array("/tmp/mediafs-catalog-XXXXXX".utf8CString)
    if let folder = getenv("TMPDIR"), folder.pointee == 0x2f {
      template = Array((String(cString: folder) + "/mediafs-catalog-XXXXXX").utf8CString)
    }
    precondition(mkdtemp(&template) != nil, "mkdtemp: \(Errno.current)")
    path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    let made = path
    let isFirst = foldersToRemove.withLock { folders in
      folders.append(made)
      return folders.count == 1
    }
    if isFirst { atexit(removeFolders) }
  }

  var catalog: String { path + "/catalog.sqlite" }

  func open(_ access: Catalog.Access = .readWrite, boot: String = "boot 1") throws -> Catalog {
    try Catalog.open(path: catalog, access: access, bootID: Array(boot.utf8))
  }

  func files() -> [String] { fileNames(in: path) }

  func contents(_ name: String) throws -> [UInt8] {
    let descriptor = try FileDescriptor.open(path + "/" + name, O_RDONLY)
    var bytes = [UInt8](repeating: 0, count: Int(try descriptor.status().st_size))
    _ = try bytes.withUnsafeMutableBytes { try descriptor.readFully(at: 0, into: $0) }
    return bytes
  }

  func write(_ bytes: [UInt8], to name: String, at offset: Int64 = 0) throws {
    let descriptor = try FileDescriptor.open(path + "/" + name, O_RDWR | O_CREAT)
    try bytes.withUnsafeBytes { try descriptor.writeFully($0, at: offset) }
  }

  /// All files with their bytes.
  func everything() throws -> [String: [UInt8]] {
    var all: [String: [UInt8]] = [:]
    for name in files() { all[name] = try contents(name) }
    return all
  }

  /// What a crash would leave at this moment: a copy of the database and its log, while they are open.
  func crashed() throws -> CatalogFolder {
    let copy = CatalogFolder()
    for name in files() where !name.hasSuffix("-shm") { try copy.write(contents(name), to: name) }
    return copy
  }
}

private let foldersToRemove = Lock<[String]>([])

// A plain function, for atexit(3).
private func removeFolders() {
  for folder in foldersToRemove.withLock({ $0 }) {
    for name in fileNames(in: folder) { unlink(folder + "/" + name) }
    rmdir(folder)
  }
}

private func fileNames(in path: String) -> [String] {
  guard let folder = opendir(path) else { return [] }
  defer { closedir(folder) }
  var names: [String] = []
  while let item = readdir(folder) {
    let name = withUnsafePointer(to: &item.pointee.d_name) { pointer in
      pointer.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
    }
    if name != "." && name != ".." { names.append(name) }
  }
  return names.sorted()
}

/// The error that `body` throws; nil when it throws none.
func storeError(_ body: () throws -> Void) -> StoreError? {
  do { try body() } catch { return error as? StoreError }
  return nil
}

func key(_ number: UInt64) -> ResourceKey { ResourceKey(high: number &* 0x9E37_79B9_7F4A_7C15, low: number) }

/// An entry of the resource `number` at `path`.
func line(_ path: String, _ number: UInt64, line: Int = 0, mayGain: Bool = false) -> ManifestEntry {
  let parts = path.split(separator: "/").map(String.init)
  return ManifestEntry(
    line: line, urls: ["https://example.com/\(number)"], folder: Array(parts.dropLast()), name: parts[parts.count - 1],
    mayGainExtension: mayGain, key: key(number))
}

extension Catalog {
  /// Imports items one by one: each is a batch of its own.
  func importItems(
    fingerprint: [UInt8], strict: Bool, report: (ManifestProblem) -> Void, taken: () -> Void = {},
    next: () throws(StoreError) -> ManifestItem?
  ) throws(StoreError) -> ImportReport {
    try importBatches(fingerprint: fingerprint, strict: strict, report: report, taken: taken) { () throws(StoreError) in
      guard let item = try next() else { return nil }
      var batch = ImportBatch()
      batch.append(item)
      return batch
    }
  }

  /// Imports the entries, numbered as lines from 1 where they have no line of their own.
  @discardableResult
  func load(
    _ entries: [ManifestEntry], fingerprint: [UInt8] = [1], strict: Bool = false,
    report: (ManifestProblem) -> Void = { _ in }, taken: () -> Void = {}
  ) throws -> ImportReport {
    var index = 0
    return try importItems(
      fingerprint: fingerprint, strict: strict, report: report, taken: taken
    ) { () throws(StoreError) in
      guard index < entries.count else { return nil }
      var entry = entries[index]
      index += 1
      if entry.line == 0 { entry.line = index }
      return .entry(entry)
    }
  }

  /// Every listed path, with its node, by listing folders.
  func listing() throws -> [String: Node] {
    var found: [String: Node] = [:]
    var waiting: [(Inode, String)] = [(rootInode, "")]
    while let (folder, prefix) = waiting.popLast() {
      var cookie: Int64 = 0
      while true {
        let nodes = try tree.list(folder, after: cookie, limit: 3)
        guard let last = nodes.last else { break }
        for node in nodes {
          found[prefix + node.name] = node
          if node.kind == .folder { waiting.append((node.inode, prefix + node.name + "/")) }
        }
        cookie = last.entry
      }
    }
    return found
  }

  func look(_ name: String, in parent: Inode = rootInode) throws -> Node? {
    let bytes = Array(name.utf8)
    return try bytes.withUnsafeBufferPointer { try tree.lookup(parent: parent, name: $0) }
  }
}

enum ProcessEnvironment {
  static func value(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}
