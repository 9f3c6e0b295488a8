import Base
import Glibc
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// Rights: what a mount gives to whom, and what other processes of the same user can get hold of. Needs root, as CI
/// has it.
@Suite(.serialized)
struct RightsTests {
  private func options(of place: MountPlace) -> [String] {
    Mounts.current().last { $0.mountpoint == place.mountpoint }?.options ?? []
  }

  /// What mount(8) says for `user=nobody`: it adds `exec,suid,dev` by itself.
  @Test func aUsersServerMakesNoSetuidFilesAndNoDevices() throws {
    let place = try MountPlace()
    try #require(mkdir(place.mountpoint, 0o755) == 0)
    let mounted = try place.wait(
      place.start([
        place.folder + "/bin/mount.mediafs", place.manifest, place.mountpoint, "-o",
        "rw,user=nobody,store=\(place.storeOfNobody),exec,suid,dev",
      ]))
    #expect(mounted.status == 0, "\(mounted)")
    let options = options(of: place)
    #expect(options.contains("nosuid") && options.contains("nodev") && !options.contains("noexec"), "\(options)")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
    // root's own server could make them anyway: there the options are heeded.
    let own = try place.run("mount", place.mountpoint, "--manifest", place.manifest, "-o", "suid,dev,noexec")
    #expect(own.status == 0, "\(own)")
    let heeded = self.options(of: place)
    #expect(!heeded.contains("nosuid") && !heeded.contains("nodev") && heeded.contains("noexec"), "\(heeded)")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// A process of nobody's tries from before the server starts until it serves: its exec leaves no instant in which
  /// the attacker gets /dev/fuse. Five ways, some mounts each.
  @Test func noProcessOfTheUsersSeizesItsServerAsItStarts() throws {
    let place = try MountPlace()
    let attacker = try Attacker(place)
    for way in Attacker.ways + Attacker.ways {
      let running = try place.start([
        place.mediafs, "mount", place.mountpoint, "--manifest", place.manifest, "--foreground", "-o",
        "user=nobody,store=\(place.storeOfNobody)",
      ])
      let result = try attacker.attack("children", way, of: running.process)
      #expect(result.hasPrefix("refused"), "\(way): \(result)")
      #expect(eventually { place.text(running).contains("mounted at") }, "\(place.text(running))")
      kill(running.process, SIGTERM)
      #expect(try place.wait(running).status == 0)
    }
  }

  /// Programs that users may run and not read (as `make install` makes them) never can be seized: not the command, nor
  /// the helper, nor the server of an ordinary user's mount.
  @Test func anInstalledProgramIsNeverSeizedByItsOwnUser() throws {
    try withFuseForEveryone {
      let place = try MountPlace()
      try #require(mkdir(place.mountpoint, 0o755) == 0 && chown(place.mountpoint, 65534, 65534) == 0)
      let folder = place.folder + "/installed"
      #expect(try SystemCalls.run(["cp", "-rL", place.folder + "/bin", folder]).status == 0)
      for name in ["mediafs", "mount-helper"] { try #require(chmod("\(folder)/\(name)", 0o711) == 0) }
      let attacker = try Attacker(place)
      for way in Attacker.ways {
        let running = try place.start(
          [
            // setpriv starts a program while it still has root's capabilities, and could read it.
            "env", folder + "/mediafs", "mount", place.mountpoint, "--manifest", place.manifest, "--foreground",
            "--header",
            "X-Secret: planted",
          ], user: true)
        let result = try attacker.attack("all", way, of: running.process)
        #expect(result.hasPrefix("refused"), "\(way): \(result)")
        #expect(eventually { place.text(running).contains("mounted at") }, "\(place.text(running))")
        kill(running.process, SIGTERM)
        #expect(try place.wait(running).status == 0)
      }
    }
  }

  /// The helper's environment has a proxy's password, and its descriptors the header value.
  @Test func anOrdinaryUsersHelperIsClosedToTheirOtherProcesses() throws {
    try withFuseForEveryone {
      let place = try MountPlace()
      try #require(mkdir(place.mountpoint, 0o755) == 0 && chown(place.mountpoint, 65534, 65534) == 0)
      let mounted = try place.run(
        "mount", place.mountpoint, "--manifest", place.manifest, "--header", "X-Secret: planted", user: true)
      #expect(mounted.status == 0, "\(mounted)")
      let attacker = try Attacker(place)
      for process in [try #require(place.helper), try #require(place.server)] {
        for way in Attacker.ways {
          let result = try attacker.attack("running", way, of: process)
          #expect(result.hasPrefix("refused"), "\(way): \(result)")
        }
      }
      #expect(try place.run("unmount", place.mountpoint, user: true).status == 0)
    }
  }

  /// It waits here for the end of the second file, and has read the first one.
  @Test func aCommandThatReadsSecretsIsClosedToo() throws {
    let place = try MountPlace()
    try place.write("X-Secret: planted\n", to: place.folder + "/headers")
    let fifo = place.folder + "/fifo"
    try #require(mkfifo(fifo, 0o644) == 0)
    let running = try place.start(
      [
        place.mediafs, "mount", place.mountpoint, "--manifest", place.manifest, "--header",
        "@\(place.folder)/headers", "--header", "@\(fifo)",
      ], user: true)
    // It can be opened for writing once the command reads from it, and the command then waits for its end.
    var writer: Int32 = -1
    try #require(
      eventually {
        writer = open(fifo, O_WRONLY | O_NONBLOCK)
        return writer >= 0
      })
    defer { close(writer) }
    let attacker = try Attacker(place)
    for way in Attacker.ways {
      let result = try attacker.attack("running", way, of: running.process)
      #expect(result.hasPrefix("refused"), "\(way): \(result)")
    }
    kill(running.process, SIGKILL)
    _ = try place.wait(running)
  }

  /// Root reads header files for `user=nobody` with nobody's rights, wherever nobody's own links lead.
  @Test func aUsersHeaderFileIsReadWithTheirRights() throws {
    let place = try MountPlace()
    let (secret, link, own) = (place.folder + "/secret", place.folder + "/link", place.folder + "/own")
    try place.write("X-Secret: planted\n", to: secret)
    try place.write("X-Own: mine\n", to: own)
    try #require(chmod(secret, 0o600) == 0 && chmod(own, 0o600) == 0 && chown(own, 65534, 65534) == 0)
    try #require(symlink(secret, link) == 0 && lchown(link, 65534, 65534) == 0)
    let user = "user=nobody,store=\(place.storeOfNobody)"
    for path in [secret, link] {
      for options in ["header=@\(path),\(user)", "\(user),header=@\(path)"] {
        let refused = try place.run("mount", place.mountpoint, "--manifest", place.manifest, "-o", options)
        #expect(refused.status == 1 && !place.isMounted, "\(refused)")
        #expect(
          refused.text.contains(path) && refused.text.contains("nobody") && refused.text.contains("Permission denied"),
          "\(refused)")
      }
    }
    let pipe = place.folder + "/pipe"
    try #require(mkfifo(pipe, 0o600) == 0 && chown(pipe, 65534, 65534) == 0)
    let waiting = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "-o", "header=@\(pipe),\(user)")
    #expect(waiting.status == 1 && waiting.text.contains("\(pipe) is a FIFO") && !place.isMounted, "\(waiting)")
    let mounted = try place.run("mount", place.mountpoint, "--manifest", place.manifest, "-o", "header=@\(own),\(user)")
    #expect(mounted.status == 0, "\(mounted)")
    // The command was root again when it mounted, and the server has nobody's groups and no others.
    let server = try #require(place.server)
    #expect(Processes.text(server, "status").contains("Groups:\t65534 \n"))
    #expect(try place.run("unmount", place.mountpoint).status == 0)
    let roots = try place.run("mount", place.mountpoint, "--manifest", place.manifest, "--header", "@\(secret)")
    #expect(roots.status == 0, "\(roots)")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// Root's mount never waits for who would write into a FIFO of that user's, or reads a device without end.
  @Test(arguments: ["a FIFO", "a device"])
  func rootsMountForAUserTakesPlainFilesAlone(kind: String) throws {
    let place = try MountPlace()
    let file = place.folder + "/no-file"
    let isMade =
      kind == "a FIFO" ? mkfifo(file, 0o600) == 0 && chown(file, 65534, 65534) == 0 : symlink("/dev/zero", file) == 0
    try #require(isMade)
    let user = "user=nobody,store=\(place.storeOfNobody)"
    for (manifest, options) in [
      (file, user), (place.manifest, "\(user),header=@\(file)"), (place.manifest, "\(user),cacert=\(file)"),
      (place.manifest, "\(user),netrc-file=\(file)"),
    ] {
      let refused = try place.run("mount", place.mountpoint, "--manifest", manifest, "-o", options)
      #expect(refused.status == 1 && !place.isMounted, "\(options): \(refused)")
      #expect(
        refused.text.contains(file) && refused.text.contains("is \(kind)") && refused.text.contains("plain file"),
        "\(options): \(refused)")
      #expect(place.helper == nil)
    }
  }

  /// A user may stop the server that runs as them. Root's mount then ends with an error instead of waiting for ever.
  @Test func aStoppedServerEndsRootsMount() throws {
    let place = try MountPlace()
    // Long enough for the server to be stopped before the mount is ready.
    try place.write(String(repeating: "http://localhost/a.mp4\n", count: 400_000), to: place.manifest)
    let mounting = try place.start([
      place.mediafs, "mount", place.mountpoint, "--manifest", place.manifest, "-o",
      "user=nobody,store=\(place.storeOfNobody)",
    ])
    var server: Int32?
    try #require(
      eventually {
        server = place.server
        return server != nil
      })
    kill(try #require(server), SIGSTOP)
    let failed = try place.wait(mounting)
    #expect(failed.status == 1 && failed.text.contains("stopped the server"), "\(failed)")
    #expect(place.isGone(server: server))
  }

  /// A file of nothing but a hole may be as large as the filesystem allows, and root would wait for its end.
  @Test func rootsMountForAUserRefusesAListWithoutEnd() throws {
    let place = try MountPlace()
    let list = place.folder + "/list"
    try place.write("http://localhost/a.mp4\n", to: list)
    try #require(truncate(list, 5 << 30) == 0 && chown(list, 65534, 65534) == 0)
    let refused = try place.run(
      "mount", place.mountpoint, "--manifest", list, "-o", "user=nobody,store=\(place.storeOfNobody)")
    #expect(refused.status == 1 && refused.text.contains("at most 4 GiB") && !place.isMounted, "\(refused)")
  }

  /// The caller's own mount reads a list from a FIFO, and waits for who writes it, also slowly.
  @Test func aUsersOwnMountReadsItsListFromAFIFO() throws {
    let place = try MountPlace()
    let fifo = place.folder + "/fifo"
    try #require(mkfifo(fifo, 0o600) == 0)
    let mounting = try place.start([place.mediafs, "mount", place.mountpoint, "--manifest", fifo])
    var writer: Int32 = -1
    try #require(
      eventually {
        writer = open(fifo, O_WRONLY | O_NONBLOCK)
        return writer >= 0
      })
    for line in ["http://localhost/a.mp4\n", "http://localhost/b.mp4\n"] {
      usleep(300_000)
      #expect(write(writer, line, line.utf8.count) == line.utf8.count)
      #expect(!place.isMounted)
    }
    close(writer)
    let mounted = try place.wait(mounting)
    #expect(mounted.status == 0, "\(mounted)")
    let text = try SystemCalls.run(["ls", place.mountpoint + "/b.mp4"])
    #expect(text.status == 0, "\(text)")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// What the command was given as standard input is read whoever the mount is for.
  @Test func rootsMountForAUserReadsItsListFromStandardInput() throws {
    let place = try MountPlace()
    let mounted = try place.wait(
      place.start(
        [
          place.mediafs, "mount", place.mountpoint, "--manifest", "-", "-o",
          "user=nobody,store=\(place.storeOfNobody)",
        ], input: try Files.read(place.manifest, limit: 4096)))
    #expect(mounted.status == 0, "\(mounted)")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }
}

