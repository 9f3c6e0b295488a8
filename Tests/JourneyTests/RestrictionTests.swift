import CSystem
import Glibc
import TestSupport
import Testing

@testable import mediafs

/// The server of a mount that root makes for another user has only the files that it needs (Landlock): it does all that
/// it has to, and code in it gets at nothing else. Needs root, and Linux 5.19.
@Suite(.serialized, .enabled(if: TestUser.canSwitch && csystem_landlock_version() >= 2))
struct RestrictionTests {
  private static let size: Int64 = 3 << 20

  private func mount(_ place: MountPlace, _ options: String = "") throws {
    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "-o",
      "user=nobody,allow_other,continue=always,store=\(place.storeOfNobody)\(options)")
    try #require(mounted.status == 0, "\(mounted)")
  }

  private func compare(_ place: MountPlace, _ origin: Origin, _ name: String) throws {
    let words = "curl --silent '\(origin.url("/" + name))' | cmp - '\(place.mountpoint)/\(name)'"
    let compared = try Command.run(["sh", "-c", words], timeout: 60)
    #expect(compared.status == 0, "\(compared)")
  }

  /// Every file that the options name is in a folder that nobody else enters; the list is replaced, as editors do.
  @Test func aRestrictedServerDoesAllThatItHasTo() throws {
    try withOrigin { origin in
      let place = try MountPlace()
      let own = place.folder + "/data-nobody"
      for name in ["a.bin", "b.bin", "c.bin"] { origin.add("/" + name, size: Self.size) }
      for (name, text) in [("netrc", ""), ("log", ""), ("ca", "")] {
        try place.write(text, to: "\(own)/\(name)")
        try #require(chown("\(own)/\(name)", 65534, 65534) == 0)
      }
      try place.write(["a.bin", "b.bin"].map { origin.url("/" + $0) + "\n" }.joined(), to: place.manifest)
      let options =
        ",library=\(own)/shelf,netrc-file=\(own)/netrc,cacert=\(own)/ca,log-file=\(own)/log"
      try mount(place, options)
      let log = { String(decoding: (try? Files.read("\(own)/log", limit: 1 << 20)) ?? [], as: UTF8.self) }
      #expect(log().contains("only the files that it needs"), "\(log())")
      try compare(place, origin, "a.bin")
      #expect(eventually { access("\(own)/shelf/a.bin", F_OK) == 0 }, "\(log())")

      // The next server is restricted anew, of the same program and of a new one.
      try place.write(origin.url("/c.bin") + "\n", to: place.manifest + ".new")
      try #require(rename(place.manifest + ".new", place.manifest) == 0)
      let first = try #require(place.server)
      kill(first, SIGKILL)
      try compare(place, origin, "a.bin")
      try compare(place, origin, "b.bin")
      #expect(eventually { access("\(own)/shelf/b.bin", F_OK) == 0 }, "\(log())")
      let second = try #require(place.server)
      #expect(second != first)
      try Command.succeed(["cp", builtProduct("mediafs"), place.mediafs + ".new"])
      try #require(chmod(place.mediafs + ".new", 0o711) == 0 && rename(place.mediafs + ".new", place.mediafs) == 0)
      let upgraded = try Command.run(
        [
          "/usr/bin/python3", "-c", UpgradeRightsTests.ask, place.storeOfNobody + "/control", place.mediafs,
          "\(second)",
        ])
      #expect(upgraded.output.hasPrefix("upgraded"), "\(upgraded)")
      #expect(log().split(separator: "\n").filter { $0.contains("only the files that it needs") }.count == 3)
      try compare(place, origin, "b.bin")
      #expect(try place.run("clear", place.mountpoint + "/b.bin").status == 0)
      #expect(try place.run("fetch", place.mountpoint + "/b.bin").status == 0)
      #expect(try place.run("unmount", place.mountpoint).status == 0)
      #expect(!log().contains("denied"), "\(log())")

      try mount(place, options)
      try compare(place, origin, "c.bin")
      #expect(try place.run("unmount", place.mountpoint).status == 0)
    }
  }

  /// A filter for system calls stands for a kernel without Landlock.
  @Test func whereTheKernelCannotTheServerServesAndTheLogSaysSo() throws {
    let place = try MountPlace()
    let mounted = try place.wait(
      place.start([
        "/usr/bin/python3", "-c", withoutLandlock, place.mediafs, "mount", place.mountpoint, "--manifest",
        place.manifest, "-o", "user=nobody,store=\(place.storeOfNobody)",
      ]))
    #expect(mounted.status == 0, "\(mounted)")
    let log = String(decoding: try Files.read("\(place.storeOfNobody)/mediafs.log", limit: 1 << 20), as: UTF8.self)
    #expect(log.split(separator: "the kernel restricts nothing (Landlock: Function not").count == 2, "\(log)")
    #expect(try place.run("status", place.mountpoint).status == 0)
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  #if arch(x86_64)
    /// Root stops the threads of a server that serves, and has them make system calls, as hostile code in it would. A
    /// process of the same user's that is not restricted can do each of them.
    @Test func codeInTheServerReachesNothingElse() throws {
      try withFuseForEveryone(tryCalls)
    }

    private func tryCalls() throws {
      let place = try MountPlace()
      try mount(place)
      let server = try #require(place.server)
      let victim = place.folder + "/home"
      try #require(mkdir(victim, 0o700) == 0 && chown(victim, 65534, 65534) == 0)
      try place.write(injector, to: place.folder + "/injector.py")
      let result = try Command.run(
        ["/usr/bin/python3", place.folder + "/injector.py", "\(server)", victim, place.storeOfNobody], timeout: 60)
      #expect(result.status == 0, "\(result.errors)")
      var seen: [String: String] = [:]
      for line in result.output.split(separator: "\n") {
        let words = line.split(separator: ":", maxSplits: 1)
        seen[String(words[0])] = words.count > 1 ? String(words[1].dropFirst()) : ""
      }
      let allowed: Set = ["read the system", "write the store"]
      #expect(seen.count > 15, "\(result.output)")
      for (what, came) in seen {
        let refused = ["signal": "EPERM", "connect": "EPERM", "hard link": "EXDEV"][what] ?? "EACCES"
        #expect(came == (allowed.contains(what) ? "ok, ok" : "ok, \(refused)"), "\(what)")
      }
      #expect(place.server == server)
      #expect(try place.run("status", place.mountpoint).status == 0)
      #expect(try place.run("unmount", place.mountpoint).status == 0)
    }
  #endif
}

