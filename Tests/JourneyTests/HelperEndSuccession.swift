import Base
import Glibc
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// Servers that end without the mount: PROTOCOL.md, "The next server".
extension HelperEndTests {
  @Test(arguments: [SIGKILL, SIGUSR1])
  func aKilledServerIsFollowedByTheNext(_ signal: Int32) throws {
    let place = try MountPlace()
    let running = try place.startForeground()
    let first = try #require(place.server)
    kill(first, signal)
    #expect(eventually { place.text(running).contains("the next server of \(place.mountpoint) serves") })
    #expect(place.text(running).contains("the server was killed by signal \(signal)"))
    #expect(place.isMounted && place.server != first)
    let status = try place.run("status", place.mountpoint)
    #expect(status.text.contains("served by process \(try #require(place.server))"), "\(status)")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
    #expect(try place.wait(running).status == 0)
  }

  /// The folder of the log goes, and then the server: the next one logs to the store.
  @Test func aLogWhoseFolderIsGoneEndsNoMount() throws {
    let place = try MountPlace()
    let (logs, store) = (place.folder + "/logs", place.folder + "/store")
    try #require(mkdir(logs, 0o755) == 0)
    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "--store", store, "--log-file", logs + "/log")
    try #require(mounted.status == 0, "\(mounted)")
    let first = try #require(place.server)
    try Command.succeed(["rm", "-r", logs])
    kill(first, SIGKILL)
    let log = store + "/mediafs.log"
    #expect(
      eventually { readText(log).contains("the next server of \(place.mountpoint) serves") },
      "\(MountUsers.state(of: place.mountpoint) ?? "")")
    #expect(readText(log).contains("cannot write the log file \(logs)/log: "))
    #expect(try SystemCalls.run(["ls", place.mountpoint]).status == 0)
    let status = try place.run("status", place.mountpoint)
    #expect(status.status == 0 && status.text.contains(log), "\(status)")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// Servers that cannot start, here because the catalog is gone: programs get errors and never see the folder below
  /// the mount.
  @Test(arguments: ["unmount", "SIGTERM"]) func serversThatAnswerNothing(_ end: String) throws {
    let place = try MountPlace()
    let running = try place.startForeground("--store", place.folder + "/store")
    let names = try SystemCalls.run(["ls", place.mountpoint])
    try #require(names.status == 0)
    let catalog = place.folder + "/store/catalog.sqlite"
    try #require(rename(catalog, catalog + ".away") == 0)
    kill(try #require(place.server), SIGKILL)
    #expect(eventually(timeout: 60) { place.text(running).contains("5 in a row answered nothing") })
    #expect(place.text(running).contains("has no catalog any more"), "\(place.text(running))")
    let listed = try SystemCalls.run(["env", "LC_ALL=C", "ls", place.mountpoint + "/"])
    #expect(listed.status != 0 && listed.messages.contains("Input/output error"), "\(listed)")
    #expect(place.isMounted)
    let why = "has no catalog any more"
    let away = try place.run("status", place.mountpoint)
    #expect(away.status == 1 && away.text.contains(why) && away.text.contains("(EIO)"), "\(away)")
    let upgrade = try place.run("upgrade", place.mountpoint)
    #expect(upgrade.status == 1 && upgrade.text.contains(why), "\(upgrade)")
    try #require(rename(catalog + ".away", catalog) == 0)
    let status = try place.run("status", place.mountpoint)
    #expect(status.status == 0 && status.text.contains("no server runs") && status.text.contains(why), "\(status)")
    if end == "unmount" {
      let unmount = try place.run("unmount", place.mountpoint)
      #expect(unmount.status == 0 && unmount.text.contains(why), "\(unmount)")
    } else {
      kill(running.process, SIGTERM)
    }
    #expect(try place.wait(running).status == 0)
    #expect(!place.isMounted)
  }

  /// Root reads nothing of another user's store, and so hears of it from the helper alone.
  @Test(.enabled(if: TestUser.canSwitch)) func rootIsToldWhyNoServerServes() throws {
    let place = try MountPlace()
    let running = try place.startForeground("-o", "user=nobody,store=\(place.storeOfNobody)")
    let catalog = place.storeOfNobody + "/catalog.sqlite"
    try #require(rename(catalog, catalog + ".away") == 0)
    kill(try #require(place.server), SIGKILL)
    #expect(
      eventually {
        let status = try? place.run("status", place.mountpoint)
        return status?.status == 1 && status?.text.contains("has no catalog any more") == true
      })
    try #require(rename(catalog + ".away", catalog) == 0)
    #expect(eventually { (try? place.run("status", place.mountpoint).status) == 0 })
    #expect(try place.run("unmount", place.mountpoint).text == "")
    #expect(try place.wait(running).status == 0)
  }

  /// Another store at the path of the mount's own: its inodes lead to other files. The own one comes back in time.
  @Test func theNextServerGoesOnOnlyWithTheSameCatalog() throws {
    let place = try MountPlace()
    let (store, other) = (place.folder + "/store", place.folder + "/other")
    func unmount(_ running: Running) throws {
      #expect(try place.run("unmount", place.mountpoint).status == 0)
      #expect(try place.wait(running).status == 0)
    }
    try unmount(place.startForeground("--store", other))
    let running = try place.startForeground("--store", store)
    let first = try #require(place.server)
    try #require(rename(store, store + ".away") == 0 && rename(other, store) == 0)
    kill(first, SIGKILL)
    #expect(eventually { place.text(running).contains("is not the one that was mounted") })
    try #require(rename(store, other) == 0 && rename(store + ".away", store) == 0)
    #expect(eventually { place.text(running).contains("the next server of \(place.mountpoint) serves") })
    try unmount(running)
  }
}
