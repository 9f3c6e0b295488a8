import Glibc

/// glibc functions that Swift's Glibc module leaves out, looked up at run time.
///
/// Each was in glibc long before 2.36 (Debian 12), the oldest we run on; one that is missing ends the test run with its
/// name.
enum GNUCalls {
  typealias Accept4 = @convention(c) (Int32, OpaquePointer?, OpaquePointer?, Int32) -> Int32
  typealias Pipe2 = @convention(c) (UnsafeMutablePointer<Int32>, Int32) -> Int32
  typealias PPoll =
    @convention(c) (UnsafeMutablePointer<pollfd>?, nfds_t, UnsafePointer<timespec>?, OpaquePointer?) -> Int32
  typealias AddCloseFrom = @convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, Int32) -> Int32
  typealias AddFolder =
    @convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, UnsafePointer<CChar>) -> Int32
  typealias PidfdOpen = @convention(c) (pid_t, UInt32) -> Int32

  /// accept(2) with flags: the descriptor is close-on-exec from its first moment, so no child can inherit it.
  static let accept4: Accept4 = look("accept4")
  /// pipe(2) with flags.
  static let pipe2: Pipe2 = look("pipe2")
  /// poll(2) with nanoseconds.
  static let ppoll: PPoll = look("ppoll")
  /// Closes every descriptor from a number on in the child.
  static let addCloseFrom: AddCloseFrom = look("posix_spawn_file_actions_addclosefrom_np")
  /// Sets the child's folder.
  static let addFolder: AddFolder = look("posix_spawn_file_actions_addchdir_np")
  /// A descriptor that becomes readable when the process ends.
  static let pidfdOpen: PidfdOpen = look("pidfd_open")

  private static func look<Function>(_ name: String) -> Function {
    guard let address = dlsym(nil, name) else { preconditionFailure("glibc has no \(name)") }
    // dlsym gives a function's address without its type; the type aliases above are those of glibc's headers.
    return unsafeBitCast(address, to: Function.self)
  }
}

/// poll(2)'s "the peer will send no more", which Swift's Glibc module leaves out.
let pollPeerClosed: Int16 = 0x2000

/// Waits until one of `descriptors` has one of its events, or `deadline` (nanoseconds of CLOCK_BOOTTIME) passes.
/// Returns what happened on each, in order; all zero at the deadline or when a signal came.
func pollUntil(_ descriptors: [(Int32, Int16)], nanoseconds wait: Int64) -> [Int16] {
  var entries = descriptors.map { pollfd(fd: $0.0, events: $0.1, revents: 0) }
  let bounded = max(0, wait)
  var time = timespec(tv_sec: Int(bounded / 1_000_000_000), tv_nsec: Int(bounded % 1_000_000_000))
  let count = GNUCalls.ppoll(&entries, nfds_t(entries.count), &time, nil)
  return entries.map { count > 0 ? $0.revents : 0 }
}

extension GNUCalls {
  /// The environment as `NAME=value` lines. `environ` itself is a global variable that Swift 6 does not let us name;
  /// tests that change the environment while others start processes are at fault in C just as well.
  static var environment: [String] {
    guard let address = dlsym(nil, "environ") else { return [] }
    // The type is that of `extern char **environ`.
    let list = address.assumingMemoryBound(to: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?.self).pointee
    var lines: [String] = []
    var index = 0
    while let line = list?[index] {
      lines.append(String(cString: line))
      index += 1
    }
    return lines
  }

  /// Lets a child of ours trace us where the kernel's Yama module allows only parents that; does nothing elsewhere.
  static func allowAnyTracer() {
    // prctl(2) is variadic in C; on Linux's ABIs that we run on its integer arguments are passed as any function's.
    typealias Control = @convention(c) (Int32, UInt, UInt, UInt, UInt) -> Int32
    let control: Control = look("prctl")
    _ = control(0x5961_6d61, .max, 0, 0, 0)  // PR_SET_PTRACER, PR_SET_PTRACER_ANY
  }
}
