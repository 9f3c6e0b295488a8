import Base
import Glibc
import Storing
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// The mount helper, end to end: real mounts. Needs root, as CI has it.
@Suite(.serialized)
struct HelperTests {
  @Test func mountsAndUnmounts() throws {
    let place = try MountPlace()
    let mounted = try place.run("mount", place.mountpoint, "--manifest", place.manifest)
    #expect(mounted.status == 0 && mounted.text.isEmpty, "\(mounted)")
    let entry = try #require(place.entry)
    #expect(entry.type == "fuse.mediafs" && entry.source == place.manifest)
    #expect(entry.options.contains("max_read=65536") && entry.options.contains("default_permissions"))
    #expect(try SystemCalls.run(["ls", "-la", place.mountpoint]).status == 0)
    #expect(mkdir(place.mountpoint + "/new", 0o755) == -1 && Errno.current == .readOnly)
    let server = try #require(place.server)
    let unmounted = try place.run("unmount", place.mountpoint)
    #expect(unmounted.status == 0 && unmounted.text.isEmpty, "\(unmounted)")
    // `unmount` waits: nothing to wait for here.
    #expect(!place.isMounted && place.helper == nil && !Processes.isAlive(server))
  }

  @Test func anOrdinaryUserMountsThroughFusermount() throws {
    try withFuseForEveryone {
      let place = try MountPlace()
      try #require(mkdir(place.mountpoint, 0o755) == 0 && chown(place.mountpoint, 65534, 65534) == 0)
      let mounted = try place.run("mount", place.mountpoint, "--manifest", place.manifest, user: true)
      #expect(mounted.status == 0, "\(mounted)")
      #expect(place.entry?.options.contains("user_id=65534") == true)
      let server = try #require(place.server)
      #expect(Processes.text(server, "status").contains("Uid:\t65534\t65534\t65534\t65534"))
      // The kernel calls the mount writable, and leaves it to the server to refuse.
      let at = place.mountpoint
      #expect(place.entry?.options.hasPrefix("rw,") == true && place.entry?.options.contains("default") == false)
      let refused = try place.wait(
        place.start(
          [
            "sh", "-c",
            """
            cd \(at) && f=$(ls | head -n 1) && test -n "$f" && exec 2>&1
            touch new; mkdir m; ln -s x l; mknod p p; echo x >"$f"; rm -f "$f"; mv "$f" o; chmod 600 "$f"
            chown 65534 "$f"; truncate -s 0 "$f"; touch "$f"; touch .; ln "$f" hard; setfattr -n user.x -v 1 "$f"
            : <>"$f"; test -w . && echo writable
            """,
          ], user: true))
      let others = refused.text.split(separator: "\n").filter { !$0.contains("Read-only file system") }
      #expect(others.isEmpty && refused.text.split(separator: "\n").count == 15, "\(refused)")
      let unmounted = try place.run("unmount", place.mountpoint, user: true)
      #expect(unmounted.status == 0, "\(unmounted)")
      #expect(!place.isMounted && place.helper == nil && !Processes.isAlive(server))
    }
  }

