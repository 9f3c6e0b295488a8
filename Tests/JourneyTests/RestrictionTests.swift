import CSystem
import Glibc
import TestSupport
import Testing

@testable import mediafs

/// The server of a mount that root makes for another user has only the files that it needs (Landlock): it does all that
/// it has to, and code in it gets at nothing else. Needs root, and Linux 5.19.
@Suite(.serialized, .enabled(if: TestUser.canSwitch && csystem_landlock_version() >= 2))
struct RestrictionTests {
  private static let size: Int64 = 3 << 20

  private func mount(_ place: MountPlace, _ options: String = "") throws {
    let mounted = try place.run(
      "mount", place.mountpoint, "--manifest", place.manifest, "-o",
      "user=nobody,allow_other,continue=always,store=\(place.storeOfNobody)\(options)")
    try #require(mounted.status == 0, "\(mounted)")
  }

  private func compare(_ place: MountPlace, _ origin: Origin, _ name: String) throws {
    let words = "curl --silent '\(origin.url("/" + name))' | cmp - '\(place.mountpoint)/\(name)'"
    let compared = try Command.run(["sh", "-c", words], timeout: 60)
    #expect(compared.status == 0, "\(compared)")
  }

  /// Every file that the options name is in a folder that nobody else enters; the list is replaced, as editors do.
  @Test func aRestrictedServerDoesAllThatItHasTo() throws {
    try withOrigin { origin in
      let place = try MountPlace()
      let own = place.folder + "/data-nobody"
      for name in ["a.bin", "b.bin", "c.bin"] { origin.add("/" + name, size: Self.size) }
      for (name, text) in [("netrc", ""), ("log", ""), ("ca", "")] {
        try place.write(text, to: "\(own)/\(name)")
        try #require(chown("\(own)/\(name)", 65534, 65534) == 0)
      }
      try #require(mkdir("\(own)/numbers", 0o755) == 0 && chown("\(own)/numbers", 65534, 65534) == 0)
      let numbers = {
        String(decoding: (try? Files.read("\(own)/numbers/m.prom", limit: 1 << 20)) ?? [], as: UTF8.self)
      }
      try place.write(["a.bin", "b.bin"].map { origin.url("/" + $0) + "\n" }.joined(), to: place.manifest)
      let options =
        ",library=\(own)/shelf,netrc-file=\(own)/netrc,cacert=\(own)/ca,log-file=\(own)/log,metrics-file=\(own)/numbers/m.prom"
      try mount(place, options)
      let log = { String(decoding: (try? Files.read("\(own)/log", limit: 1 << 20)) ?? [], as: UTF8.self) }
      // It says so right after the mount is ready.
      #expect(eventually { log().contains("only the files that it needs") }, "\(log())")
      #expect(eventually { numbers().contains("mediafs_server_replaced 0") }, "\(log())")
      try compare(place, origin, "a.bin")
      #expect(eventually { access("\(own)/shelf/a.bin", F_OK) == 0 }, "\(log())")

      // The next server is restricted anew, of the same program and of a new one.
      try place.write(origin.url("/c.bin") + "\n", to: place.manifest + ".new")
      try #require(rename(place.manifest + ".new", place.manifest) == 0)
      let first = try #require(place.server)
      kill(first, SIGKILL)
      try compare(place, origin, "a.bin")
      try compare(place, origin, "b.bin")
      #expect(eventually { access("\(own)/shelf/b.bin", F_OK) == 0 }, "\(log())")
      let second = try #require(place.server)
      #expect(second != first)
      #expect(eventually { numbers().contains("mediafs_server_replaced 1") }, "\(log())")
      try Command.succeed(["cp", builtProduct("mediafs"), place.mediafs + ".new"])
      try #require(chmod(place.mediafs + ".new", 0o711) == 0 && rename(place.mediafs + ".new", place.mediafs) == 0)
      let upgraded = try Command.run(
        [
          "/usr/bin/python3", "-c", UpgradeRightsTests.ask, place.storeOfNobody + "/control", place.mediafs,
          "\(second)",
        ])
      #expect(upgraded.output.hasPrefix("upgraded"), "\(upgraded)")
      #expect(log().split(separator: "\n").filter { $0.contains("only the files that it needs") }.count == 3)
      try compare(place, origin, "b.bin")
      #expect(try place.run("clear", place.mountpoint + "/b.bin").status == 0)
      #expect(try place.run("fetch", place.mountpoint + "/b.bin").status == 0)
      #expect(try place.run("unmount", place.mountpoint).status == 0)
      #expect(!log().contains("denied"), "\(log())")

      try mount(place, options)
      try compare(place, origin, "c.bin")
      #expect(try place.run("unmount", place.mountpoint).status == 0)
    }
  }

