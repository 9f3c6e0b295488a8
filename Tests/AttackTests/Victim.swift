import Base
import Glibc
import TestSupport

/// A real mount to be attacked: an origin, a manifest, a store of its own, and `mediafs` as users call it.
final class Victim: Sendable {
  let folder: TemporaryFolder
  let origin: Origin
  private let program: MountedProgram
  var mountpoint: String { program.mountpoint }
  var store: String { program.store }
  var mediafs: String { program.program }
  var log: String { folder.file("mediafs.log") }
  /// What a command gets besides our environment.
  var environment: [String: String?] { program.environment }

  /// Mounts nothing yet. The folder may be entered by others, so that only the store's own modes protect it.
  init() throws {
    folder = try TemporaryFolder(open: true)
    origin = try Origin()
    program = MountedProgram(
      in: folder, environment: ["HOME": try folder.makeFolder("home"), "TMPDIR": folder.path])
    try folder.makeFolder("mnt")
    try folder.makeFolder("data")
  }

  /// Runs `mediafs` to its end.
  func run(_ arguments: [String], _ more: [String: String?] = [:], user: TestUser? = nil) throws -> CommandResult {
    guard let user else { return try program.run(arguments, environment: more) }
    return try Command.run(
      [mediafs] + arguments, environment: environment.merging(more) { _, new in new }, timeout: 120, user: user)
  }

  /// Mounts the manifest; throws when that does not work.
  func mount(_ manifest: String, _ options: [String] = [], _ more: [String: String?] = [:]) throws -> CommandResult {
    try folder.write(manifest, to: "urls.txt", mode: 0o600)
    let command = program.mountCommand(["--log-file", log, "-v"] + options)
    let result = try program.runProgram(command, environment: more)
    guard result.succeeded else {
      throw CommandFailure.failed(command: "mediafs mount", status: result.status, errors: result.errors)
    }
    return result
  }

  /// Unmounts and waits for the server's end.
  func unmount() throws { _ = try program.unmount() }

  /// The mount helper and the server.
  func processes() throws -> [(id: String, name: String)] {
    try names(in: "/proc").filter { Int32($0) != nil }.compactMap { id in
      guard let bytes = try? contents(of: "/proc/\(id)/cmdline") else { return nil }
      let words = bytes.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
      if words.first == "mount-helper", words.contains(mountpoint) { return (id, "mount-helper") }
      guard words.starts(with: ["mediafs", "serve"]), let helper = parent(of: id),
        let above = try? contents(of: "/proc/\(helper)/cmdline"),
        String(decoding: above, as: UTF8.self).contains(mountpoint)
      else { return nil }
      return (id, "server")
    }
  }

  private func parent(of id: String) -> String? {
    guard let bytes = try? contents(of: "/proc/\(id)/status") else { return nil }
    let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
    return lines.first { $0.hasPrefix("PPid:") }.map { String($0.dropFirst(5).drop { $0 == "\t" || $0 == " " }) }
  }

  /// Unmounts, stops the origin, removes the folder.
  func end() throws {
    do { try unmount() } catch { Log.warning("\(error)") }
    origin.stop()
    try folder.remove()
  }
}

/// Lends a mount that can be made, and takes all of it away.
func withVictim(_ body: (Victim) throws -> Void) throws {
  let victim = try Victim()
  do { try body(victim) } catch {
    do { try victim.end() } catch { Log.warning("\(error)") }
    throw error
  }
  try victim.end()
}

/// Every file and folder below `path`, with what lstat(2) says; nothing across another filesystem.
func everything(below path: String) throws -> [(path: String, status: stat)] {
  var top = stat()
  guard lstat(path, &top) == 0 else { throw Errno.current }
  var found = [(path: path, status: top)]
  var folders = [path]
  while let folder = folders.popLast() {
    for name in try names(in: folder) {
      var status = stat()
      let path = "\(folder)/\(name)"
      guard lstat(path, &status) == 0, status.st_dev == top.st_dev else { continue }
      found.append((path, status))
      if status.st_mode & S_IFMT == S_IFDIR { folders.append(path) }
    }
  }
  return found
}
