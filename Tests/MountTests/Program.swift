import Base
import Glibc

/// Real programs, run by the shell and bounded in time.
struct Program: ~Copyable {
  struct Result: Equatable {
    /// Exit status, or 128 + signal; -1: it did not end within 60 seconds.
    var status: Int32
    /// Standard output and error.
    var output: String
  }

  let pid: pid_t
  private let output: FileDescriptor

  /// Starts `script`. The shell is replaced by its last command where `exec` says so.
  static func start(_ script: String) throws -> Program {
    let output = FileDescriptor(owning: unnamedFile())
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, output.rawValue, 1)
    posix_spawn_file_actions_adddup2(&actions, output.rawValue, 2)
    // The pool that runs tests blocks signals, which a program would inherit.
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
    var pid: pid_t = 0
    let words: [UnsafeMutablePointer<CChar>?] = [strdup("sh"), strdup("-c"), strdup(script), nil]
    defer { for word in words { free(word) } }
    let result = posix_spawn(&pid, "/bin/sh", &actions, &attributes, words, environ)
    guard result == 0 else { throw Errno(rawValue: result) }
    return Program(pid: pid, output: output)
  }

  /// Waits for its end.
  func wait() -> Result {
    var raw: Int32 = 0
    var status: Int32 = -1
    let ended = eventually { waitpid(pid, &raw, WNOHANG) == pid } || eventually { waitpid(pid, &raw, WNOHANG) == pid }
    if ended { status = raw & 0x7F == 0 ? (raw >> 8) & 0xFF : 128 + (raw & 0x7F) } else { kill(pid, SIGKILL) }
    let size = Int(lseek(output.rawValue, 0, SEEK_END))
    var bytes = [UInt8](repeating: 0, count: size)
    _ = pread(output.rawValue, &bytes, size, 0)
    return Result(status: status, output: String(decoding: bytes, as: UTF8.self))
  }

  static func run(_ script: String) -> Result {
    do { return try start(script).wait() } catch { return Result(status: 127, output: "\(error)") }
  }
}

/// An unnamed file for a program's output.
private func unnamedFile() -> Int32 {
  var name = Array("/tmp/mediafs-output-XXXXXX".utf8CString)
  let descriptor = mkstemp(&name)
  _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
  unlink(name)
  return descriptor
}
