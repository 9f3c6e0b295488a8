import Base
import Glibc
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// How a mount ends: PROTOCOL.md, "The end".
@Suite(.serialized)
struct HelperEndTests {
  @Test(arguments: [SIGTERM, SIGINT])
  func aSignalEndsItCleanly(_ signal: Int32) throws {
    let place = try MountPlace()
    let running = try place.startForeground()
    let server = try #require(place.server)
    kill(running.process, signal)
    let ended = try place.wait(running)
    #expect(ended.status == 0, "\(ended)")
    #expect(!place.isMounted && !Processes.isAlive(server))
  }

  /// A terminal that closes does not unmount, and an administrator who wants the list read again gets that.
  @Test func aHangUpDoesNotUnmount() throws {
    let place = try MountPlace()
    let running = try place.startForeground()
    let server = try #require(place.server)
    for (count, process) in [(1, running.process), (2, server)] {
      kill(process, SIGHUP)
      let said = eventually {
        place.text(running).split(separator: "\n").count { $0.hasSuffix("the list is as before") } == count
      }
      #expect(said, "\(place.text(running))")
    }
    #expect(try SystemCalls.run(["ls", place.mountpoint]).status == 0)
    kill(running.process, SIGTERM)
    #expect(try place.wait(running).status == 0)
    #expect(!place.isMounted && !Processes.isAlive(server))
  }

  /// Somebody renames a folder of the mountpoint's path and puts a link in its place: the end unmounts what was
  /// mounted, where it is now, and nothing where the link leads.
  @Test(arguments: ["killed", "told", "user's, killed", "user's, told"])
  func theEndFindsItsMountAndFollowsNoLink(_ end: String) throws {
    try withFuseForEveryone {
      let place = try MountPlace()
      let isUser = end.hasPrefix("user")
      let (before, after, other) = (place.folder + "/before", place.folder + "/after", place.folder + "/other")
      for folder in [before, other, before + "/mnt", other + "/mnt"] {
        try #require(mkdir(folder, 0o755) == 0 && (!isUser || chown(folder, 65534, 65534) == 0))
      }
      for folder in [before, other] {
        let mounted = try place.run(
          "mount", folder + "/mnt", "--manifest", place.manifest, "--store",
          place.storeOfNobody + Files.split(folder).name,
          user: isUser)
        #expect(mounted.status == 0, "\(mounted)")
      }
      func isMounted(_ folder: String) throws -> Bool { try MountTable.entry(at: folder + "/mnt") != nil }
      let helper = try #require(MountUsers.anyHelper(of: before + "/mnt"))
      let server = try #require(Processes.children(of: helper).first)
      try #require(rename(before, after) == 0 && symlink(other, before) == 0)
      #expect(try isMounted(after) && isMounted(other))
      kill(helper, end.hasSuffix("told") ? SIGTERM : SIGKILL)  // killed, it leaves the end to its server
      #expect(eventually { !Processes.isAlive(server) && !Processes.isAlive(helper) })
      #expect(try !isMounted(after), "it stays, dead")
      #expect(try isMounted(other), "another one was unmounted")
      for folder in [after, other] { _ = try SystemCalls.run(["umount", "-l", folder + "/mnt"]) }
      #expect(eventually { MountUsers.anyHelper(of: other + "/mnt") == nil })
    }
  }

  /// A folder of the path is not reached for a moment as the mount ends: here another mount lies over it; whoever may
  /// rename folders of the path can do the same.
  @Test(.enabled(if: geteuid() == 0)) func theEndLooksAgainForAMountThatIsHidden() throws {
    let place = try MountPlace()
    let folder = place.folder + "/hidden"
    let mountpoint = folder + "/mnt"
    try #require(mkdir(folder, 0o755) == 0)
    let mounted = try place.run("mount", mountpoint, "--manifest", place.manifest)
    try #require(mounted.status == 0, "\(mounted)")
    let helper = try #require(MountUsers.anyHelper(of: mountpoint))
    let server = try #require(Processes.children(of: helper).first)
    try #require(try SystemCalls.run(["mount", "-t", "tmpfs", "none", folder]).status == 0)
    kill(helper, SIGTERM)
    #expect(eventually { !Processes.isAlive(server) })
    sleep(seconds: 0.3)  // by now the helper has looked
    #expect(try SystemCalls.run(["umount", folder]).status == 0)
    #expect(eventually { !Processes.isAlive(helper) })
    #expect(try MountTable.entry(at: mountpoint) == nil, "it stays, dead")
    _ = try SystemCalls.run(["umount", "-l", mountpoint])
  }