/// Runs a program for which the first call of Landlock fails with ENOSYS (seccomp).
private let withoutLandlock = #"""
  import ctypes, os, struct, sys
  steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x50000 | 38), (0x06, 0, 0, 0x7fff0000)]
  code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
  program = struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(code))
  assert ctypes.CDLL(None).prctl(22, 2, program, 0, 0) == 0
  os.execv(sys.argv[1], sys.argv[1:])
  """#

/// Prints what comes of each call in an ordinary process of nobody's, and in the server.
private let injector = #"""
  import ctypes, errno, os, signal, socket, struct, sys
  server, home, store = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3].encode()
  libc = ctypes.CDLL(None, use_errno=True)
  libc.ptrace.restype = libc.syscall.restype = ctypes.c_long
  libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
  SEIZE, INTERRUPT, DETACH, GETREGS, SETREGS, STEP = 0x4206, 0x4207, 17, 12, 13, 9
  RAX, RDI, ORIG, RIP, RSP = 10, 14, 15, 16, 19
  ARGUMENTS = (14, 13, 12, 7, 9, 8)  # rdi rsi rdx r10 r8 r9
  version = libc.syscall(444, None, 0, 1)

  def trace(request, thread, data=None):
      if libc.ptrace(request, thread, None, data) == -1: raise OSError(ctypes.get_errno(), 'ptrace')

  class Thread:
      # A thread of the server, which waits in a system call.
      instruction = None
      def __init__(self, number):
          self.number = number
          trace(SEIZE, number)
          trace(INTERRUPT, number)
          os.waitpid(number, 0x40000000)
          self.before = self.registers()
          self.memory = open('/proc/%d/mem' % number, 'r+b', 0)
          if Thread.instruction is None:
              Thread.instruction = self.before[RIP] - 2
              self.memory.seek(Thread.instruction)
              assert self.memory.read(2) == b'\x0f\x05', 'it does not wait in a system call'
      def registers(self):
          found = (ctypes.c_ulong * 27)()
          trace(GETREGS, self.number, ctypes.byref(found))
          return list(found)
      def set(self, registers): trace(SETREGS, self.number, ctypes.byref((ctypes.c_ulong * 27)(*registers)))
      def call(self, number, *arguments):
          registers, place = list(self.before), self.before[RSP] - 8192
          for register, argument in zip(ARGUMENTS, arguments):
              if isinstance(argument, bytes):
                  self.memory.seek(place)
                  self.memory.write(argument + b'\0')
                  argument, place = place, place + len(argument) + 16
              registers[register] = argument & (1 << 64) - 1
          registers[RAX], registers[ORIG], registers[RIP] = number, (1 << 64) - 1, Thread.instruction
          self.set(registers)
          trace(STEP, self.number)
          _, status = os.waitpid(self.number, 0x40000000)
          assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTRAP, status
          result = self.registers()[RAX]
          return result - (1 << 64) if result >> 63 else result
      def end(self):
          self.set(self.before)
          trace(DETACH, self.number)

  def call_here(number, *arguments):
      # As long as a register: a plain number would be 32 bits.
      result = libc.syscall(number, *[a if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments])
      return -ctypes.get_errno() if result == -1 else result

  AT = -100
  def opening(path, flags, mode=0o600): return lambda call: call(257, AT, path, flags, mode)
  def tcp(call):
      end = call(41, socket.AF_INET, socket.SOCK_STREAM, 0)
      return call(49, end, struct.pack('<H', socket.AF_INET) + bytes(14), 16) if end >= 0 else 0
  def abstract(call):
      end = call(41, socket.AF_UNIX, socket.SOCK_STREAM, 0)
      return call(42, end, struct.pack('<H', socket.AF_UNIX) + name, 2 + len(name)) if end >= 0 else 0

  # A program of nobody's, and a process with a socket.
  name = b'\0mediafs-test-%d' % os.getpid()
  listener = socket.socket(socket.AF_UNIX)
  listener.bind(name)
  listener.listen(64)
  other = os.fork()
  def become():
      os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
      libc.prctl(4, 1, 0, 0, 0)
  if other == 0:
      become()
      while True: signal.pause()

  def attempts():
      yield 'read the system', opening(b'/etc/passwd', os.O_RDONLY)
      yield 'write the store', opening(store + b'/mediafs.log', os.O_RDWR)
      yield 'read', opening(home + b'/secret', os.O_RDONLY)
      yield 'list', opening(home, os.O_RDONLY | os.O_DIRECTORY)
      yield 'write', opening(home + b'/secret', os.O_WRONLY)
      yield 'create', opening(home + b'/new', os.O_WRONLY | os.O_CREAT)
      yield 'create in /tmp', opening(b'/tmp/mediafs-test-%d' % os.getpid(), os.O_WRONLY | os.O_CREAT)
      yield 'make a folder', lambda call: call(83, home + b'/folder', 0o700)
      yield 'make a link in the store', lambda call: call(88, home, store + b'/link')
      yield 'move into the store', lambda call: call(82, home + b'/moved', store + b'/moved')
      yield 'move out of the store', lambda call: call(82, store + b'/own', home + b'/own')
      yield 'hard link', lambda call: call(86, home + b'/secret', store + b'/hard')
      yield 'remove', lambda call: call(87, home + b'/removed')
      yield 'remove a folder', lambda call: call(84, home + b'/empty')
      if version >= 3: yield 'truncate', lambda call: call(76, home + b'/secret', 1)
      yield 'environment of a process', opening(b'/proc/%d/environ' % other, os.O_RDONLY)
      yield 'open the device', opening(b'/dev/fuse', os.O_RDWR)
      if version >= 4: yield 'bind', tcp
      if version >= 6: yield 'signal', lambda call: call(62, other, 0)
      if version >= 6: yield 'connect', abstract
      yield 'execute', lambda call: call(59, b'/bin/true', 0, 0)

  def prepare():
      # What attempts that succeed took or made.
      for file in (b'new', b'own', b'folder', b'moved', b'removed', b'empty', b'secret'):
          path = home + b'/' + file
          if os.path.isdir(path): os.rmdir(path)
          elif os.path.lexists(path): os.unlink(path)
      for path in (store + b'/link', store + b'/hard', store + b'/moved', b'/tmp/mediafs-test-%d' % os.getpid()):
          if os.path.lexists(path): os.unlink(path)
      for path in (home + b'/secret', home + b'/moved', home + b'/removed', store + b'/own'):
          with open(path, 'w') as file: file.write('secret')
          os.chmod(path, 0o600)
          os.chown(path, 65534, 65534)
      os.mkdir(home + b'/empty')
      os.chown(home + b'/empty', 65534, 65534)

  def text(result): return 'ok' if result >= 0 else errno.errorcode[-result]
  def here(attempt):
      child = os.fork()
      if child == 0:
          become()
          os._exit(max(0, -attempt(call_here)))
      return -os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

  alone = {}
  for what, attempt in attempts():
      prepare()
      alone[what] = text(here(attempt))
  threads = sorted(int(task) for task in os.listdir('/proc/%d/task' % server))
  prepare()
  for number in threads:
      thread = Thread(number)
      for what, attempt in attempts():
          if number == threads[0]: print(what + ': ' + alone[what] + ', ' + text(attempt(thread.call)))
          elif what == 'read':
              print('read in thread %d: ' % number + alone[what] + ', ' + text(attempt(thread.call)))
      thread.end()
  prepare()
  os.unlink(store + b'/own')
  os.kill(other, signal.SIGKILL)
  """#
