import Base
import Glibc

/// A user as whom a command can be run, when we are root.
package struct TestUser: Sendable, Hashable {
  /// Its name in the password file.
  package let name: String
  /// Its user id.
  package let userID: uid_t
  /// Its group id.
  package let groupID: gid_t
  /// Its home folder.
  package let home: String

  /// The user of that name, nil when there is none.
  package init?(named name: String) {
    var entry = passwd()
    var found: UnsafeMutablePointer<passwd>?
    var space = [CChar](repeating: 0, count: 4096)
    guard getpwnam_r(name, &entry, &space, space.count, &found) == 0, found != nil else { return nil }
    self.name = name
    userID = entry.pw_uid
    groupID = entry.pw_gid
    home = String(cString: entry.pw_dir)
  }

  /// Whether this process may become other users.
  package static var canSwitch: Bool { geteuid() == 0 }

  /// The user `name`, made with a home folder if there is none yet. Only root can.
  package static func make(named name: String) throws -> TestUser {
    if let user = TestUser(named: name) { return user }
    try Command.succeed(["useradd", "--create-home", "--shell", "/bin/sh", name])
    guard let user = TestUser(named: name) else {
      throw CommandFailure.failed(command: "useradd \(name)", status: 0, errors: "the user is not there all the same")
    }
    return user
  }

  /// Takes the user and its home folder away again; nothing of it may run any more.
  package func remove() throws { try Command.succeed(["userdel", "--remove", "--force", name]) }

  /// What stands before a command so that it runs as this user, with its one group.
  var commandPrefix: [String] {
    ["setpriv", "--reuid", String(userID), "--regid", String(groupID), "--clear-groups", "--"]
  }

  /// The variables that a login would set.
  var environment: [String: String?] {
    ["HOME": home, "USER": name, "LOGNAME": name, "XDG_RUNTIME_DIR": nil, "XDG_DATA_HOME": nil]
  }
}
