import Base
import Glibc
import TestSupport
import Testing

/// Whose service it is.
enum ServiceOwner: Sendable, CaseIterable, CustomTestStringConvertible {
  /// The system's.
  case root
  /// The system's, with `user = NAME`.
  case rootForUser
  /// A user's own, under `systemd --user`.
  case user

  var testDescription: String {
    switch self {
    case .root: "the system's"
    case .rootForUser: "the system's, for a user"
    case .user: "a user's"
    }
  }
}

/// A mount that is a service of a system of its own, with the project's unit.
struct ServicePlace {
  let system: BootedSystem
  let folder: TemporaryFolder
  let origin: Origin
  let mediafs: String
  /// How the service's manager is spoken to.
  let manager: [String]
  let unit = "mediafs@x"

  /// What a command begins with that is the owner's.
  let asOwner: [String]

  var mountpoint: String { folder.file("media") }
  var file: String { mountpoint + "/a.bin" }
  /// What the processes of the service wrote.
  var log: String { readText(folder.file("service.log")) }

  /// Lends a place whose service has the options of `conf`, besides list, mountpoint and store. `settings`: more lines
  /// for the unit's `[Service]`.
  static func with(
    _ owner: ServiceOwner = .root, _ conf: String = "", settings: String = "", _ body: (ServicePlace) throws -> Void
  ) throws {
    let user = owner == .root ? nil : try SharedTraveller.user()
    if owner == .user { try SharedTraveller.openDevice() }
    try withWatchdog(300, "a service") {
      try withOrigin { origin in
        origin.add("/a.bin", size: 300_000)
        try withBootedSystem { folder in
          let mediafs = folder.file("mediafs")
          for name in ["mediafs", "mount-helper"] {
            try Command.succeed(["cp", builtProduct(name), folder.file(name)])
          }
          let kind = owner == .user ? "user" : "system"
          let units = "etc/systemd/\(kind)"
          for name in ["etc/mediafs", "etc/systemd", "etc/systemd/system", units, units + "/mediafs@.service.d"]
          where access(folder.file(name), F_OK) != 0 { _ = try folder.makeFolder(name) }
          try folder.write(unitText(kind, mediafs), to: units + "/mediafs@.service")
          try folder.write(
            "[Service]\nStandardOutput=append:\(folder.file("service.log"))\n"
              + "StandardError=append:\(folder.file("service.log"))\nRestartSec=100ms\n\(settings)\n",
            to: units + "/mediafs@.service.d/test.conf")
          try folder.write(origin.url("/a.bin") + "\n", to: "urls.txt")
          var text = Self.conf(folder) + conf
          if owner == .rootForUser, let user { text += "user = \(user.name)\nallow_other\n" }
          if owner == .user, let user {
            for name in [".config", ".config/mediafs"] { _ = try folder.makeFolder(name) }
            try folder.write(text, to: ".config/mediafs/x.conf")
            try folder.write(managerUnit(user, folder), to: "etc/systemd/system/manager.service")
          } else {
            try folder.write(text, to: "etc/mediafs/x.conf")
          }
          if let user {
            _ = try folder.makeFolder("store")
            for name in ["", "store", "urls.txt"] {
              try #require(chown(folder.path + "/" + name, user.userID, user.groupID) == 0)
            }
          }
        } _: { system, folder in
          var manager = ["systemctl"]
          if owner == .user, let user {
            try system.succeed("systemctl", "start", "manager")
            manager = runAs(user) + ["systemctl", "--user"]
          }
          let place = ServicePlace(
            system: system, folder: folder, origin: origin, mediafs: folder.file("mediafs"), manager: manager,
            asOwner: owner == .user ? user.map(runAs) ?? [] : [])
          do { try body(place) } catch {
            print("the service wrote:\n\(place.log.suffix(8000))")
            print("systemd wrote:\n\(readText(folder.file("log")).suffix(4000))")
            throw error
          }
        }
      }
    }
  }

  private static func runAs(_ user: TestUser) -> [String] {
    [
      "setpriv", "--reuid=\(user.userID)", "--regid=\(user.groupID)", "--clear-groups", "env",
      "XDG_RUNTIME_DIR=/run/user-\(user.userID)",
    ]
  }

