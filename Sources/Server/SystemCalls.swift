// `environ` is read only while a process is spawned; nothing here changes the environment.
@preconcurrency import Glibc

import Base

/// Calls that Swift's Glibc module does not offer, looked up in the C library at run time.
package enum SystemCalls {
  private typealias Unmount = @convention(c) (UnsafePointer<CChar>, Int32) -> Int32
  private typealias ProcessControl = @convention(c) (Int32, UInt, UInt, UInt, UInt) -> Int32
  private typealias CloseFrom = @convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, Int32) -> Int32
  private typealias MakeMemoryFile = @convention(c) (UnsafePointer<CChar>, UInt32) -> Int32

  /// prctl(2), PR_SET_DUMPABLE 0. It cannot fail: 0 is a value that it takes.
  package static func keepMemoryPrivate() {
    guard let address = dlsym(nil, "prctl") else { return }
    // Variadic in C; on the machines that Swift runs on, whole numbers are passed alike either way.
    _ = unsafeBitCast(address, to: ProcessControl.self)(4, 0, 0, 0, 0)
  }

  /// umount2(2) without following a symbolic link; `lazily` detaches a busy mount at once (MNT_DETACH). Root only.
  package static func unmount(_ path: String, lazily: Bool) throws(Errno) {
    guard let address = dlsym(nil, "umount2") else { throw Errno(rawValue: ENOSYS) }
    let unmount = unsafeBitCast(address, to: Unmount.self)  // its type in <sys/mount.h>
    _ = try retrying { unmount(path, 8 | (lazily ? 2 : 0)) }  // UMOUNT_NOFOLLOW, MNT_DETACH
  }

  /// memfd_create(2): a file without a name, which children inherit.
  package static func makeMemoryFile(_ name: String) throws(Errno) -> FileDescriptor {
    guard let address = dlsym(nil, "memfd_create") else { throw Errno(rawValue: ENOSYS) }
    let make = unsafeBitCast(address, to: MakeMemoryFile.self)  // its type in <sys/mman.h>
    return FileDescriptor(owning: try retrying { make(name, 0) })
  }

  /// Runs a program found in PATH, with no signal blocked, and waits for its end: its exit status (128 + the signal's
  /// number when one killed it) and what it wrote to stderr.
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

  /// `standardError` closes here, so that the end of the program is the end of the pipe.
  private static func spawn(
    _ arguments: [String], standardError: consuming FileDescriptor, closing unwanted: Int32
  ) throws(Errno) -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, standardError.rawValue, STDERR_FILENO)
    // fusermount3 is setuid root, and other threads may have opened something without close-on-exec (libraries do).
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