  /// Another process exchanges a folder of the mountpoint's path with another folder all the time, so that the path of
  /// the mount often leads elsewhere when the helper looks there. A mount succeeds or fails, but is never left behind.
  @Test(.enabled(if: geteuid() == 0)) func aMountWhoseFolderIsExchangedIsNotLeftBehind() throws {
    let place = try MountPlace()
    let (folder, other) = (place.folder + "/one", place.folder + "/other")
    for path in [folder, other, folder + "/mnt", other + "/mnt"] { try #require(mkdir(path, 0o755) == 0) }
    let script = """
      import ctypes, sys
      libc, AT_FDCWD, RENAME_EXCHANGE = ctypes.CDLL(None), -100, 2
      one, other = (path.encode() for path in sys.argv[1:])
      while libc.renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) == 0:
          pass
      """
    let exchanging = try place.start(["/usr/bin/python3", "-S", "-c", script, folder, other])
    func mounts() throws -> [String] {
      try MountTable.read().map(\.mountpoint).filter { $0.hasPrefix(folder + "/") || $0.hasPrefix(other + "/") }
    }
    var succeeded = 0
    for _ in 0..<20 {
      let result = try place.run("mount", folder + "/mnt", "--manifest", place.manifest)
      if result.status == 0 {
        succeeded += 1
        let path = try #require(try mounts().first)
        let helper = try #require([folder, other].compactMap { MountUsers.anyHelper(of: $0 + "/mnt") }.first)
        kill(helper, SIGTERM)
        #expect(eventually { !Processes.isAlive(helper) }, "\(path)")
      }
      let left = try mounts()
      #expect(left.isEmpty, "\(result)")
      for path in left { _ = try SystemCalls.run(["umount", "-l", path]) }
      if !left.isEmpty { break }
    }
    kill(exchanging.process, SIGKILL)
    #expect(try place.wait(exchanging).status == -SIGKILL)
    for path in try mounts() { _ = try SystemCalls.run(["umount", "-l", path]) }
    #expect(succeeded > 0)
  }

  @Test func aBusyMountIsDetached() throws {
    let place = try MountPlace()
    let running = try place.startForeground()
    let folder = try #require(opendir(place.mountpoint))
    defer { closedir(folder) }
    let refused = try place.run("unmount", place.mountpoint)
    #expect(
      refused.status == 1 && refused.text.contains("--lazy") && refused.text.contains("(\(getpid()))"), "\(refused)")
    kill(running.process, SIGTERM)
    #expect(try place.wait(running).status == 0)
    #expect(!place.isMounted)
    // The connection is closed: who still uses it gets an error rather than waiting for ever.
    // (Not by fstat: the kernel remembers the folder's attributes.)
    #expect(openat(dirfd(folder), "other", O_RDONLY) == -1 && Errno.current == Errno(rawValue: ENOTCONN))
  }

  @Test func lazyUnmountServesUntilTheLastUserIsGone() throws {
    let place = try MountPlace()
    let running = try place.startForeground()
    let folder = try #require(opendir(place.mountpoint))
    #expect(try place.run("unmount", "--lazy", place.mountpoint).status == 0)
    #expect(!place.isMounted && Processes.isAlive(running.process))
    var status = stat()
    #expect(fstat(dirfd(folder), &status) == 0)
    closedir(folder)
    #expect(try place.wait(running).status == 0)
  }

  /// The helper's guard, which has its arguments.
  private func guardian(of place: MountPlace) -> Int32? {
    Processes.all().first { process in
      Processes.text(process, "comm") == "mount-guard\n"
        && Processes.text(process, "cmdline").split(separator: "\0").contains { $0 == place.mountpoint }
    }
  }

