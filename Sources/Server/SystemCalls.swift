// `environ` is read only while a process is spawned; nothing here changes the environment.
@preconcurrency import Glibc

import Base
import CSystem

/// Runs other programs, and unmounts.
package enum SystemCalls {
  private typealias CloseFrom = @convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, Int32) -> Int32

  /// Why an unmount failed.
  package struct UnmountFailure: Error {
    /// Whether the mount is in use.
    package let isBusy: Bool
    /// The reason, for a message.
    package let description: String
  }

  /// Unmounts `entry`, or throws; `lazily` detaches a busy mount at once.
  ///
  /// Root unmounts without following a symbolic link, and never unmounts another mount that took that place. Other
  /// users need a setuid program that unmounts what its caller mounted: fusermount3, which looks that up in /etc/mtab,
  /// or, if /etc/mtab does not exist (a bare container), umount, which looks it up in /proc.
  package static func unmount(_ entry: MountTableEntry, lazily: Bool) throws(UnmountFailure) {
    let hasTable = access("/etc/mtab", F_OK) == 0
    // fusermount3 does not translate its messages.
    let words =
      hasTable ? ["fusermount3", lazily ? "-uz" : "-u"] : ["env", "LC_ALL=C", "umount", lazily ? "-l" : "-q"]
    let result: (status: Int32, messages: String)
    do throws(Errno) {
      if geteuid() == 0 {
        _ = try retrying { csystem_unmount(entry.mountpoint, entry.device, lazily ? 1 : 0) }
        return
      }
      result = try run(words + ["--", entry.mountpoint])
    } catch {
      throw UnmountFailure(isBusy: error == Errno(rawValue: EBUSY), description: error.description)
    }
    if result.status == 0 { return }
    let why = result.messages.split(separator: "\n").joined(separator: "; ")
    throw UnmountFailure(
      isBusy: result.messages.contains("busy"),
      description: "\(words.joined(separator: " ")) ended with \(result.status)\(why.isEmpty ? "" : " (\(why))")")
  }

  /// Runs a program from PATH with no signal blocked, and waits for its end. Returns its exit status (128 + the number
  /// of the signal that killed it) and what it wrote to stderr.
  package static func run(_ arguments: [String]) throws(Errno) -> (status: Int32, messages: String) {
    var ends: (Int32, Int32) = (-1, -1)
    let piped = withUnsafeMutablePointer(to: &ends) {
      $0.withMemoryRebound(to: Int32.self, capacity: 2) { pipe($0) }
    }
    if piped != 0 { throw Errno.current }
    let reader = FileDescriptor(owning: ends.0)
    let process = try spawn(arguments, standardError: FileDescriptor(owning: ends.1), closing: reader.rawValue)
    var messages: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 4096)
    while let count = try? retrying({ read(reader.rawValue, &piece, piece.count) }), count > 0 {
      messages += piece[..<count]
    }
    var status: Int32 = 0
    _ = try retrying { waitpid(process, &status, 0) }
    let code = status & 0x7f == 0 ? (status >> 8) & 0xff : 128 + (status & 0x7f)
    return (code, String(decoding: messages, as: UTF8.self))
  }

  /// This process closes `standardError`, so that the pipe ends when the program ends.
  private static func spawn(
    _ arguments: [String], standardError: consuming FileDescriptor, closing unwanted: Int32
  ) throws(Errno) -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, standardError.rawValue, STDERR_FILENO)
    // fusermount3 is setuid root, and libraries may open descriptors without close-on-exec in other threads.
    if let address = dlsym(nil, "posix_spawn_file_actions_addclosefrom_np") {
      _ = unsafeBitCast(address, to: CloseFrom.self)(&actions, STDERR_FILENO + 1)  // its type in <spawn.h>, glibc 2.34
    } else {
      posix_spawn_file_actions_addclose(&actions, standardError.rawValue)
      posix_spawn_file_actions_addclose(&actions, unwanted)
    }
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
    let argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
    defer { argv.forEach { free($0) } }
    var process: pid_t = 0
    let result = posix_spawnp(&process, arguments[0], &actions, &attributes, argv, environ)
    if result != 0 { throw Errno(rawValue: result) }
    return process
  }
}