  /// What a login makes, without PAM: a service manager of the user's.
  private static func managerUnit(_ user: TestUser, _ folder: TemporaryFolder) -> String {
    let runtime = "/run/user-\(user.userID)"
    return """
      [Service]
      Type=notify
      User=\(user.name)
      Delegate=yes
      Environment=XDG_RUNTIME_DIR=\(runtime) HOME=\(folder.path) SYSTEMD_LOG_TARGET=console
      ExecStartPre=+/bin/mkdir -p -m 700 \(runtime)
      ExecStartPre=+/bin/chown \(user.name) \(runtime)
      ExecStart=/lib/systemd/systemd --user --unit=basic.target
      """
  }

  private static func conf(_ folder: TemporaryFolder) -> String {
    "list = \(folder.file("urls.txt"))\nmountpoint = \(folder.file("media"))\nstore = \(folder.file("store"))\n"
  }

  /// The project's unit for a program that is elsewhere.
  static func unitText(_ kind: String, _ mediafs: String) -> String {
    readText("\(repository)/systemd/\(kind)/mediafs@.service").replacing("/usr/bin/mediafs", with: mediafs)
  }

  private static var repository: String {
    #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }
  }

  /// Writes the configuration anew.
  func configure(_ text: String) throws {
    try folder.write(Self.conf(folder) + text, to: "x.conf")
    try system.succeed("cp", folder.file("x.conf"), "/etc/mediafs/x.conf")
  }

  @discardableResult
  func systemctl(_ words: String...) throws -> String {
    let result = try system.run(manager + words)
    if !result.succeeded { throw MountFailure(description: "systemctl \(words): \(result.errors)\(result.output)") }
    return result.output
  }

  /// A property of the unit.
  func show(_ property: String) throws -> String {
    try systemctl("show", "--value", "--property", property, unit).trimmed
  }

  /// The mount's number and type, a line for each that is there.
  func mounts() throws -> [String] {
    try system.run(["findmnt", "-rn", "-o", "ID,MAJ:MIN,FSTYPE", mountpoint]).output.split(separator: "\n").map(
      String.init)
  }

  /// Sends the mount helper a signal.
  func signal(_ name: String) throws { try system.succeed("kill", "-s", name, try show("MainPID")) }

  /// Waits until another mount helper than `old` serves.
  func waitForHelper(after old: String) throws {
    try waitUntil(timeout: 120, interval: 0.05, "the next mount helper to serve") {
      let (state, process) = (try show("ActiveState"), try show("MainPID"))
      return state == "active" && process != old && process != "0"
    }
  }

  /// A reader that never stops, and ends with an error of its file.
  func startReader() throws -> ServiceReader { try ServiceReader(self) }
}

/// Reads a file of the mount, by an old handle and by new ones, and writes a line for each time.
final class ServiceReader {
  private let process: BackgroundProcess

  init(_ place: ServicePlace) throws {
    let script = """
      import os, sys, time
      path, = sys.argv[1:]
      held = os.open(path, os.O_RDONLY)
      whole = os.pread(held, 1 << 20, 0)
      assert len(whole) == 300000
      while True:
          assert os.pread(held, 1 << 20, 0) == whole
          assert os.listdir(os.path.dirname(path)) == ['a.bin'] and os.stat(path).st_size == len(whole)
          with open(path, 'rb') as file: assert file.read() == whole
          os.write(1, b'.')
          time.sleep(0.01)
      """
    process = try BackgroundProcess(
      place.system.inside + place.asOwner + ["/usr/bin/python3", "-c", script, place.file])
  }

  /// How often it has read the file.
  var count: Int { process.standardOutputSoFar.utf8.count }

  /// Waits until it has read the file `more` times from now on.
  func read(_ more: Int) throws {
    let until = count + more
    try waitUntil(timeout: 120, "the reader: \(process.standardErrorSoFar)") {
      if !process.isRunning { throw MountFailure(description: "the reader ended: \(process.standardErrorSoFar)") }
      return count >= until
    }
  }

  func stop() { process.terminate(grace: 0) }
}

extension String {
  /// Without the blanks at both ends.
  fileprivate var trimmed: String {
    String(drop(while: \.isWhitespace).reversed().drop(while: \.isWhitespace).reversed())
  }
}