  /// The server for `user=NAME` may not unmount: no program that it starts gets root's rights.
  @Test(.enabled(if: TestUser.canSwitch)) func aKilledHelperTakesTheMountOfAnotherUserWithIt() throws {
    let place = try MountPlace()
    for ending in ["killed", "killed in a gap", "ended"] {
      let running = try place.startForeground("-o", "user=nobody,store=\(place.storeOfNobody)")
      let server = try #require(place.server)
      #expect(eventually { guardian(of: place) != nil })
      if ending == "killed in a gap" { kill(running.process, SIGSTOP) }
      if ending == "killed in a gap" { kill(server, SIGKILL) }
      kill(running.process, ending == "ended" ? SIGTERM : SIGKILL)
      #expect(try place.wait(running).status == (ending == "ended" ? 0 : -SIGKILL))
      #expect(place.isGone(server: server), "\(ending)")
      #expect(eventually { guardian(of: place) == nil }, "\(ending)")
    }
  }

  /// A guard that is killed is followed by another one.
  @Test(.enabled(if: TestUser.canSwitch)) func aKilledGuardIsFollowedByTheNext() throws {
    let place = try MountPlace()
    let running = try place.startForeground("-o", "user=nobody,store=\(place.storeOfNobody)")
    let server = try #require(place.server)
    for _ in 0..<2 {
      let old = try #require(guardian(of: place))
      kill(old, SIGKILL)
      #expect(eventually { guardian(of: place).map { $0 != old } ?? false })
    }
    kill(running.process, SIGKILL)
    #expect(try place.wait(running).status == -SIGKILL)
    #expect(place.isGone(server: server))
    #expect(eventually { guardian(of: place) == nil })
  }

