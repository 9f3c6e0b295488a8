import CSystem
import Glibc
import TestSupport
import Testing

@testable import mediafs

/// The list of a mount that root made for another user is replaced: the kernel keeps the server from the new file, and
/// the mount helper has it opened (mount-helper/PROTOCOL.md, "The lists"). Needs root, and Linux 5.19.
@Suite(.serialized, .enabled(if: TestUser.canSwitch && csystem_landlock_version() >= 2))
struct ReplacedListTests {
  private func mount(_ place: MountPlace) throws {
    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "--manifest", "more=\(place.manifest).more", "-o",
      "user=nobody,allow_other,store=\(place.storeOfNobody)")
    try #require(mounted.status == 0, "\(mounted)")
  }

  private func lines(_ names: [String]) -> String { names.map { "http://127.0.0.1:1/\($0)\n" }.joined() }

  /// As `sed -i`, editors and `mv` do.
  private func replace(
    _ place: MountPlace, _ path: String, _ names: String..., mode: mode_t = 0o644, group: gid_t = 0
  ) throws {
    try place.write(lines(names), to: path + ".new")
    try #require(chown(path + ".new", 0, group) == 0 && chmod(path + ".new", mode) == 0)
    try #require(rename(path + ".new", path) == 0)
  }

  private func names(_ place: MountPlace) throws -> [String] {
    let found = try Command.succeed(["sh", "-c", "cd \"$1\" && find . -type f | sort", "sh", place.mountpoint])
    return found.split(separator: "\n").map { String($0.dropFirst(2)) }
  }

  private func expect(
    _ place: MountPlace, _ wanted: String..., sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let came = eventually(timeout: 60) { (try? names(place)) == wanted }
    #expect(came, "\((try? names(place)) ?? []): \(log(place))", sourceLocation: sourceLocation)
  }

  private func log(_ place: MountPlace) -> String {
    String(decoding: (try? Files.read("\(place.storeOfNobody)/mediafs.log", limit: 1 << 20)) ?? [], as: UTF8.self)
  }

  private func reload(_ place: MountPlace) throws -> (status: Int32, text: String) {
    try place.run("reload", place.mountpoint)
  }

  /// At once.
  private func reload(
    _ place: MountPlace, shows wanted: String..., sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let reloaded = try reload(place)
    #expect(reloaded.status == 0, "\(reloaded)", sourceLocation: sourceLocation)
    #expect(try names(place) == wanted, "\(log(place))", sourceLocation: sourceLocation)
  }

  private func mountTwoLists() throws -> (place: MountPlace, list: String, more: String) {
    let place = try MountPlace()
    let (list, more) = (place.manifest, place.manifest + ".more")
    try place.write(lines(["a.bin", "b.bin"]), to: list)
    try place.write(lines(["m.bin"]), to: more)
    try mount(place)
    return (place, list, more)
  }

  /// While it lives, it has the helper's end of the link, and the server would wait for messages.
  @Test func aStoppedOpenerEndsWithTheHelper() throws {
    let (place, list, _) = try mountTwoLists()
    let (helper, server) = (try #require(place.helper), try #require(place.server))
    // It goes on for a second after its answer. Who is late has another one.
    var stopped: Int32 = 0
    try waitUntil(timeout: 60, "a process that opens lists") {
      try replace(place, list, "a.bin", "c.bin")
      #expect(try reload(place).status == 0)
      let found = Processes.children(of: helper).first { Processes.text($0, "comm") == "mediafs-lists\n" }
      guard let found, kill(found, SIGSTOP) == 0 else { return false }
      stopped = found
      return true
    }
    try #require(kill(helper, SIGKILL) == 0)
    #expect(eventually { !Processes.isAlive(stopped) && !Processes.isAlive(server) })
  }

  @Test func aReplacedListIsFollowed() throws {
    let (place, list, more) = try mountTwoLists()
    let server = try #require(place.server)
    #expect(try names(place) == ["a.bin", "b.bin", "more/m.bin"])
    // By itself, once it has been quiet for ten seconds.
    try replace(place, list, "a.bin", "c.bin")
    try expect(place, "a.bin", "c.bin", "more/m.bin")
    // Both, also one that the user may read by the group alone, and again.
    try replace(place, list, "a.bin", "d.bin", mode: 0o640, group: 65534)
    try replace(place, more, "n.bin")
    try reload(place, shows: "a.bin", "d.bin", "more/n.bin")
    try replace(place, more, "o.bin", "p.bin")
    try reload(place, shows: "a.bin", "d.bin", "more/o.bin", "more/p.bin")
    // A link, one that leads elsewhere, and the file that it leads to.
    for name in ["1", "2"] {
      try place.write(lines(["\(name).bin", "a.bin"]), to: list + "." + name)
      try #require(symlink(list + "." + name, list + ".link") == 0 && rename(list + ".link", list) == 0)
      try reload(place, shows: "\(name).bin", "a.bin", "more/o.bin", "more/p.bin")
    }
    try replace(place, list + ".2", "3.bin", "a.bin")
    try reload(place, shows: "3.bin", "a.bin", "more/o.bin", "more/p.bin")
    // By a signal, what the mount would not take by itself.
    try replace(place, list, "4.bin", "5.bin", "6.bin")
    kill(try #require(place.helper), SIGHUP)
    try expect(place, "4.bin", "5.bin", "6.bin", "more/o.bin", "more/p.bin")
    // The new file is followed as the first one was, by the same server.
    try place.write(lines(["4.bin", "5.bin", "7.bin"]), to: list)
    try reload(place, shows: "4.bin", "5.bin", "7.bin", "more/o.bin", "more/p.bin")
    #expect(place.server == server)
    #expect(try place.run("unmount", place.mountpoint).status == 0)
    #expect(place.isGone(server: server))
  }

  @Test func whatTheUserMayNotReadChangesNothing() throws {
    let (place, list, _) = try mountTwoLists()
    let server = try #require(place.server)
    for (made, words) in [
      ("mkfifo \"$1\"", "\(list) is a FIFO"), ("mkdir \"$1\"", "\(list) is a folder"),
      ("ln -s nothing \"$1\"", "\(list): No such file"), ("ln -s /dev/zero \"$1\"", "is a device"),
      ("echo secret >\"$1\"; chmod 600 \"$1\"", "\(list): Permission denied"),
      ("truncate -s 5G \"$1\"", "at most 4 GiB"),
    ] {
      try Command.succeed(["sh", "-c", "rm -rf \"$1\"; \(made)", "sh", list])
      let failed = try reload(place)
      #expect(failed.status == 1, "\(words): \(failed)")
      #expect(
        eventually { (try? place.run("status", place.mountpoint).text.contains(words)) == true },
        "\(words): \(failed): \(log(place))")
      try expect(place, "a.bin", "b.bin", "more/m.bin")
    }
    try Command.succeed(["rm", "-rf", list])
    try replace(place, list, "a.bin", "c.bin")
    try expect(place, "a.bin", "c.bin", "more/m.bin")
    #expect(try place.server == server && !place.run("status", place.mountpoint).text.contains("at most 4 GiB"))
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// A server that was taken over may put a link into its own folders: it gets nothing that it could not have had.
  @Test func noLinkOfTheServersIsFollowed() throws {
    let place = try MountPlace()
    let own = place.storeOfNobody + "/lists"
    let secret = place.folder + "/secret"
    try place.write(lines(["secret.bin"]), to: secret)
    try #require(chown(secret, 65534, 65534) == 0 && chmod(secret, 0o600) == 0)
    try place.write(lines(["m.bin"]), to: place.manifest + ".more")
    try Command.succeed(["install", "-d", "-o", "nobody", "-m", "700", place.storeOfNobody, own])
    try place.write(lines(["a.bin"]), to: own + "/list")
    try #require(chown(own + "/list", 65534, 65534) == 0 && unlink(place.manifest) == 0)
    try #require(symlink(own + "/list", place.manifest) == 0)
    try mount(place)
    try expect(place, "a.bin", "more/m.bin")
    try Command.succeed(["ln", "-sf", secret, own + "/list"])
    let failed = try reload(place)
    #expect(failed.status == 1 && failed.text.contains("\(own)/list is a symbolic link"), "\(failed)")
    // Nor does another list then come with it, by a folder that became a link.
    try Command.succeed(["sh", "-c", "rm \"$1/list\"; rmdir \"$1\"; ln -s \"$2\" \"$1\"", "sh", own, place.folder])
    let again = try reload(place)
    #expect(again.status == 1 && !again.text.contains("names"), "\(again)")
    try expect(place, "a.bin", "more/m.bin")
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }
}
