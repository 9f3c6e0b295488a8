import Base
import Glibc
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// What root's commands hear of the mounts of other users, and what they do not touch.
extension RightsTests {
  /// A server of NAME's may have any file open. Root opens no folder of a filesystem that a program of NAME's serves.
  @Test func rootOpensNoFolderThatAUserServes() throws {
    let lines = """
      20 1 8:1 / / rw - ext4 /dev/vda rw
      21 20 0:50 / /home/name/fuse rw - fuse.mine mine rw,user_id=1000,group_id=1000
      22 20 0:51 / /pool rw - fuse.mergerfs pool rw,user_id=0,group_id=0,allow_other
      23 21 8:2 / /home/name/fuse/disk rw - ext4 /dev/vdb rw

      """
    let table = MountTable.parse(Array(lines.utf8))
    let paths = [
      "/home/name/store", "/home/name/fuse", "/home/name/fuse/store", "/home/name/fuses", "/pool/store", "/",
    ]
    #expect(table.count == 4)
    #expect(paths.map { OthersMounts.isOfUsers($0, table) } == [false, true, true, false, false, false])
    #expect(!OthersMounts.isOfUsers("/home/name/fuse/disk/store", table))

    // An open folder is judged by its mount, wherever paths lead meanwhile.
    let mounts = try MountTable.read()
    let folder = try FileDescriptor.open("/", O_RDONLY | O_DIRECTORY)
    let users = mounts.map { mount in
      var mount = mount
      mount.options += ",user_id=1000"
      return mount
    }
    var judged: [Bool] = []
    for table in [mounts, users, []] { judged.append(OthersMounts.isOfUsers(folder, table)) }
    #expect(judged == [false, true, true])
  }

