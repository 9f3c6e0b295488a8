import Glibc
import TestSupport
import Testing

@testable import mediafs

/// A server to which the system refuses threads: its user, its service or the machine has too many. Needs root, whom
/// the limit does not bind.
@Suite(.serialized, .enabled(if: TestUser.canSwitch))
struct ThreadLimitTests {
  @Test("A server that is refused a thread for a client or for its list goes on, and serves both later")
  func aRefusedThreadEndsNoServer() throws {
    let place = try MountPlace()
    try place.write("http://127.0.0.1:1/a.bin\n", to: place.manifest)
    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "-o",
      "user=nobody,allow_other,store=\(place.storeOfNobody)")
    try #require(mounted.status == 0, "\(mounted)")
    let server = try #require(place.server)
    func log() -> String {
      String(decoding: (try? Files.read("\(place.storeOfNobody)/mediafs.log", limit: 1 << 20)) ?? [], as: UTF8.self)
    }
    // As the user: root may lack the right to change another user's limits.
    let asNobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    func limit(to count: Int) throws {
      try Command.succeed(asNobody + ["prlimit", "--pid", "\(server)", "--nproc=\(count):"])
    }

    try limit(to: 0)
    let refused = try place.run("status", place.mountpoint)
    #expect(refused.status == 1 && refused.text.contains("cannot start a thread for a client"), "\(refused)")
    try place.write("http://127.0.0.1:1/a.bin\nhttp://127.0.0.1:1/b.bin\n", to: place.manifest)
    kill(server, SIGHUP)
    #expect(eventually { log().contains("cannot start a thread that reads the list") }, "\(log())")
    #expect(try Command.succeed(["ls", place.mountpoint]) == "a.bin\n")

    try limit(to: 4096)
    kill(server, SIGHUP)
    #expect(eventually { access(place.mountpoint + "/b.bin", F_OK) == 0 }, "\(log())")
    let shown = try place.run("status", place.mountpoint)
    #expect(shown.status == 0 && shown.text.contains("served by process \(server)"), "\(shown)")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
    #expect(place.isGone(server: server))
  }
}