/// A process of nobody's that tries to get at another one.
private final class Attacker {
  /// What the kernel lets only who may trace a process do.
  static let ways = ["descriptor", "attach", "mem", "environ", "fd"]
  private let folder: String

  init(_ place: MountPlace) throws {
    folder = place.folder
    try place.write(script, to: folder + "/attacker.py")
  }

  /// Tries `way` without a pause: on a process that runs (`running`, until 2000 tries), from a process's first
  /// instant for a while (`all`), or on what it starts (`children`). What came of it: `refused` or what was won.
  func attack(_ whom: String, _ way: String, of process: pid_t) throws -> String {
    let nobody = try #require(TestUser(named: "nobody"))
    let result = try Command.run(
      ["/usr/bin/python3", "-S", folder + "/attacker.py", whom, way, "\(process)"], timeout: 60, user: nobody)
    #expect(result.status == 0, "\(result.errors)")
    return result.output
  }
}

private let script = #"""
  import ctypes, os, sys, time
  whom, way, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
  libc = ctypes.CDLL(None, use_errno=True)
  libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
  PIDFD_GETFD, PTRACE_SEIZE, ESRCH = 438, 0x4206, 3

  def attempt(process, pidfd):
      if way == "descriptor":
          for number in (3, 10):
              if libc.syscall(PIDFD_GETFD, pidfd, number, 0) >= 0:
                  return True
          return False
      if way == "attach":
          return libc.ptrace(PTRACE_SEIZE, process, None, None) == 0
      if way == "fd":
          return len(os.listdir("/proc/%d/fd" % process)) > 0
      with open("/proc/%d/%s" % (process, way), "rb", 0) as file:
          return way == "mem" or len(file.read(1)) > 0

  def children(process):
      found = []
      for task in os.listdir("/proc/%d/task" % process):
          with open("/proc/%d/task/%s/children" % (process, task)) as file:
              found += [int(word) for word in file.read().split()]
      return found

  # Not what stands before it: env and setpriv are programs like others.
  def is_ours(process):
      with open("/proc/%d/cmdline" % process, "rb") as file:
          return os.path.basename(file.read().split(b"\0")[0]) in (b"mediafs", b"mount-helper")

  count, pidfds, seen, end = 0, {}, set(), time.monotonic() + 20
  if whom != "children":
      seen.add(first)
  while time.monotonic() < end:
      if whom != "running":
          try:
              new = set(children(first)) - seen
          except OSError:
              break
          if new:
              # From here until it surely serves, or has ended.
              seen |= new
              end = min(end, time.monotonic() + 1)
      for _ in range(50 if seen else 0):
          for process in seen:
              try:
                  if process not in pidfds:
                      if whom == "all" and not is_ours(process):
                          continue
                      pidfds[process] = os.pidfd_open(process)
                  count += 1
                  # A fork of the helper's that became fusermount3 meanwhile is another program, and setuid.
                  if attempt(process, pidfds[process]) and (whom != "all" or is_ours(process)):
                      print("won:", way, "of", process, "after", count, flush=True)
                      os._exit(0)
              except OSError:
                  pass
      if whom == "running" and count > 2000:
          break
  print("refused" if count > 100 else "hardly tried:", count, flush=True)
  """#
