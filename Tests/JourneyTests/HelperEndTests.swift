import Base
import Glibc
import Testing

@testable import Server
@testable import mediafs

/// How a mount ends: PROTOCOL.md, "The end".
@Suite(.serialized)
struct HelperEndTests {
  @Test(arguments: [SIGTERM, SIGINT, SIGHUP])
  func aSignalEndsItCleanly(_ signal: Int32) throws {
    let place = try MountPlace()
    let running = try place.startForeground()
    let server = try #require(place.server)
    kill(running.process, signal)
    let ended = try place.wait(running)
    #expect(ended.status == 0, "\(ended)")
    #expect(!place.isMounted && !Processes.isAlive(server))
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

  @Test func aKilledServerTakesTheMountWithIt() throws {
    let place = try MountPlace()
    let running = try place.startForeground()
    kill(try #require(place.server), SIGKILL)
    let ended = try place.wait(running)
    #expect(ended.status == 1 && ended.text.contains("killed by signal 9"), "\(ended)")
    #expect(!place.isMounted)
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
    kill(running.process, SIGTERM)
    usleep(50_000)  // two of one kind that come at once count as one
    kill(running.process, SIGTERM)
    let ended = try place.wait(running)
    #expect(ended.status == 1 && ended.text.contains("killed by signal 9"), "\(ended)")
    #expect(place.isGone(server: server))
  }

  @Test func anothersMountAtTheSamePlaceStays() throws {
    let place = try MountPlace()
    let running = try place.startForeground()
    let server = try #require(place.server)
    let device = try #require(place.entry?.device)
    kill(server, SIGSTOP)  // it is slow to notice
    try SystemCalls.unmount(place.mountpoint, lazily: false)  // umount(8) would ask the server first
    let second = try place.startForeground("--store", place.folder + "/second")
    #expect(place.entry?.device == device, "the kernel gives the number anew: the case that this is about")
    kill(server, SIGCONT)
    #expect(try place.wait(running).status == 0)
    #expect(place.isMounted && Processes.isAlive(second.process))
    kill(second.process, SIGTERM)
    #expect(try place.wait(second).status == 0)
    #expect(!place.isMounted)
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
    kill(server, SIGKILL)
    #expect(place.isGone(server: server))
    let text = String(decoding: try Files.read(log, limit: 1 << 20), as: UTF8.self)
    #expect(text.contains("mounted at \(place.mountpoint)") && text.contains("killed by signal 9"), "\(text)")
  }
}
