import Glibc
import TestSupport
import Testing

/// The helper among other processes: the command that waits for it, and the programs that unmount for it. Needs root,
/// as CI has it.
@Suite(.serialized)
struct HelperProcessTests {
  /// The helper stands still at its very end here: the command that it serves does not return before it is gone.
  @Test func aMountThatFailsReturnsAfterItsHelper() throws {
    let place = try MountPlace()
    try place.write("#!/bin/sh\nexit 1\n", to: place.folder + "/server")
    try #require(chmod(place.folder + "/server", 0o755) == 0)
    let result = try Command.run(
      [
        "/usr/bin/python3", "-S", "-c", slowEnd, place.folder + "/bin/mount-helper", "--mountpoint", place.mountpoint,
        "--server", place.folder + "/server", "--options-fd", "0",
      ], timeout: 60)
    #expect(result.status == 0 && result.output == "the command waits\nthe command returns 1\n", "\(result)")
  }
}

/// Runs a command under ptrace(2). Its first child is held at its exit until the command has ended, or for half a second.
private let slowEnd = #"""
  import ctypes, os, signal, sys, time
  libc = ctypes.CDLL(None)
  libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
  TRACEME, CONT, SETOPTIONS, FORK, EXIT, WALL = 0, 7, 0x4200, 1, 6, 0x40000000
  command = os.fork()
  if command == 0:
      libc.ptrace(TRACEME, 0, None, None)
      os.execv(sys.argv[1], ["mount-helper"] + sys.argv[2:])
  os.waitpid(command, WALL)
  libc.ptrace(SETOPTIONS, command, None, 1 << FORK | 1 << EXIT | 1 << 20)  # 20: they end with us
  libc.ptrace(CONT, command, None, None)
  known, helper, release = {command}, None, None
  while known:
      if release and time.monotonic() > release:
          print("the command waits", flush=True)
          release = None
          libc.ptrace(CONT, helper, None, None)
      process, status = os.waitpid(-1, WALL | os.WNOHANG)
      if process == 0:
          time.sleep(0.005)
          continue
      if not os.WIFSTOPPED(status):
          known.discard(process)
          if process == command:
              print("the command returns", os.waitstatus_to_exitcode(status), flush=True)
              if release:
                  release = time.monotonic()
          continue
      event, number = status >> 16, os.WSTOPSIG(status)
      if process not in known:
          known.add(process)
          number = 0  # its first stop
          helper = helper or process
      if event == EXIT and process == helper:
          release = time.monotonic() + 0.5
          continue
      libc.ptrace(CONT, process, None, 0 if event else number)
  """#
