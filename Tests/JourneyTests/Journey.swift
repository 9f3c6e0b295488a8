import Base
import Glibc
import TestSupport
import Testing

/// Who mounts.
enum Traveller: Sendable, CustomTestStringConvertible {
  case root
  /// An ordinary user, through fusermount3: one of the tests' own when we are root, else ourselves.
  case user

  /// Everyone whom we can be.
  static var all: [Traveller] { TestUser.canSwitch ? [.root, .user] : [.user] }
  /// For what does not depend on who it is.
  static var any: Traveller { TestUser.canSwitch ? .root : .user }

  var testDescription: String { self == .root ? "root" : "an ordinary user" }
}

/// A folder with a manifest, a store, a library and a place to mount at, and the real programs to do it with.
///
/// Mounts are remembered below the folder, never among the user's own. ``withJourney(_:_:)`` leaves nothing behind.
final class Journey: Sendable {
  /// Belongs to the traveller.
  let folder: TemporaryFolder
  private let program: MountedProgram
  let library: String
  var user: TestUser? { program.user }
  var mountpoint: String { program.mountpoint }
  var manifest: String { program.manifest }
  var store: String { program.store }
  /// The variables of every program that is run.
  var environment: [String: String?] { program.environment }

  init(_ traveller: Traveller) throws {
    let user = traveller == .user && TestUser.canSwitch ? try SharedTraveller.user() : nil
    folder = try TemporaryFolder(open: true)
    if let user { try #require(chown(folder.path, user.userID, user.groupID) == 0) }
    library = folder.file("library")
    program = MountedProgram(
      in: folder, program: try Programs.path("mediafs"), mountpoint: "media", library: library, user: user)
    try SharedTraveller.openDevice()
  }

  // MARK: Programs

  /// Runs a program as the traveller.
  @discardableResult
  func run(_ arguments: [String], input: [UInt8]? = nil, timeout: Double = 120) throws -> CommandResult {
    try program.runProgram(arguments, input: input, timeout: timeout)
  }

  /// As ``run(_:input:timeout:)``; the test fails unless it ends with 0. Gives its standard output.
  @discardableResult
  func succeed(
    _ arguments: [String], input: [UInt8]? = nil, timeout: Double = 120,
    sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> String {
    let result = try run(arguments, input: input, timeout: timeout)
    try #require(
      result.succeeded,
      "\(arguments.joined(separator: " ")): \(result.status) \(result.errors)\(result.output.suffix(2000))",
      sourceLocation: sourceLocation)
    if arguments.first == "cmp", arguments.count == 3 {
      var status = stat()
      if stat(arguments[2], &status) == 0 { Figures.add("bytes compared", Int(status.st_size)) }
    }
    return result.output
  }

  /// Starts a program as the traveller.
  func start(_ arguments: [String]) throws -> BackgroundProcess {
    try BackgroundProcess(arguments, environment: environment, folder: folder.path, user: user)
  }

  /// `mediafs` with these arguments.
  @discardableResult
  func mediafs(_ arguments: String..., input: [UInt8]? = nil) throws -> CommandResult {
    try program.run(arguments, input: input)
  }

  /// A script of Python, with arguments.
  @discardableResult
  func python(
    _ script: String, _ arguments: String..., sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> String {
    try succeed(["/usr/bin/python3", "-c", script] + arguments, sourceLocation: sourceLocation)
  }

  // MARK: Mounting

  /// The command that mounts.
  func mountCommand(_ options: [String] = []) throws -> [String] { program.mountCommand(options) }

  /// Writes the manifest, belonging to the traveller.
  func list(_ text: String) throws {
    try folder.write(text, to: "urls.txt")
    if let user { try #require(chown(manifest, user.userID, user.groupID) == 0) }
  }

  /// Mounts in the background, with the manifest that is there or this one.
  func mount(_ text: String? = nil, _ options: String..., sourceLocation: SourceLocation = #_sourceLocation) throws {
    if let text { try list(text) }
    try succeed(try mountCommand(options), sourceLocation: sourceLocation)
    try #require(Mounts.isMounted(mountpoint), sourceLocation: sourceLocation)
  }

  /// `mediafs unmount`, which must succeed and leave no mount.
  func unmount(sourceLocation: SourceLocation = #_sourceLocation) throws {
    let command = [try Programs.path("mediafs"), "unmount", mountpoint]
    var result = try run(command)
    // A child that another test starts has this process's descriptors until it runs its program.
    for _ in 0..<20 where !result.succeeded && result.errors.contains(" is busy. ") {
      sleep(seconds: 0.2)
      result = try run(command)
    }
    try #require(result.succeeded, "\(result)", sourceLocation: sourceLocation)
    #expect(!Mounts.isMounted(mountpoint), sourceLocation: sourceLocation)
  }

  /// A path in the mount.
  func at(_ name: String) -> String { "\(mountpoint)/\(name)" }
  /// A path in the library.
  func kept(_ name: String) -> String { "\(library)/\(name)" }

  // MARK: Status

  typealias Status = MountStatus

  func status() throws -> Status { try program.status() }

  /// Waits until the file of that path is in that state.
  func wait(
    for state: String, _ path: String, timeout: Double = 60, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    var last = ""
    let came = try eventuallyTrue(timeout: timeout) {
      last = try status().file(path).state
      return last == state
    }
    try #require(came, "\(path) is \(last), not \(state)", sourceLocation: sourceLocation)
  }

  /// Waits until as much of it is stored.
  func wait(
    forStored bytes: Int64, _ path: String, timeout: Double = 60, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let came = try eventuallyTrue(timeout: timeout) { try status().file(path).stored >= bytes }
    try #require(came, "\(path): \(bytes) bytes are not stored", sourceLocation: sourceLocation)
  }

  // MARK: The end

  /// Unmounts, whatever state it is in, and removes everything.
  func end() throws {
    do { try program.end() } catch { Issue.record("\(error)") }
    try folder.remove()
  }

  /// What the server logged: for a test that failed.
  var log: String { readText(store + "/mediafs.log") }
}

/// The text of a file, empty when it cannot be read.
func readText(_ path: String) -> String {
  var text = ""
  guard let file = fopen(path, "r") else { return "" }
  defer { fclose(file) }
  var piece = [UInt8](repeating: 0, count: 1 << 16)
  while true {
    let count = fread(&piece, 1, piece.count, file)
    if count == 0 { return text }
    text += String(decoding: piece[..<count], as: UTF8.self)
  }
}

private func eventuallyTrue(timeout: Double, _ condition: () throws -> Bool) throws -> Bool {
  let end = Instant.now.adding(seconds: timeout)
  while Instant.now < end {
    if try condition() { return true }
    sleep(seconds: 0.1)
  }
  return try condition()
}

/// Lends a journey, watched; ends it afterwards, and prints the server's log when the body throws.
func withJourney(
  _ traveller: Traveller = .any, seconds: Double = 300, what: String = #function, _ body: (Journey) throws -> Void
) throws {
  try withWatchdog(seconds, what) {
    let journey = try Journey(traveller)
    do {
      try body(journey)
    } catch {
      print("\(what) (\(traveller.testDescription)): the server's log:\n\(journey.log.suffix(8000))")
      do { try journey.end() } catch { print("\(error)") }  // the body's error is the one to tell
      throw error
    }
    try journey.end()
  }
}

/// The programs, where any user can run them: the build's own folder may be closed to others.
enum Programs {
  private static let folder = Lock<TemporaryFolder?>(nil)

  /// The path of `mediafs`, `mount-helper` or `mount.mediafs`.
  static func path(_ name: String) throws -> String {
    if let there = folder.withLock({ $0 }) { return there.file(name) }
    let new = try TemporaryFolder(open: true)
    for program in ["mediafs", "mount-helper"] {
      try Command.succeed(["cp", builtProduct(program), new.file(program)])
    }
    try #require(symlink("mount-helper", new.file("mount.mediafs")) == 0)
    let kept = folder.withLock { folder in
      if folder == nil { folder = new }
      return folder
    }
    if kept === new { atexit(removePrograms) } else { try new.remove() }
    return (kept ?? new).file(name)
  }

  fileprivate static func remove() { try? folder.withLock { $0 }?.remove() }  // at exit: nobody is left to tell
}

/// The ordinary user of the tests, and a device that it may open; both as they were when the process ends.
enum SharedTraveller {
  private static let made = Lock<TestUser?>(nil)
  private static let mode = Lock<mode_t?>(nil)

  static func user() throws -> TestUser {
    try made.withLock { made in
      if let made { return made }
      let isNew = TestUser(named: "mediafs-journey") == nil
      let user = try TestUser.make(named: "mediafs-journey")
      if isNew { atexit(removeTraveller) }
      made = user
      return user
    }
  }

  static func openDevice() throws {
    guard TestUser.canSwitch else { return }
    try mode.withLock { mode in
      guard mode == nil else { return }
      var status = stat()
      try #require(stat("/dev/fuse", &status) == 0)
      mode = status.st_mode & 0o777
      try #require(chmod("/dev/fuse", 0o666) == 0)
      atexit(restoreDevice)
    }
  }

  fileprivate static func restore() {
    if let mode = mode.withLock({ $0 }) { chmod("/dev/fuse", mode) }
  }
  fileprivate static func removeUser() { try? made.withLock { $0 }?.remove() }  // at exit: nobody is left to tell
}

// Plain functions: atexit calls them from C.
private func removePrograms() { Programs.remove() }
private func removeTraveller() { SharedTraveller.removeUser() }
private func restoreDevice() { SharedTraveller.restore() }