  /// In the background, no process of the mount holds the caller's pipe: the guard began before the caller returned.
  @Test(.enabled(if: TestUser.canSwitch)) func theGuardHoldsNothingOfTheCallers() throws {
    let place = try MountPlace()
    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "-o", "user=nobody,store=\(place.storeOfNobody)")
    try #require(mounted.status == 0, "\(mounted)")
    #expect(eventually { guardian(of: place) != nil })
    let process = try #require(guardian(of: place))
    for name in ["0", "1"] {
      #expect(try Command.succeed(["readlink", "/proc/\(process)/fd/\(name)"]) == "/dev/null\n")
    }
    #expect(try Command.succeed(["readlink", "/proc/\(process)/fd/2"]).hasSuffix("/mediafs.log\n"))
    #expect(try place.run("unmount", place.mountpoint).status == 0)
    #expect(eventually { guardian(of: place) == nil })
  }

  @Test func aKilledHelperTakesTheMountWithIt() throws {
    let place = try MountPlace()
    let running = try place.startForeground()
    let server = try #require(place.server)
    kill(running.process, SIGKILL)
    #expect(try place.wait(running).status == -SIGKILL)
    #expect(place.isGone(server: server))
  }

  @Test(arguments: [["umount"], ["fusermount3", "-u"]])
  func unmountedByOthers(_ command: [String]) throws {
    let place = try MountPlace()
    let running = try place.startForeground()
    let server = try #require(place.server)
    #expect(try SystemCalls.run(command + [place.mountpoint]).status == 0)
    #expect(try place.wait(running).status == 0)
    #expect(place.isGone(server: server))
  }

  @Test func aServerThatHangsIsKilledAtTheSecondSignal() throws {
    let place = try MountPlace()
    let running = try place.startForeground()
    let server = try #require(place.server)
    kill(server, SIGSTOP)
    try #require(eventually { isStopped(server) })
    kill(running.process, SIGTERM)
    // Two of one kind that come at once count as one: the first was taken when it was passed on.
    try #require(eventually { Processes.isPending(SIGTERM, for: server) })
    kill(running.process, SIGTERM)
    let ended = try place.wait(running)
    #expect(ended.status == 1 && ended.text.contains("killed by signal 9"), "\(ended)")
    #expect(place.isGone(server: server))
  }

  @Test func anothersMountAtTheSamePlaceStays() throws {
    // The kernel gives a device number anew, which is the case that this is about; but another mount may get it first.
    var isSameNumber = false
    for _ in 0..<60 where !isSameNumber {
      let place = try MountPlace()
      let running = try place.startForeground()
      let server = try #require(place.server)
      let device = try #require(place.entry?.device)
      kill(server, SIGSTOP)  // it is slow to notice
      try #require(eventually { isStopped(server) })
      try SystemCalls.unmount(try #require(place.entry), lazily: false)  // umount(8) would ask the server first
      let second = try place.startForeground("--store", place.folder + "/second")
      isSameNumber = place.entry?.device == device
      kill(server, SIGCONT)
      #expect(try place.wait(running).status == 0)
      #expect(place.isMounted && Processes.isAlive(second.process))
      kill(second.process, SIGTERM)
      #expect(try place.wait(second).status == 0)
      #expect(!place.isMounted)
    }
    #expect(isSameNumber, "no number was given anew: nothing was tested")
  }

  @Test func anAbortedConnectionIsUnmounted() throws {
    let place = try MountPlace()
    let running = try place.startForeground("-o", "user=nobody,store=\(place.storeOfNobody)")
    let device = try #require(place.entry?.device)
    let control = "/sys/fs/fuse/connections/\(device)/abort"
    let isMissing = access(control, W_OK) != 0
    if isMissing {
      #expect(try SystemCalls.run(["mount", "-t", "fusectl", "none", "/sys/fs/fuse/connections"]).status == 0)
    }
    defer { if isMissing { _ = try? SystemCalls.run(["umount", "/sys/fs/fuse/connections"]) } }
    try place.write("1", to: control)
    #expect(try place.wait(running).status == 0)
    #expect(!place.isMounted)
  }

  @Test func theLogFile() throws {
    let place = try MountPlace()
    let log = place.folder + "/log"
    let mounted = try place.run("mount", place.mountpoint, "--manifest", place.manifest, "--log-file", log)
    #expect(mounted.status == 0 && mounted.text.isEmpty, "\(mounted)")
    var status = stat()
    #expect(stat(log, &status) == 0 && status.st_mode & 0o777 == 0o600)
    let server = try #require(place.server)
    #expect(eventually { readText(log).contains("mounted at \(place.mountpoint)") })
    kill(server, SIGKILL)
    // The next server, and the helper, write on in it.
    #expect(eventually { readText(log).contains("the next server of \(place.mountpoint) serves") })
    #expect(try place.run("unmount", place.mountpoint).status == 0)
    let text = String(decoding: try Files.read(log, limit: 1 << 20), as: UTF8.self)
    #expect(text.contains("mounted at \(place.mountpoint)") && text.contains("killed by signal 9"), "\(text)")
  }

  /// An ordinary user's mount is taken away by fusermount3, another process, that can come to grief itself: here it is
  /// killed the first few times.
  @Test(arguments: [SIGKILL, SIGTERM])
  func unmountingIsTriedAgain(_ signal: Int32) throws {
    try withFuseForEveryone {
      let place = try MountPlace()
      try #require(mkdir(place.mountpoint, 0o755) == 0 && chown(place.mountpoint, 65534, 65534) == 0)
      let tools = place.folder + "/tools"
      try #require(mkdir(tools, 0o777) == 0 && chmod(tools, 0o777) == 0)
      let real = try #require(Command.path(of: "fusermount3"))
      let script = """
        #!/bin/sh
        echo . >>\(tools)/tries
        [ $(wc -l <\(tools)/tries) -ge 4 ] || kill -9 $$
        exec \(real) "$@"

        """
      try place.write(script, to: tools + "/fusermount3")
      try #require(chmod(tools + "/fusermount3", 0o755) == 0)
      let mounted = try place.wait(
        place.start(
          [
            "env", "PATH=\(tools):/usr/bin:/bin", place.mediafs, "mount", place.mountpoint, "--manifest",
            place.manifest,
          ],
          user: true))
      #expect(mounted.status == 0, "\(mounted)")
      // Whoever else ran it (libfuse, by its full path, did not) is not counted.
      unlink(tools + "/tries")
      let (helper, server) = (try #require(place.helper), try #require(place.server))
      kill(helper, signal)  // killed, it leaves the end to its server
      #expect(place.isGone(server: server))
      let tries = try Files.read(tools + "/tries", limit: 4096).count { $0 == UInt8(ascii: ".") }
      #expect(tries == 4, "the script killed nothing")
    }
  }
}
