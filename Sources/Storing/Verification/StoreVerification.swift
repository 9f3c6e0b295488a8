import Base
import Glibc
import Manifest

/// Reads a whole store back and compares it with what its catalog claims. Repairs it if the user asks for that.
///
/// No server may use the store meanwhile: the verification holds its lock. A repair first makes the catalog forget what
/// is wrong, durably, and changes files only then. It deletes partial files that belong to no generation, but never a
/// file of the library.
package struct StoreVerification {
  let catalog: Catalog
  let folder: StoreFolder
  /// Nil if the library is missing: then its copies are missing, too.
  let library: LibraryFolder?
  let libraryPath: String
  let repairs: Bool
  var report = StoreVerificationReport()
  /// The copies that the server was placing when it was killed.
  private var placing: [Int64: String] = [:]

  /// Verifies the store at `path`, which must exist, with its library at `library`.
  ///
  /// Throws `.busy` while a server (which the message names) uses the store, `.corrupt` for a catalog that cannot be
  /// opened, and `.newer` for one of a newer version.
  package static func run(
    store path: String, mountpoint: String, library: String, repairs: Bool
  ) throws(StoreError) -> StoreVerificationReport {
    var status = stat()
    guard stat(path + "/catalog.sqlite", &status) == 0 else {
      throw .file(.current, "there is no store at \(path)")
    }
    let folder = try StoreFolder.open(path, mountpoint: mountpoint, wait: 0)
    let catalog = try Catalog.open(path: folder.catalogPath, access: repairs ? .readWrite : .readOnly)
    // Opening a library creates its folder, which a check must not do.
    let isThere = stat(library, &status) == 0
    var verification = StoreVerification(
      catalog: catalog, folder: folder, library: isThere ? try LibraryFolder(library) : nil, libraryPath: library,
      repairs: repairs)
    try verification.verify()
    try catalog.close()
    return verification.report
  }

  private init(catalog: Catalog, folder: StoreFolder, library: LibraryFolder?, libraryPath: String, repairs: Bool) {
    self.catalog = catalog
    self.folder = folder
    self.library = library
    self.libraryPath = libraryPath
    self.repairs = repairs
  }

  private mutating func verify() throws(StoreError) {
    for problem in try catalog.integrityProblems(limit: 20) {
      find(
        .catalog, folder.catalogPath,
        "\(problem); move the catalog away and mount again: copies in the library stay, mediafs downloads the rest")
    }
    if repairs { try forgetUnreadable() }
    if let reason = try KnownLibrary.isStrange(libraryPath, to: catalog) { find(.library, libraryPath, reason) }
    // Before a repair, recovery completes what a crash interrupted, so that it does not count as damage.
    if repairs, let library { try StoreRecovery.run(catalog: catalog, folder: folder, library: library) }
    for (generation, path) in try catalog.generations.placements() { placing[generation.id] = path }
    var known: Set<Int64> = []
    var last: Int64 = 0
    while true {
      let ids = try catalog.generations.ids(limit: 256, after: last)
      guard let end = ids.last else { break }
      for id in ids { if try verify(generation: id) { known.insert(id) } }
      last = end
    }
    try findOrphans(known)
  }

  /// Verifies one generation; whether it may have a partial file.
  private mutating func verify(generation id: Int64) throws(StoreError) -> Bool {
    let generation: GenerationRecord
    do throws(StoreError) {
      guard let found = try catalog.generations.find(id) else { return false }
      generation = found
    } catch {
      try noteUnreadable(id, error)
      return true
    }
    switch generation.state {
    case .partial:
      if let path = placing[id], let library, try isPlaced(generation, at: path, in: library) { return true }
      try verifyPartial(generation)
      return true
    case .superseded: return true  // the next mount removes it
    case .complete:
      try verifyCopy(generation)
      return false
    }
  }

  /// Recovery, which the next mount needs as well, ends at a row that it cannot read.
  private mutating func forgetUnreadable() throws(StoreError) {
    var last: Int64 = 0
    while true {
      let ids = try catalog.generations.ids(limit: 256, after: last)
      guard let end = ids.last else { return }
      for id in ids {
        do throws(StoreError) { _ = try catalog.generations.find(id) } catch { try noteUnreadable(id, error) }
      }
      last = end
    }
  }

  /// The row of a generation is damaged: a repair deletes it.
  private mutating func noteUnreadable(_ id: Int64, _ error: StoreError) throws(StoreError) {
    guard error.kind == .corrupt else { throw error }
    if repairs { try catalog.changes.apply([.forgotten(generation: id)], durably: true) }
    find(.catalog, folder.catalogPath, error.message, repair: repairs ? Self.forgotten : nil)
  }

  /// Whether a copy that the server was placing has arrived: the next mount notes that.
  private func isPlaced(
    _ generation: GenerationRecord, at path: String, in library: LibraryFolder
  ) throws(StoreError) -> Bool {
    let isThere = try calling("cannot look at the partial file \(generation.id)") { () throws(Errno) in
      try folder.directory.status(of: "\(StoreFolder.partials)/\(generation.id)") != nil
    }
    return try library.recover(
      intent: path, size: generation.size ?? -1, modified: generation.validators.lastModified, partialExists: isThere)
      != nil
  }

  // MARK: - Repairs

  /// Notes a finding.
  mutating func find(_ kind: StoreFinding.Kind, _ subject: String, _ message: String, repair: String? = nil) {
    report.findings.append(StoreFinding(kind: kind, subject: subject, message: message, repair: repair))
  }

  /// What a repair says of a file that the catalog forgot.
  private static let forgotten = "forgotten: mediafs downloads it again when it is read"

  /// Makes the catalog forget what is stored of a generation, durably, if this is a repair.
  func drop(_ id: Int64) throws(StoreError) -> String? {
    guard repairs else { return nil }
    try catalog.changes.apply([.dropped(generation: id)], durably: true)
    return Self.forgotten
  }

  /// The path in the mount, or else the one in the store.
  func subject(_ generation: GenerationRecord, else path: String) throws(StoreError) -> String {
    try catalog.tree.entries(of: generation.key).map(\.path).min() ?? path
  }

  private mutating func findOrphans(_ known: Set<Int64>) throws(StoreError) {
    for name in try folder.partialNames().sorted() {
      if let id = Int64(name), "\(id)" == name, known.contains(id) { continue }
      let path = "\(folder.path)/\(StoreFolder.partials)/\(name)"
      let isOurs = Int64(name).map { $0 > 0 && "\($0)" == name } ?? false
      guard isOurs else {
        find(.orphan, path, "is not a partial file of mediafs, and stays")
        continue
      }
      var repair: String?
      if repairs {
        do throws(Errno) {
          try folder.directory.remove("\(StoreFolder.partials)/\(name)")
          repair = "removed"
        } catch {
          repair = "mediafs could not remove it: \(error)"
        }
      }
      find(.orphan, path, "belongs to no generation in the catalog", repair: repair)
    }
  }
}

extension StoreFolder {
  /// All names in the folder of the partial files.
  func partialNames() throws(StoreError) -> [String] {
    try calling("cannot list \(path)/\(StoreFolder.partials)") { () throws(Errno) in
      try directory.folder(StoreFolder.partials).names()
    }
  }
}
