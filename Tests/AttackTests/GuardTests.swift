import Base
import Glibc
import TestSupport
import Testing

/// The process of root's that ends the mount of an ordinary user's server when the helper is killed.
@Suite("The guard of a mount", .enabled(if: TestUser.canSwitch)) struct GuardTests {
  /// The helper is killed when its server has the mount and is not ready yet, or never will be.
  @Test func aMountThatIsNotReadyEndsWithItsHelper() throws {
    try withTemporaryFolder(open: true) { folder in
      let mountpoint = try folder.makeFolder("mnt")
      let helper = try FakeServer.start(
        "prepare()\nsay('it is mounted')\ntime.sleep(30)", in: folder, mountpoint: mountpoint, user: "nobody")
      try #require(helper.waitForOutput("it is mounted", timeout: 60), "\(helper.standardErrorSoFar)")
      #expect(Mounts.isMounted(mountpoint))
      helper.signal(SIGKILL)
      #expect(eventually { !Mounts.isMounted(mountpoint) }, "it stays, dead")
    }
  }

  /// The helper is killed beside a server that hangs, and so does not notice: its readers get an error.
  @Test func readersOfAServerThatHangsWaitForNobody() throws {
    try withTemporaryFolder(open: true) { folder in
      let mountpoint = try folder.makeFolder("mnt")
      let script = """
        prepare()
        answer_init()
        ready()
        while struct.unpack_from('I', os.read(device, 1 << 20), 4)[0] != 1: pass  # a lookup
        say('it hangs:', os.getpid(), '.')
        time.sleep(100)
        """
      let helper = try FakeServer.start(script, in: folder, mountpoint: mountpoint, user: "nobody")
      try waitUntil(timeout: 60, "the mount") { Mounts.isMounted(mountpoint) }
      let reader = try BackgroundProcess(["stat", mountpoint + "/missing"])
      try #require(helper.waitForOutput(" .", timeout: 60), "\(helper.standardErrorSoFar)")
      let said = helper.standardErrorSoFar.firstMatch(of: #/it hangs: (\d+) /#)
      let server = try #require(said.flatMap { pid_t($0.1) })
      defer { kill(server, SIGKILL) }
      helper.signal(SIGKILL)
      let end = try #require(reader.wait(timeout: 20), "the reader waits for ever")
      #expect(end.status == 1, "\(end)")
      #expect(eventually { !Mounts.isMounted(mountpoint) })
    }
  }
}