  /// Root finds the mounts that it made for others, and asks their servers: it reads nothing of another user's store.
  @Test func rootsCommandsFindMountsOfOtherUsers() throws {
    let place = try MountPlace()
    let store = place.storeOfNobody
    // An old mount of root's own, at the same place, has a record.
    for options in ["store=\(place.folder)/data/store", "user=nobody,store=\(store)"] {
      let mounted = try place.run("mount", place.mountpoint, "--manifest", place.manifest, "-o", options)
      #expect(mounted.status == 0, "\(mounted)")
      if options.hasPrefix("store") { #expect(try place.run("unmount", place.mountpoint).status == 0) }
    }
    let (helper, server) = (try #require(place.helper), try #require(place.server))
    for command in [["status", place.mountpoint], ["status"], ["status", place.mountpoint + "/a.mp4"]] {
      let shown = try place.wait(place.start([place.mediafs] + command))
      // All mounts are those of other tests too, which may be between two servers.
      #expect(shown.status == 0 || command == ["status"], "\(command): \(shown)")
      #expect(shown.text.contains("served by process \(server)"), "\(command): \(shown)")
    }
    let ready = try place.run("ready", place.mountpoint + "/a.mp4")
    #expect(!ready.text.contains("is not at or below a mount"), "\(ready)")
    #expect(try place.run("clear", place.mountpoint + "/a.mp4").status == 0)
    for command in [["status"], ["clear", "--all"]] {
      let own = try place.wait(place.start([place.mediafs] + command + ["--store", store]))
      #expect(own.status == 1 && own.text.contains("is another user's"), "\(own)")
    }
    let verified = try place.run("verify", place.mountpoint)
    #expect(verified.status == 1 && verified.text.contains("belongs to the user 65534"), "\(verified)")
    // Root's records lie in /var/lib too, where other tests put theirs: what they store must stay.
    let emptied = "mount -t tmpfs none /var/lib && exec \"$0\" clear --all"
    let unnamed = try place.wait(
      place.start(["unshare", "--mount", "--propagation", "private", "sh", "-c", emptied, place.mediafs]))
    #expect(unnamed.status == 1 && unnamed.text.contains("there is no mount"), "\(unnamed)")

    // Nobody's link to a socket of root's: its server would obey root.
    let own = place.folder + "/own"
    try #require(mkdir(own, 0o755) == 0)
    let mounted = try place.run(
      "mount", own, "--manifest", place.manifest, "-o", "store=\(place.folder)/data/own-store")
    #expect(mounted.status == 0, "\(mounted)")
    try #require(rename("\(store)/control", "\(store)/kept") == 0)
    try #require(symlink("\(place.folder)/data/own-store/control", "\(store)/control") == 0)
    let led = try place.run("clear", "--all", place.mountpoint)
    #expect(led.status == 1 && led.text.contains("is not the socket of a server"), "\(led)")
    #expect(try place.run("unmount", own).status == 0)
    try #require(unlink("\(store)/control") == 0 && rename("\(store)/kept", "\(store)/control") == 0)

    // In the gap between two servers.
    kill(helper, SIGSTOP)
    kill(server, SIGKILL)
    try #require(eventually { !Processes.isAlive(server) })
    let alone = try place.run("status", place.mountpoint)
    #expect(alone.status == 1 && alone.text.contains("no server of the user 65534 answers"), "\(alone)")
    kill(helper, SIGCONT)
    try #require(eventually { (try? place.run("status", place.mountpoint).status) == 0 })
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// Where a user may mount with `allow_other`, root waits for a filesystem of theirs as they do. This one answers
  /// nothing.
  @Test func rootEntersNoMountOverTheSocket() throws {
    let place = try MountPlace()
    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "-o", "user=nobody,store=\(place.storeOfNobody)")
    try #require(mounted.status == 0, "\(mounted)")
    let script = """
      import ctypes, os, signal, sys
      libc = ctypes.CDLL(None, use_errno=True)
      options = 'fd=%d,rootmode=100000,user_id=65534,group_id=65534,allow_other' % os.open('/dev/fuse', os.O_RDWR)
      if libc.mount(b'silent', sys.argv[1].encode(), b'fuse', 6, options.encode()) != 0:
          sys.exit(os.strerror(ctypes.get_errno()))
      print('mounted', flush=True)
      signal.pause()
      """
    let control = place.storeOfNobody + "/control"
    do {
      let silent = try BackgroundProcess(["/usr/bin/python3", "-S", "-c", script, control])
      defer {
        silent.terminate(grace: 0)
        _ = try? SystemCalls.run(["umount", "-l", control])
      }
      try #require(silent.waitForOutput("mounted"), "\(silent.standardErrorSoFar)")
      let refused = try place.run("status", place.mountpoint)
      #expect(refused.status == 1 && refused.text.contains("is not the socket of a server"), "\(refused)")
    }
    let shown = try place.run("status", place.mountpoint)
    #expect(shown.status == 0, "\(shown)")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// Processes of the user's that call themselves the mount helper, with words of their own: root hears none of them,
  /// and waits for none.
  @Test func rootHearsTheHelperAlone() throws {
    let place = try MountPlace()
    let nobody = try #require(TestUser(named: "nobody"))
    let (own, setuid) = (place.folder + "/own", place.folder + "/setuid")
    for (folder, mode) in [(own, 0o755), (setuid, 0o4755)] as [(String, mode_t)] {
      try #require(mkdir(folder, 0o755) == 0)
      try Command.succeed(["cp", "/bin/sh", folder + "/mount-helper"])
      try #require(chmod(folder + "/mount-helper", mode) == 0)
    }
    let line = #"exec { $ARGV[1] } "mount-helper", "-pc", "sleep 300; :", "--mountpoint", $ARGV[0], "--state", "lies""#
    func impostor(_ shell: String, _ user: TestUser?) throws -> BackgroundProcess {
      let process = try BackgroundProcess(["perl", "-e", line, place.mountpoint, shell], user: user)
      try waitUntil(timeout: 60, "the impostor") {
        Processes.text(process.processID, "cmdline").hasPrefix("mount-helper")
      }
      return process
    }
    let plain = try impostor(own + "/mount-helper", nobody)
    // The user's arguments for a setuid program of root's, and for one that takes root's real user too, as sudo does.
    let others = [try impostor(setuid + "/mount-helper", nobody), try impostor("/bin/sh", nil)]
    defer { for process in [plain] + others { process.terminate(grace: 0) } }
    #expect(Processes.text(others[0].processID, "status").contains("Uid:\t65534\t0\t"))
    #expect(MountUsers.helper(of: place.mountpoint) == nil, "\(plain.processID), \(others.map(\.processID))")
    #expect(MountUsers.helper(of: place.mountpoint, owner: 65534) == plain.processID)

    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "-o", "user=nobody,store=\(place.storeOfNobody)")
    try #require(mounted.status == 0, "\(mounted)")
    let helper = try #require(MountUsers.helper(of: place.mountpoint, owner: 65534))
    #expect(!([plain] + others).map(\.processID).contains(helper))
    let server = try #require(place.server)
    let shown = try place.run("status", place.mountpoint)
    #expect(shown.status == 0 && shown.text.contains("served by process \(server)"), "\(shown)")
    let unmounted = try place.run("unmount", place.mountpoint)
    #expect(unmounted.status == 0 && !unmounted.text.contains("lies"), "\(unmounted)")
    #expect(!Processes.isAlive(server))
  }
}
