import Base
import Glibc

/// Starting a process, with pipes.
enum Spawn {
  /// A process that was started, and our ends of its pipes (each owned by whoever takes this value).
  struct Child: Sendable {
    var processID: pid_t
    /// Readable once it ended.
    var exit: Int32
    var output: Int32
    var errors: Int32
    /// -1 when it reads /dev/null.
    var input: Int32
  }

  /// A pipe, both ends close-on-exec.
  static func makePipe() throws(Errno) -> (read: Int32, write: Int32) {
    var ends: [Int32] = [-1, -1]
    if GNUCalls.pipe2(&ends, O_CLOEXEC) != 0 { throw Errno.current }
    return (ends[0], ends[1])
  }

  /// Starts `arguments`. With `directOutput` both of its outputs go to that descriptor of ours instead of to the pipes,
  /// which then are at their end from the start.
  static func start(
    _ arguments: [String], environment: [String: String?], folder: String?, hasInput: Bool, directOutput: Int32? = nil
  ) throws(Errno) -> Child {
    guard let name = arguments.first else { throw Errno.invalid }
    let program = name.contains("/") ? name : Command.path(of: name) ?? name
    let output = try makePipe()
    let errors = try makePipe()
    let input = hasInput ? try makePipe() : (read: -1, write: -1)
    for descriptor in [output.read, errors.read, input.write] where descriptor >= 0 {
      _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
    }
    // The child's ends are its own from here on.
    defer { for descriptor in [output.write, errors.write, input.read] where descriptor >= 0 { close(descriptor) } }

    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    if hasInput {
      posix_spawn_file_actions_adddup2(&actions, input.read, 0)
    } else {
      posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    }
    posix_spawn_file_actions_adddup2(&actions, directOutput ?? output.write, 1)
    posix_spawn_file_actions_adddup2(&actions, directOutput ?? errors.write, 2)
    // A descriptor of ours in a child would keep connections, mounts and locks alive that we think closed.
    _ = GNUCalls.addCloseFrom(&actions, 3)
    if let folder { _ = GNUCalls.addFolder(&actions, folder) }

    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var none = sigset_t()
    var every = sigset_t()
    sigemptyset(&none)
    sigfillset(&every)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setsigdefault(&attributes, &every)
    posix_spawnattr_setpgroup(&attributes, 0)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))

    var child = pid_t()
    let result = withStrings(arguments) { arguments in
      withStrings(merged(environment)) { variables in
        posix_spawn(&child, program, &actions, &attributes, arguments, variables)
      }
    }
    let exit = result == 0 ? GNUCalls.pidfdOpen(child, 0) : -1
    if exit < 0 {
      let error = result == 0 ? Errno.current : Errno(rawValue: result)
      for descriptor in [output.read, errors.read, input.write] where descriptor >= 0 { close(descriptor) }
      if result == 0 {
        kill(child, SIGKILL)
        waitpid(child, nil, 0)
      }
      throw error
    }
    return Child(processID: child, exit: exit, output: output.read, errors: errors.read, input: input.write)
  }

  /// Our environment with `changes` made, as `NAME=value` lines.
  private static func merged(_ changes: [String: String?]) -> [String] {
    let kept = GNUCalls.environment.filter { line in
      guard let equals = line.firstIndex(of: "=") else { return false }
      return changes[String(line[..<equals])] == nil
    }
    return kept + changes.compactMap { name, value in value.map { "\(name)=\($0)" } }
  }

  /// Lends a null-terminated array of C strings.
  private static func withStrings<Result>(
    _ strings: [String], _ body: ([UnsafeMutablePointer<CChar>?]) -> Result
  ) -> Result {
    let copies = strings.map { strdup($0) }
    defer { for copy in copies { free(copy) } }
    return body(copies + [nil])
  }
}
