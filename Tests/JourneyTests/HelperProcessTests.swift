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

  /// fusermount3 looks into /etc/mtab for what its caller mounted; a bare container has none.
  @Test func anOrdinaryUserUnmountsWithoutMtab() throws {
    try withFuseForEveryone {
      let place = try MountPlace()
      try #require(mkdir(place.mountpoint, 0o755) == 0 && chown(place.mountpoint, 65534, 65534) == 0)
      let result = try Command.run(
        ["unshare", "--mount", "--propagation", "private", "bash", "-c", withoutMtab, "bash", place.folder],
        timeout: 120)
      #expect(
        result.output == """
          mounted
          unmounted
          mounted
          unmounted
          mounted
          unmounted

          """, "\(result.output)\n\(result.errors)")
    }
  }
}

/// Runs a command under ptrace(2). Its first child is held at its exit until the command has ended, for half a second
/// at most.
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

private let withoutMtab = #"""
  set -euo pipefail
  # Not the mounts of the tests that run beside this one: their servers would go on.
  umount --all --lazy --no-canonicalize --types fuse.mediafs || true
  cd "$1"
  cp -a /etc etc
  rm etc/mtab
  mount --bind etc /etc
  user() { setpriv --reuid=65534 --regid=65534 --clear-groups -- env HOME="$PWD" XDG_DATA_HOME="$PWD/data-nobody" "$@"; }
  # stat(2) by another than the mount's owner is refused.
  is_there() { grep -q " $PWD/mnt " /proc/self/mounts; }
  gone() {
    for _ in {1..400}; do is_there || break; sleep 0.05; done
    if is_there; then echo "it stays"; else echo unmounted; fi
  }
  helper() { pgrep -f "^mount-helper --mountpoint $PWD/mnt"; }
  # By the command, by the helper when it is told to end, by the server when its helper is gone.
  for way in command told helper; do
    user "$PWD/bin/mediafs" mount "$PWD/mnt" --manifest "$PWD/urls.txt"
    is_there && echo mounted
    case $way in
      command) user "$PWD/bin/mediafs" unmount "$PWD/mnt" ;;
      told) kill "$(helper)" ;;
      helper) kill -9 "$(helper)" ;;
    esac
    gone
    while helper >/dev/null; do sleep 0.05; done
  done
  cd /
  umount -l /etc
  """#
