import Base
import Glibc
import TestSupport
import Testing

/// A complete file that the kernel reads by itself, while the mount's filesystem is writable for the waker: nobody
/// writes to the file in the library, although the server permits all. Needs root, and a kernel with passthrough.
@Suite("Writes to registered files", .enabled(if: TestUser.canSwitch && Kernel.hasPassthrough))
struct WritableBackingTests {
  /// Tries each way to write to the file that is its argument, and prints what came of it.
  private static let attacker = #"""
    import ctypes, errno, os, sys
    path = sys.argv[1] + '/old'
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    def checked(result):
        if result in (-1, ctypes.c_void_p(-1).value): raise OSError(ctypes.get_errno(), '')
        return result
    def attempt(what, body):
        try: body()
        except OSError as error: print(what + ':', errno.errorcode[error.errno])
        else: print(what + ': done')
    read, place = os.open(path, os.O_RDONLY), os.open(path, os.O_PATH)
    print('read:', os.pread(read, 100, 0).decode())
    attempt('open to write', lambda: os.open(path, os.O_WRONLY))
    attempt('open to read and write', lambda: os.open(path, os.O_RDWR))
    attempt('open to append', lambda: os.open(path, os.O_WRONLY | os.O_APPEND))
    attempt('open and truncate', lambda: os.open(path, os.O_RDONLY | os.O_TRUNC))
    attempt('truncate', lambda: os.truncate(path, 0))
    attempt('truncate what is open', lambda: os.ftruncate(read, 0))
    attempt('write to what is open', lambda: os.pwrite(read, b'x', 0))
    attempt('allocate in what is open', lambda: os.posix_fallocate(read, 0, 9000))
    for name, file in ('what is open', read), ('a path', place):
        for flags in os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC:
            attempt('open %s again' % name, lambda: os.open('/proc/self/fd/%d' % file, flags))
    # PROT_READ | PROT_WRITE, MAP_SHARED
    attempt('map', lambda: checked(libc.mmap(None, 4096, 3, 1, read, 0)))
    mapped = checked(libc.mmap(None, 4096, 1, 1, read, 0))
    attempt('make a mapping writable', lambda: checked(libc.mprotect(mapped, 4096, 3)))
    """#

  /// What a user can do with mounts, in a namespace of their own where they have all rights.
  private static let remounting = #"""
    bound=$(mktemp -d)
    mount -o remount,rw,bind "$1"
    mount --bind "$1" "$bound" && mount -o remount,rw,bind "$bound"
    for folder in "$1" "$bound"; do
      echo x >>"$folder/old"; true <>"$folder/old"; truncate -s 0 "$folder/old"
    done
    umount "$bound"; rmdir "$bound"
    """#

  private func run(_ script: String) throws -> [String] {
    let folder = try TemporaryFolder(open: true)
    defer { try? folder.remove() }
    try folder.makeFolder("library")
    let own = try folder.write("as it was", to: "library/own", mode: 0o666)
    try #require(chown(own, 65534, 65534) == 0)
    try folder.write(Self.attacker, to: "attacker", mode: 0o644)
    try folder.write(Self.remounting, to: "remounting", mode: 0o644)
    let beginning = """
      folder = os.path.dirname(mountpoint)
      library = [os.open(folder + '/library', os.O_DIRECTORY)]

      """
    let result = try FakeServer.run(
      beginning + WatcherAttackTests.serving + script, in: folder, mountpoint: folder.makeFolder("mnt"),
      options: "-o ro,subtype=mediafs,allow_other")
    #expect(result.status == 0, "\(result.errors)")
    #expect(!Mounts.isMounted(folder.file("mnt")))
    return result.errors.split(separator: "\n").map(String.init).filter { !$0.hasPrefix("mediafs: ") }
  }

  /// While the waker waits, and its filesystem is writable. `user`: who writes.
  private func attack(_ user: Int, _ words: String) throws -> [String] {
    try run(
      """
      permits = True
      pack(files, 32, 1, b'', [os.open(folder + '/library/own', os.O_RDONLY)])
      backing = struct.unpack('i', receive(files)[2])[0]
      opened = 1 << 7, backing  # FOPEN_PASSTHROUGH
      request = hold('wpassword', 'pfolder', 'cnew')
      table = next(line for line in open('/proc/self/mountinfo') if mountpoint in line).split()
      say('registered' if backing > 0 else backing, table[5].split(',')[0], table[-1].split(',')[0])
      before = os.stat(folder + '/library/own')
      words = ['setpriv', '--reuid', '\(user)', '--regid', '\(user)', '--clear-groups', \(words), mountpoint]
      program = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd='/')
      while program.poll() is None:
          if select.select([device], [], [], 0.02)[0]: serve_one()
      for line in program.stdout.read().decode().splitlines(): say(line)
      after = os.stat(folder + '/library/own')
      say(open(folder + '/library/own').read())
      say('unchanged' if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) else 'changed')
      os._exit(0)
      """)
  }

  @Test(arguments: [65534, 0]) func nobodyWritesThroughTheMount(user: Int) throws {
    let lines = try attack(user, "'/usr/bin/python3', folder + '/attacker'")
    let again = ["what is open", "a path"].flatMap { Array(repeating: "open \($0) again: EROFS", count: 3) }
    #expect(
      lines == [
        "registered ro rw", "read: as it was", "open to write: EROFS", "open to read and write: EROFS",
        "open to append: EROFS", "open and truncate: EROFS", "truncate: EROFS", "truncate what is open: EINVAL",
        "write to what is open: EBADF", "allocate in what is open: EBADF",
      ] + again + ["map: EACCES", "make a mapping writable: EACCES", "as it was", "unchanged"])
  }

  /// Where users may have namespaces of their own.
  @Test(.enabled(if: usersHaveNamespaces, "This machine has no namespaces for users"))
  func noNamespaceMakesTheMountWritable() throws {
    let lines = try attack(65534, "'unshare', '-Urm', 'sh', folder + '/remounting'")
    #expect(lines.first == "registered ro rw" && lines.suffix(2) == ["as it was", "unchanged"], "\(lines)")
    // As dash and coreutils, and as mount(8), say it.
    #expect(lines.filter { $0.contains("ead-only file system") }.count == 6, "\(lines)")
    #expect(lines.filter { $0.contains("permission denied") }.count == 2, "\(lines)")
  }
}

private let usersHaveNamespaces: Bool = {
  let words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "unshare", "-Urm", "true"]
  return (try? Command.run(words).status) == 0
}()
