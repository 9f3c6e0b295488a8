import Base
import Glibc
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// What `mediafs unmount` says when it cannot end a mount.
@Suite(.serialized) struct UnmountTests {
  @Test(arguments: ["a folder", "a file", "a map"]) func aBusyMountNamesItsUser(_ how: String) throws {
    try withJourney(.any) { journey in
      try withOrigin { origin in
        origin.add("/film.bin", size: 100_000)
        try journey.mount(origin.url("/film.bin") + "\n")
        let script = """
          import ctypes, os, sys, time
          how, path = sys.argv[1:]
          if how == 'a folder': os.chdir(os.path.dirname(path))
          else: file = os.open(path, os.O_RDONLY)
          if how == 'a map':
              # Python's own would keep a duplicate of the descriptor.
              map = ctypes.CDLL(None).mmap
              map.restype, map.argtypes = ctypes.c_long, [ctypes.c_long] * 6
              assert map(0, 4096, 1, 2, file, 0) > 0
              os.close(file)
          print('holding')
          time.sleep(1000)
          """
        let holder = try journey.start(["/usr/bin/python3", "-u", "-c", script, how, journey.at("film.bin")])
        defer { holder.terminate() }
        try #require(holder.waitForOutput("holding", timeout: 60), "\(holder.standardErrorSoFar)")
        let refused = try journey.mediafs("unmount", journey.mountpoint)
        #expect(refused.status == 1 && refused.errors.contains("is busy"), "\(refused)")
        #expect(refused.errors.contains("Used by: python3 (\(holder.processID))"), "\(refused.errors)")
        holder.terminate()
        try journey.unmount()
      }
    }
  }

  /// The kernel unmounts here, and the mount goes on there: so does its server.
  @Test(.enabled(if: TestUser.canSwitch), arguments: Traveller.all)
  func aMountThatAnotherNamespaceHasIsSaidToGoOn(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try journey.mount("http://localhost/film.bin\n")
      // As root also for an ordinary user's mount: as a service may have it.
      // Not the mounts of the tests that run beside this one.
      let script = """

        while read -r _ point type _; do
          [ "$type" != fuse.mediafs ] || [ "$point" = "$1" ] || umount -l "$point"
        done </proc/self/mounts
        echo holding
        exec sleep 1000
        """

      let holder = try BackgroundProcess([
        "unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", journey.mountpoint,
      ])
      defer { holder.terminate() }
      try #require(holder.waitForOutput("holding", timeout: 60))
      let space = try Command.succeed(["readlink", "/proc/\(holder.processID)/ns/mnt"]).filter { $0 != "\n" }
      let start = Instant.now
      let refused = try journey.mediafs("unmount", journey.mountpoint)
      #expect(Instant.now.seconds(since: start) < 60)
      #expect(refused.status == 1 && refused.errors.contains("is unmounted here"), "\(refused)")
      #expect(!Mounts.isMounted(journey.mountpoint))
      switch traveller {
      case .root:
        #expect(refused.errors.contains("too: \(space), with sleep (\(holder.processID))."), "\(refused.errors)")
      case .user: #expect(refused.errors.contains("could not be looked at: root can"), "\(refused.errors)")
      }
      holder.terminate()
      try waitUntil(timeout: 60, "the helper to end") { MountUsers.anyHelper(of: journey.mountpoint) == nil }
    }
  }

  /// The kernel gives a device number anew: who uses the filesystem that has it now is no user of the mount's.
  @Test(.enabled(if: TestUser.canSwitch)) func anotherFilesystemOfTheSameNumberIsNotMeant() throws {
    try withTemporaryFolder { folder in
      try Command.succeed(["mount", "-t", "tmpfs", "none", folder.path])
      defer { _ = umount2(folder.path, Int32(MNT_DETACH)) }
      let entry = try #require(try MountTable.entry(at: folder.path))
      let holder = try BackgroundProcess([
        "sh", "-c", "cd \"$1\" && echo holding && exec sleep 1000", "sh", folder.path,
      ])
      defer { holder.terminate() }
      try #require(holder.waitForOutput("holding", timeout: 60))
      #expect(MountHolders(MountHolders.Mounts(device: entry.device)).isEmpty)
    }
  }
}