  @Test func anOrdinaryUsersMountEndsWithItsHelper() throws {
    try withFuseForEveryone {
      let place = try MountPlace()
      try #require(mkdir(place.mountpoint, 0o755) == 0 && chown(place.mountpoint, 65534, 65534) == 0)
      #expect(try place.run("mount", place.mountpoint, "--manifest", place.manifest, user: true).status == 0)
      let (helper, server) = (try #require(place.helper), try #require(place.server))
      kill(helper, SIGKILL)
      #expect(place.isGone(server: server))
      #expect(try place.run("mount", place.mountpoint, "--manifest", place.manifest, user: true).status == 0)
      func listed() throws -> String {
        let names = try place.wait(place.start(["ls", "-A", place.mountpoint], user: true))
        try #require(names.status == 0 && !names.text.isEmpty, "\(names)")
        return names.text
      }
      let names = try listed()
      let next = try #require(place.server)
      kill(next, SIGKILL)
      #expect(eventually { place.server.map { $0 != next } ?? false })
      #expect(try listed() == names)
      #expect(try place.run("unmount", place.mountpoint, user: true).status == 0)
      #expect(place.isGone(server: next))
    }
  }

  @Test func aFailureLeavesNothing() throws {
    let place = try MountPlace()
    let deep = place.mountpoint + "/made/for/it"
    let failed = try place.run("mount", deep, "--manifest", place.folder + "/no-such-file")
    #expect(failed.status == 1)
    #expect(failed.text.contains("cannot read the manifest") && failed.text.contains("no-such-file"), "\(failed.text)")
    #expect(access(place.mountpoint, F_OK) != 0, "the folders that were made are gone again")
    #expect(MountUsers.helper(of: deep) == nil)
    #expect(try MountTable.entry(at: deep) == nil)
    try #require(mkdir(place.mountpoint, 0o755) == 0)
    #expect(try place.run("mount", place.mountpoint, "--manifest", place.folder + "/no-such-file").status == 1)
    #expect(access(place.mountpoint, F_OK) == 0, "a folder that was there stays")
  }

  @Test func whatTheKernelRefusesLeavesNothing() throws {
    let place = try MountPlace()
    // SELinux labels mean nothing here: mount(2) refuses them, after the server has prepared.
    let failed = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "-o", "context=nonsense")
    #expect(failed.status == 1 && failed.text.contains("cannot mount at"), "\(failed)")
    #expect(place.isGone(server: nil) && access(place.mountpoint, F_OK) != 0)
  }

  @Test func interruptedWhilePreparing() throws {
    let place = try MountPlace()
    // A manifest that nobody writes: the server waits in open(2).
    try #require(mkfifo(place.folder + "/fifo", 0o644) == 0)
    let running = try place.start([place.mediafs, "mount", place.mountpoint, "--manifest", place.folder + "/fifo"])
    try #require(eventually { place.server != nil })
    let server = try #require(place.server)
    // Only a server that has taken its signal thread up ends by itself; before that the signal just kills it.
    kill(running.process, SIGINT)
    #expect(try place.wait(running).status == 1)
    #expect(place.isGone(server: server) && access(place.mountpoint, F_OK) != 0)
  }

