import Base
import Glibc
import Manifest
import Storing

/// Imports the manifest into the catalog, unless the catalog already has this state of it.
enum ManifestImport {
  /// The most problems in the log. The import counts the others.
  private static let listed = 100
  /// The most bytes of a manifest that root waits for.
  private static let mostForRoot: Int64 = 4 << 30
  /// Seconds during which a changed file may change again without a new modification time.
  private static let settling: Int64 = 2

  static func run(
    _ request: MountRequest, input: borrowing FileDescriptor?, list: consuming FileDescriptor?, into catalog: Catalog
  ) throws(StoreError) {
    switch consume list {
    case .some(let file): try run(request, file, cookies: .none, into: catalog)
    case .none:
      let folder = request.readsStandardInput ? nil : request.manifest.split(separator: "/").dropLast()
      let cookies = CookieAccess.files(below: folder.map { "/" + $0.joined(separator: "/") })
      try run(request, open(request, input, rootWaits: false), cookies: cookies, into: catalog)
    }
  }

  /// Opens the manifest of a mount that root makes for a user: before the server is restricted, so that no rule has to
  /// name a file that other programs replace.
  static func openForRoot(_ request: MountRequest, _ input: borrowing FileDescriptor?) throws(ServerError)
    -> FileDescriptor
  {
    do throws(StoreError) {
      let file = try open(request, input, rootWaits: true)
      if !request.readsStandardInput { try checkSize(of: file, request) }
      return file
    } catch {
      throw .failed(error.message)
    }
  }

  /// If root mounts for a user, the manifest has a bound: a file of holes may be as large as its filesystem allows.
  private static func checkSize(of file: borrowing FileDescriptor, _ request: MountRequest) throws(StoreError) {
    let size: Int64
    do throws(Errno) { size = Int64(try file.status().st_size) } catch {
      throw StoreError(kind: .io(error), message: "cannot look at the manifest \(request.manifest): \(error)")
    }
    if size <= mostForRoot { return }
    throw StoreError(
      kind: .invalid,
      message: "the manifest \(request.manifest) has \(size) bytes: with user=NAME, mediafs reads at most "
        + "\(mostForRoot >> 30) GiB; split the list")
  }

  /// Opens the manifest. A user's own mount may read it from a FIFO, and waits for its writer. If root mounts for a
  /// user, the manifest must be a plain file, because the user could otherwise make root wait for ever.
  private static func open(
    _ request: MountRequest, _ input: borrowing FileDescriptor?, rootWaits: Bool
  ) throws(StoreError) -> FileDescriptor {
    do throws(PlainFileError) {
      if rootWaits, !request.readsStandardInput { return try FileDescriptor.openPlain(request.manifest) }
      do throws(Errno) {
        guard request.readsStandardInput else { return try FileDescriptor.open(request.manifest, O_RDONLY) }
        switch input {
        // A new open file description, so that each server reads the input from its start.
        case .some(let given): return try FileDescriptor.open("/proc/self/fd/\(given.rawValue)", O_RDONLY)
        case .none: throw .invalid
        }
      } catch {
        throw .system(error)
      }
    } catch .kind(let kind) {
      throw StoreError(
        kind: .invalid,
        message: "the manifest \(request.manifest) is \(kind): with user=NAME, mediafs reads plain files only; "
          + "write the list to a plain file")
    } catch {
      throw StoreError(
        kind: .invalid, message: "cannot read the manifest \(name(of: request)): \(error); check --manifest")
    }
  }

  private static func name(of request: MountRequest) -> String {
    request.readsStandardInput ? "standard input" : request.manifest
  }

  private static func run(
    _ request: MountRequest, _ file: consuming FileDescriptor, cookies: CookieAccess, into catalog: Catalog
  ) throws(StoreError) {
    let name = name(of: request)
    let fingerprint = try fingerprint(of: file, request)
    if !fingerprint.isEmpty, try catalog.importedFingerprint() == fingerprint {
      Log.debug("the manifest is unchanged")
      return
    }
    let reader: ManifestReader
    do throws(ManifestError) {
      let base = try request.baseURL.map { (url) throws(ManifestError) in try ManifestBase(url: url) } ?? .none
      reader = try ManifestReader(descriptor: file, name: name, base: base, format: request.format, cookies: cookies)
    } catch {
      throw StoreError(kind: .invalid, message: "\(error)")
    }
    var problems = 0
    let report = try catalog.importManifest(reader, fingerprint: fingerprint, strict: request.strict) { problem in
      problems += 1
      guard problems <= listed else { return }
      Log.warning("\(name):\(problem.line): \(problem.message)")
    }
    if problems > listed {
      Log.warning("\(name): \(problems - listed) more problems; `mediafs check` lists them all")
    }
    Log.debug("\(name): \(report.files) files in \(report.folders) folders")
  }

  /// A value that changes with the manifest; empty if the file changed too recently to tell.
  private static func fingerprint(
    of file: borrowing FileDescriptor, _ request: MountRequest
  ) throws(StoreError) -> [UInt8] {
    let status: stat
    do throws(Errno) {
      status = try file.status()
    } catch {
      throw StoreError(kind: .invalid, message: "cannot read the manifest \(name(of: request)): \(error)")
    }
    if request.readsStandardInput {
      let digest = try Digester.digest(of: file.rawValue, size: Int64(status.st_size), .sha256) ?? []
      return tagged("stdin", request, digest)
    }
    guard status.st_mode & S_IFMT == S_IFREG, Int64(time(nil)) - Int64(status.st_mtim.tv_sec) > settling else {
      return []
    }
    let numbers = [
      Int64(status.st_dev), Int64(status.st_ino), Int64(status.st_size), Int64(status.st_mtim.tv_sec),
      Int64(status.st_mtim.tv_nsec), Int64(status.st_ctim.tv_sec), Int64(status.st_ctim.tv_nsec),
    ]
    return tagged("file", request, Array("\(numbers) \(request.manifest)".utf8))
  }

  /// The fingerprint includes the importer's version and the options that change the result.
  private static func tagged(_ kind: String, _ request: MountRequest, _ rest: [UInt8]) -> [UInt8] {
    Array("2 \(kind) \(request.strict) \(request.baseURL ?? "") \(request.format?.rawValue ?? "") ".utf8) + rest
  }
}

/// The environment variables that the store's default path depends on.
func processEnvironment() -> [String: String] {
  var result: [String: String] = [:]
  for name in ["HOME", "XDG_DATA_HOME", "USER"] {
    if let value = getenv(name) { result[name] = String(cString: value) }
  }
  return result
}