  @Test func whereTheKernelCannotTheServerServesAndTheLogSaysSo() throws {
    let place = try MountPlace()
    let mounted = try place.wait(
      place.start(
        OldKernel.withoutLandlock() + [
          place.mediafs, "mount", place.mountpoint, "--manifest", place.manifest, "-o",
          "user=nobody,store=\(place.storeOfNobody)",
        ]))
    #expect(mounted.status == 0, "\(mounted)")
    func log() -> String {
      let bytes = try? Files.read("\(place.storeOfNobody)/mediafs.log", limit: 1 << 20)
      return String(decoding: bytes ?? [], as: UTF8.self)
    }
    // It says so right after the mount is ready.
    #expect(
      eventually { log().split(separator: "the kernel restricts nothing (Landlock: Function not").count == 2 },
      "\(log())")
    #expect(try place.run("status", place.mountpoint).status == 0)
    #expect(try place.run("unmount", place.mountpoint).status == 0)
  }

  /// A process of the user's could take the descriptors that the server needs for it.
  @Test func aServerThatFailsToRestrictItselfDoesNotServe() throws {
    let place = try MountPlace()
    let mounted = try place.wait(
      place.start(
        OldKernel.withoutLandlock(24) + [
          place.mediafs, "mount", place.mountpoint, "--manifest", place.manifest, "-o",
          "user=nobody,store=\(place.storeOfNobody)",
        ]))
    #expect(mounted.status == 1 && mounted.text.contains("(Landlock): Too many open files"), "\(mounted)")
    #expect(!place.isMounted)
  }

  #if arch(x86_64)
    /// Root stops the threads of a server that serves, and has them make system calls, as hostile code in it would. A
    /// process of the same user's that is not restricted can do each of them.
    @Test func codeInTheServerReachesNothingElse() throws {
      try withFuseForEveryone(tryCalls)
    }

    private func tryCalls() throws {
      let place = try MountPlace()
      try mount(place)
      let server = try #require(place.server)
      let victim = place.folder + "/home"
      try #require(mkdir(victim, 0o700) == 0 && chown(victim, 65534, 65534) == 0)
      try place.write(injector, to: place.folder + "/injector.py")
      let result = try Command.run(
        ["/usr/bin/python3", place.folder + "/injector.py", "\(server)", victim, place.storeOfNobody], timeout: 60)
      #expect(result.status == 0, "\(result.errors)")
      var seen: [String: String] = [:]
      for line in result.output.split(separator: "\n") {
        let words = line.split(separator: ":", maxSplits: 1)
        seen[String(words[0])] = words.count > 1 ? String(words[1].dropFirst()) : ""
      }
      let allowed: Set = ["read the system", "write the store", "own limits", "own thread", "times of an open file"]
      let calls = result.output.matches(of: #/call (\w+)/#).map { "call \($0.1)" }
      #expect(seen.count > 75 && calls.count > 50, "\(result.output)")
      for (what, came) in seen {
        let refused =
          [
            "signal": "EPERM", "connect": "EPERM", "hard link": "EXDEV", "fork": "EPERM", "vfork": "EPERM",
            "start a process": "EPERM", "call newer": "ENOSYS", "start a process by clone3": "ENOSYS",
            "limits of a process": "EPERM",
          ][what] ?? (calls.contains(what) ? "EPERM" : "EACCES")
        #expect(came == (allowed.contains(what) ? "ok, ok" : "ok, \(refused)"), "\(what)")
      }
      #expect(place.server == server)
      #expect(try place.run("status", place.mountpoint).status == 0)
      #expect(try place.run("unmount", place.mountpoint).status == 0)
    }
  #endif
}