  @Test func unsuitableFolders() throws {
    let place = try MountPlace()
    let file = try place.run("mount", place.manifest, "--manifest", place.manifest)
    #expect(file.status == 1 && file.text.contains("is not a folder"), "\(file)")
    let full = try place.run("mount", place.folder, "--manifest", place.manifest)
    #expect(full.status == 1 && full.text.contains("is not empty"), "\(full)")
    let store = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "--store", place.mountpoint + "/store")
    #expect(store.status == 1 && store.text.contains("inside the mount"), "\(store)")
    #expect(access(place.mountpoint, F_OK) != 0)
  }

  @Test func aDeadMountIsToldHowToClear() throws {
    let place = try MountPlace()
    #expect(try place.run("mount", place.mountpoint, "--manifest", place.manifest).status == 0)
    let twice = try place.run("mount", place.mountpoint, "--manifest", place.manifest)
    #expect(twice.status == 1 && twice.text.contains("is mounted already"), "\(twice)")
    try place.makeDead()
    let dead = try place.run("mount", place.mountpoint, "--manifest", place.manifest)
    #expect(dead.status == 1 && dead.text.contains("mediafs unmount --lazy '\(place.mountpoint)'"), "\(dead)")
    #expect(try place.run("unmount", "--lazy", place.mountpoint).status == 0)
    #expect(try place.run("mount", place.mountpoint, "--manifest", place.manifest).status == 0)
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  @Test func aDeadMountCanBeUnmounted() throws {
    let place = try MountPlace()
    #expect(try place.run("mount", place.mountpoint, "--manifest", place.manifest).status == 0)
    try place.makeDead()
    let unmounted = try place.run("unmount", place.mountpoint + "/")
    #expect(unmounted.status == 0 && !place.isMounted, "\(unmounted)")
  }

  @Test func aDescriptorThatIsNotOpenIsNoList() throws {
    let place = try MountPlace()
    let failed = try place.wait(
      place.start([
        "sh", "-c", "exec \"$0\" mount \"$1\" --manifest /dev/fd/3 3<&-", place.mediafs, place.mountpoint,
      ]))
    #expect(failed.status == 1 && failed.text.contains("/dev/fd/3: Bad file descriptor"), "\(failed)")
  }

  /// The last two names are of the command's own descriptors, which the server does not have.
  @Test(arguments: ["-", "/dev/stdin", "/dev/fd/0"]) func theManifestFromStandardInput(name: String) throws {
    let place = try MountPlace()
    let running = try place.start(
      [place.mediafs, "mount", place.mountpoint, "--manifest", name], input: try Files.read(place.manifest, limit: 4096)
    )
    let mounted = try place.wait(running)
    #expect(mounted.status == 0 && place.entry?.source == "mediafs", "\(mounted)")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  @Test func mountCallsItWithNoEnvironment() throws {
    try SystemRecords.used {
      let place = try MountPlace()
      try #require(mkdir(place.mountpoint, 0o755) == 0)
      let store = try StoreFolder.defaultPath(mountpoint: place.mountpoint, environment: [:], uid: 0)
      #expect(store.hasPrefix("/var/lib/mediafs/"))
      let name = String(store.dropFirst("/var/lib/mediafs/".utf8.count))
      defer { _ = try? SystemCalls.run(["rm", "-rf", store, "/var/lib/mediafs/mounts/" + name]) }
      let running = try place.start([
        "-i", place.folder + "/bin/mount.mediafs", place.manifest, place.mountpoint, "-o",
        "rw,nofail,_netdev,noatime,x-systemd.automount,allow_other,uid=1000,umask=022",
      ])
      let mounted = try place.wait(running)
      #expect(mounted.status == 0 && mounted.text.isEmpty, "\(mounted)")
      #expect(place.entry?.options.contains("allow_other") == true)
      #expect(try place.run("umount", place.mountpoint).status == 0)
      let fake = try place.wait(
        place.start([place.folder + "/bin/mount.mediafs", place.manifest, place.mountpoint, "-f"]))
      #expect(fake.status == 0 && !place.isMounted)
      let wrong = try place.wait(
        place.start([place.folder + "/bin/mount.mediafs", place.manifest, place.mountpoint, "-o", "nonsense"]))
      #expect(wrong.status == 2 && wrong.text.contains("nonsense") && !place.isMounted, "\(wrong)")
      // mount(8) puts `rw` first when nobody asked for `ro`; behind another option somebody wrote it.
      for asked in [["-o", "nofail,rw"], ["-w"]] {
        let writable = try place.wait(
          place.start([place.folder + "/bin/mount.mediafs", place.manifest, place.mountpoint] + asked))
        #expect(writable.status == 2 && writable.text.contains("read-only") && !place.isMounted, "\(writable)")
      }
      let sloppy = try place.wait(
        place.start([place.folder + "/bin/mount.mediafs", place.manifest, place.mountpoint, "-s", "-o", "nonsense"]))
      #expect(sloppy.status == 0 && place.isMounted, "\(sloppy)")
      #expect(try place.run("unmount", place.mountpoint).status == 0)
    }
  }

  @Test func rootMountsForAnotherUser() throws {
    let place = try MountPlace()
    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "-o", "user=nobody,store=\(place.storeOfNobody)")
    #expect(mounted.status == 0, "\(mounted)")
    let options = try #require(place.entry?.options)
    #expect(options.contains("user_id=65534") && options.contains("group_id=65534"), "\(options)")
    let (helper, server) = (try #require(place.helper), try #require(place.server))
    #expect(Processes.text(helper, "status").contains("Uid:\t0\t0\t0\t0"))
    let status = Processes.text(server, "status")
    #expect(status.contains("Uid:\t65534\t65534\t65534\t65534") && status.contains("Gid:\t65534\t65534\t65534\t65534"))
    #expect(status.contains("Groups:\t65534 \n") && status.contains("NoNewPrivs:\t1"), "\(status)")
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
      #expect(status.contains("\(set):\t0000000000000000\n"), "\(status)")
    }
    let environment = Processes.text(server, "environ").split(separator: "\0")
    #expect(environment.contains("USER=nobody") && environment.contains("LOGNAME=nobody"))
    #expect(environment.contains("HOME=/nonexistent") && !environment.contains { $0.hasPrefix("XDG_") })
    // It is nobody's: nobody may use it, and the helper's end leaves no mount although the server is not root.
    #expect(
      try SystemCalls.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ls", place.mountpoint])
        .status == 0)
    kill(helper, SIGKILL)
    #expect(place.isGone(server: server))
  }

  @Test func secretsAreNotInAnyProcessList() throws {
    let place = try MountPlace()
    let token = "planted-\(UInt64.random(in: 0 ... .max))"
    try place.write("X-From-File: \(token)\n", to: place.folder + "/headers")
    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "--header", "Authorization: Bearer \(token)",
      "--head=Cookie: \(token)", "-o", "header=X-Token: \(token)", "--header", "@\(place.folder)/headers")
    #expect(mounted.status == 0, "\(mounted)")
    for process in Processes.all() {
      #expect(!Processes.text(process, "cmdline").contains(token), "process \(process)")
    }
    let server = try #require(place.server)
    #expect(Processes.text(server, "cmdline") == "mediafs\0serve\0--helper-fd\u{0}3\0")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// A program that writes the list to the command takes its time.
  @Test func aBaseURLIsInNoProcessList() throws {
    let place = try MountPlace()
    let token = "planted-\(UInt64.random(in: 0 ... .max))"
    let list = place.folder + "/pipe"
    try #require(mkfifo(list, 0o600) == 0)
    let writer = open(list, O_RDWR | O_CLOEXEC)
    let mounting = try place.start([
      "sh", "-c", "exec \"$0\" \"$@\" < '\(list)'", place.mediafs, "mount", place.mountpoint, "--manifest", "-",
      "--base-url", "http://u:\(token)@localhost/",
    ])
    #expect(eventually { Processes.text(mounting.process, "cmdline").contains("--base-url\0***") })
    #expect(!Processes.text(mounting.process, "cmdline").contains(token))
    let line = Array("http://localhost/a.mp4\n".utf8)
    #expect(write(writer, line, line.count) == line.count)
    close(writer)
    let mounted = try place.wait(mounting)
    #expect(mounted.status == 0, "\(mounted)")
    for process in Processes.all() {
      #expect(!Processes.text(process, "cmdline").contains(token), "process \(process)")
    }
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// Its user learns from the log what that may cost (promise P12).
  @Test func aServerThatMayLockNoMemorySaysSo() throws {
    try withFuseForEveryone {
      let place = try MountPlace()
      try #require(mkdir(place.mountpoint, 0o755) == 0 && chown(place.mountpoint, 65534, 65534) == 0)
      let running = try place.start(
        [
          "prlimit", "--memlock=0", place.mediafs, "mount", place.mountpoint, "--manifest", place.manifest,
          "--foreground",
        ], user: true)
      try #require(eventually { place.text(running).contains("mounted at") }, "\(place.text(running))")
      let warnings = place.text(running).split(separator: "\n").count { $0.contains("the server cannot lock ") }
      #expect(warnings == 1, "\(place.text(running))")
      #expect(try place.run("unmount", place.mountpoint, user: true).status == 0)
    }
  }
}
