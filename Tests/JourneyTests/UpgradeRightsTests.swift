import Base
import Glibc
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// Upgrades of mounts whose servers run as an ordinary user, in the background. Needs root, as CI has it.
@Suite(.serialized)
struct UpgradeRightsTests {
  private func uids(of process: Int32) -> [Substring] {
    let line = Processes.text(process, "status").split(separator: "\n").first { $0.hasPrefix("Uid:") } ?? ""
    return line.split(separator: "\t").dropFirst().map { $0 }
  }

  /// Installs the program anew: users may run it, and not read it.
  private func install(_ place: MountPlace, mode: mode_t = 0o711) throws {
    try Command.succeed(["cp", builtProduct("mediafs"), place.mediafs + ".new"])
    try #require(chmod(place.mediafs + ".new", mode) == 0 && rename(place.mediafs + ".new", place.mediafs) == 0)
  }

  /// A mount that root has made for nobody, of a program that users may run.
  private func mountForNobody() throws -> MountPlace {
    let place = try MountPlace()
    try install(place)
    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "-o", "user=nobody,store=\(place.storeOfNobody)")
    try #require(mounted.status == 0, "\(mounted)")
    return place
  }

  /// What the server of nobody's mount must be: nobody, closed to other processes of nobody's, by its own name.
  private func expectClosed(_ server: Int32) throws {
    #expect(uids(of: server) == ["65534", "65534", "65534", "65534"])
    #expect(Processes.text(server, "comm") == "mediafs\n")
    let nobody = try #require(TestUser(named: "nobody"))
    let look = try Command.run(["ls", "/proc/\(server)/fd/"], user: nobody)
    #expect(look.status != 0, "\(look.output)")
  }

  @Test func aUsersOwnMountIsUpgraded() throws {
    try withFuseForEveryone {
      let place = try MountPlace()
      try #require(mkdir(place.mountpoint, 0o755) == 0 && chown(place.mountpoint, 65534, 65534) == 0)
      try install(place)
      let mounted = try place.run("mount", place.mountpoint, "--manifest", place.manifest, user: true)
      try #require(mounted.status == 0, "\(mounted)")
      let old = try #require(place.server)
      try expectClosed(old)
      // The kernel hides a program that its user may not read: this one is hidden by itself alone.
      try install(place, mode: 0o755)
      // The command is root's for a moment when it starts (setpriv): `env` makes it nobody's from the beginning.
      let upgraded = try place.wait(place.start(["env", place.mediafs, "upgrade"], user: true))
      let new = try #require(place.server)
      #expect(upgraded.status == 0 && upgraded.text.contains("served by process \(new)"), "\(upgraded)")
      #expect(new != old)
      try expectClosed(new)
      let status = try place.run("status", place.mountpoint, user: true)
      #expect(status.text.contains("served by process \(new) (mediafs \(mediafsVersion))"), "\(status)")
      #expect(try place.run("unmount", place.mountpoint, user: true).status == 0)
      #expect(place.isGone(server: new))
    }
  }

  /// root's helper starts the new program as NAME and with nothing more. A program that NAME may not run is none.
  @Test func aServerForAUserStaysTheUsers() throws {
    let place = try mountForNobody()
    for mode: mode_t in [0o711, 0o700] {
      let old = try #require(place.server)
      try install(place, mode: mode)
      let asked = try Command.run(
        ["/usr/bin/python3", "-c", Self.ask, place.storeOfNobody + "/control", place.mediafs, "\(old)"])
      #expect(asked.errors == "")
      #expect(asked.output.hasPrefix(mode == 0o711 ? "upgraded" : "cannot run \(place.mediafs): Perm"), "\(asked)")
      let new = try #require(place.server)
      #expect(new != old)
      try expectClosed(new)
    }
    #expect(try place.run("unmount", place.mountpoint).status == 0)
    #expect(!place.isMounted)
  }

  /// Root's `--all` means the mounts of others too.
  @Test func rootUpgradesTheMountsOfAll() throws {
    let place = try mountForNobody()
    let old = try #require(place.server)
    try install(place)
    // Mounts of other tests, which run another program, are refused: so the status says nothing here.
    let upgraded = try place.run("upgrade", "--all")
    let new = try #require(place.server)
    #expect(upgraded.text.contains("\(place.mountpoint): served by process \(new) "), "\(upgraded)")
    #expect(new != old)
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// Another server's socket is where root looks for that of a user: that server is not upgraded.
  @Test func rootAsksOnlyAServerOfTheMountsUser() throws {
    let (place, other) = (try MountPlace(), try MountPlace())
    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "-o", "user=nobody,store=\(place.storeOfNobody)")
    try #require(mounted.status == 0, "\(mounted)")
    let running = try other.startForeground("--store", other.folder + "/store")
    let server = try #require(other.server)
    let control = place.storeOfNobody + "/control"
    try #require(unlink(control) == 0 && link(other.folder + "/store/control", control) == 0)
    let asked = try other.run("upgrade", place.mountpoint)
    #expect(asked.status == 1 && asked.text.contains("is not one of the user 65534: not asked"), "\(asked)")
    #expect(other.server == server && !other.text(running).contains("ended for an upgrade"))
    #expect(try other.run("unmount", other.mountpoint).status == 0)
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// root asks, as `mediafs upgrade` does: that server's user has no home, so no list of mounts names it.
  static let ask = """
    import json, os, socket, sys, time
    path, program, old = sys.argv[1:]
    def ask(request):
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(path)
        peer.sendall((json.dumps(dict(version=1, **request)) + '\\n').encode())
        return json.loads(peer.makefile().readline())
    file = os.stat(program)
    done = ask(dict(request='upgrade', program=dict(device=file.st_dev, inode=file.st_ino)))
    assert done['reply'] == 'done', done
    while True:
        time.sleep(0.02)
        try: answer = ask(dict(request='hello'))
        except (OSError, ValueError): continue
        if answer['server']['pid'] != int(old) and answer['upgrade']['serves']: break
    print(answer['upgrade'].get('failure', 'upgraded'))
    """
}
