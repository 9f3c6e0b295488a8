import Base
import Glibc
import Reading
import Testing

@testable import Mount

extension Tests {
  @Suite("Killed readers and the end of a mount")
  struct Ending {
    private func parkedCount(_ mount: RealMount) -> Int { mount.fileSystem.state.withLock { $0.parked.count } }

    @Test("A reader of a parked read is killed at once", arguments: ["cat", "dd iflag=direct if="])
    func killedReader(command: String) throws {
      let mount = try RealMount(Tree.unsound)
      defer { mount.end() }
      let isDirect = command.hasPrefix("dd")
      let program = try Program.start("exec \(command)\(isDirect ? "" : " ")\(mount.path)/stuck.bin")
      #expect(eventually { parkedCount(mount) > 0 })
      kill(program.pid, SIGKILL)
      #expect(program.wait().status == 128 + SIGKILL)
      if isDirect {
        let interrupts = mount.fileSystem.state.withLock { $0.interrupts }
        #expect(interrupts.contains { $0.isKilled })
      }
    }

    @Test("A stat that waits is killed at once")
    func killedStat() throws {
      let mount = try RealMount(Tree.unsound)
      defer { mount.end() }
      let program = try Program.start("exec stat \(mount.path)/stuck.stat")
      #expect(eventually { parkedCount(mount) == 1 })
      kill(program.pid, SIGKILL)
      #expect(program.wait().status == 128 + SIGKILL)
      #expect(mount.fileSystem.state.withLock { $0.interrupts.map(\.isKilled) } == [true])
      #expect(mount.session.operations.tickets.table.withLock { $0.count } == 0)
    }

    @Test("A stat that was interrupted, and is killed later")
    func killedLater() throws {
      let mount = try RealMount(Tree.unsound)
      defer { mount.end() }
      let script = "import os, signal; signal.signal(signal.SIGUSR1, lambda *_: 0); os.stat('\(mount.path)/stuck.stat')"
      let program = try Program.start("exec python3 -c \"\(script)\"")
      #expect(eventually { parkedCount(mount) == 1 })
      kill(program.pid, SIGUSR1)
      #expect(eventually { mount.fileSystem.state.withLock { $0.interrupts.map(\.isKilled) } == [false] })
      #expect(parkedCount(mount) == 1)
      kill(program.pid, SIGKILL)
      #expect(program.wait().status == 128 + SIGKILL)
      #expect(mount.session.operations.tickets.table.withLock { $0.watched }.isEmpty)
    }

    @Test("A file in use keeps the mount; unmounting by force ends the read that waits, and serving")
    func unmountedWhileParked() throws {
      let mount = try RealMount(Tree.unsound)
      defer { mount.end() }
      let program = try Program.start("exec cat \(mount.path)/stuck.bin")
      #expect(eventually { parkedCount(mount) > 0 })
      if geteuid() == 0 { #expect(umount2(mount.path, 0) == -1 && errno == EBUSY) }
      mount.umount(force: true)
      if geteuid() != 0 { kill(program.pid, SIGKILL) }  // fusermount3 cannot force
      #expect(program.wait().status != 0)
      #expect(eventually { mount.ending.withLock { $0 != nil } })
      #expect(mount.ending.withLock { if case .success = $0 { true } else { false } })
      // The answer comes too late, and does no harm.
      mount.fileSystem.state.withLock { $0.held = [] }
      #expect(eventually { mount.session.operations.tickets.table.withLock { $0.count } == 0 })
    }

    @Test("An ordinary unmount ends serving")
    func unmounted() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      #expect(mount.sh("ls | wc -l").output == "8\n")
      mount.umount(force: false)
      #expect(eventually { mount.ending.withLock { $0 != nil } })
      #expect(mount.ending.withLock { if case .success = $0 { true } else { false } })
    }

    @Test("Stop ends serving without unmounting; what is parked fails as the device is closed")
    func stopped() throws {
      let mount = try RealMount(Tree.unsound) { $0.threads = 4 }
      defer { mount.end() }
      let program = try Program.start("exec cat \(mount.path)/stuck.bin")
      #expect(eventually { parkedCount(mount) > 0 })
      mount.forgetDevice()
      mount.session.stop()
      #expect(eventually { mount.ending.withLock { $0 != nil } })
      #expect(program.wait().status == 1)
      #expect(Program.run("ls \(mount.path)").output.contains("not connected"))
      mount.session.invalidate(parent: rootInode, name: "late", isChanged: false)
      mount.fileSystem.state.withLock { $0.held = [] }
      #expect(eventually { mount.session.operations.tickets.table.withLock { $0.count } == 0 })
    }

    @Test("Stop before anything is served")
    func stoppedFirst() throws {
      let device = try FileDescriptor.open("/dev/null", O_RDWR)
      let session = try FuseSession(
        device: device, memory: SessionMemory(), serving: SyntheticFileSystem([]), options: MountOptions(mountedAt: 0))
      session.stop()
      try session.run { Issue.record("not ready") }
    }

    @Test("A descriptor without a mount is an error that says so")
    func notMounted() throws {
      let device = try FileDescriptor.open("/dev/fuse", O_RDWR)
      let session = try FuseSession(
        device: device, memory: SessionMemory(), serving: SyntheticFileSystem([]), options: MountOptions(mountedAt: 0))
      let error = #expect(throws: MountError.self) { try session.run { Issue.record("not ready") } }
      #expect(error?.description.contains("/dev/fuse") == true)
    }

    @Test("The INIT request is kept as the kernel sent it")
    func initRequest() throws {
      let mount = try RealMount(Tree.sound)
      defer { mount.end() }
      #expect(mount.sh("ls >/dev/null").status == 0)
      mount.memory.initRequest.withUnsafeBytes { raw in
        #expect(operation(of: raw) == initOperation)
        #expect(Int(raw.loadUnaligned(as: UInt32.self)) == raw.count)
        #expect(raw.loadUnaligned(fromByteOffset: 40, as: UInt32.self) == 7)  // the protocol's major version
      }
    }
  }
}
