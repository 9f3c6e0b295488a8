/// Runs a program below which a system call fails, as it does on a kernel that does not have it: a filter (seccomp).
package enum OldKernel {
  /// Before the words of a command: Landlock's first call fails, with ENOSYS where the kernel does not have it.
  package static func withoutLandlock(_ error: Int = 38) -> [String] {
    wrapper(syscall: "444", argument: nil, error: error)
  }
  /// The same: statx(2) knows no STATX_MNT_ID_UNIQUE, as before Linux 6.8.
  package static let withoutUniqueMounts = wrapper(
    syscall: "332 if os.uname().machine == 'x86_64' else 291", argument: (3, 0x4000), error: 22)

  /// `argument`: the call fails only if that one (its place, from 0) has this value.
  private static func wrapper(syscall: String, argument: (place: Int, value: Int)?, error: Int) -> [String] {
    let check = argument.map { "(0x20, 0, 0, \(16 + 8 * $0.place)), (0x15, 0, 1, \($0.value)), " } ?? ""
    let script = """
      import ctypes, os, struct, sys
      steps = [(0x20, 0, 0, 0), (0x15, 0, \(argument == nil ? 1 : 3), \(syscall)), \(check)(0x06, 0, 0, 0x50000 | \(error)),
        (0x06, 0, 0, 0x7fff0000)]
      code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
      program = struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(code))
      assert ctypes.CDLL(None).prctl(22, 2, program, 0, 0) == 0
      os.execv(sys.argv[1], sys.argv[1:])
      """
    return ["/usr/bin/python3", "-c", script]
  }
}
