import TestSupport
import Testing

/// How services start: with a list whose server is away, at an upgrade of the package, by the guide's commands.
@Suite(.enabled(if: BootedSystem.isPossible, "\(BootedSystem.reason)"))
struct ServiceStartTests {
  /// At a boot without network, a service that has no copy of its list asks until it comes.
  @Test func theServerOfAListMayBeAway() throws {
    try ServicePlace.with(settings: "[Unit]\nStartLimitBurst=3") { place in
      let www = try place.folder.makeFolder("www")
      try place.folder.write(place.origin.url("/a.bin") + "\n", to: "www/urls.txt")
      place.origin.serve(folder: www, at: "/")
      try place.folder.write(
        readText(place.folder.file("etc/mediafs/x.conf"))
          .replacing(place.folder.file("urls.txt"), with: place.origin.url("/urls.txt")), to: "x.conf")
      try place.system.succeed("cp", place.folder.file("x.conf"), "/etc/mediafs/x.conf")
      try place.origin.setUp(false)
      try place.systemctl("start", "--no-block", place.unit)
      try waitUntil(timeout: 60, "the first try: \(place.log)") { place.log.contains("the service asks again") }
      try place.origin.setUp(true)
      try waitUntil(timeout: 60, "the service") { try place.show("ActiveState") == "active" }
      #expect(try place.system.succeed("ls", place.mountpoint) == "a.bin\n")
      #expect(try place.show("NRestarts") == "0")
    }
  }

  /// A restart with wrong options would end the mount.
  @Test func anUpgradeRestartsWhatHasTheRightOptions() throws {
    try ServicePlace.with { place in
      // The system has a /tmp of its own, and the project may be below this machine's.
      let script = try place.folder.write(readText("\(repository)/debian/mediafs.postinst"), to: "postinst")
      _ = try place.folder.makeFolder("bin")
      // The mounts of other tests are not to be upgraded.
      try place.folder.write(
        "#!/bin/sh\n[ \"$1\" = upgrade ] || exec \(place.mediafs) \"$@\"\n", to: "bin/mediafs", mode: 0o755)
      func upgrade() throws -> String {
        try place.system.succeed(
          "env", "PATH=\(place.folder.file("bin")):/usr/sbin:/usr/bin:/sbin:/bin", "sh", script, "configure", "0.1")
      }
      try place.systemctl("start", place.unit)
      let (mounts, helper) = (try place.mounts(), try place.show("MainPID"))
      try place.configure("timeout = never\n")
      #expect(try upgrade().contains("\(place.unit).service keeps its mount helper"))
      #expect(try place.show("MainPID") == helper && place.mounts() == mounts)
      try place.configure("")
      #expect(try !upgrade().contains("keeps its mount helper"))
      try place.waitForHelper(after: helper)
      #expect(try place.mounts() == mounts && place.system.succeed("ls", place.mountpoint) == "a.bin\n")
    }
  }

  /// The commands of the guide that only a systemd runs. No logind is there for `loginctl`, and nothing to purge.
  @Test(arguments: [ServiceOwner.user, .root]) func theGuideStartsAMountAtBoot(_ owner: ServiceOwner) throws {
    #expect(
      try shown("## Start at boot") == [
        "mediafs unmount ~/media", "systemctl --user enable --now mediafs@media", "loginctl enable-linger",
        "systemctl enable --now mediafs@films",
      ])
    #expect(
      try shown("## Remove it all") == [
        "systemctl --user disable --now mediafs@media", "loginctl disable-linger",
        "systemctl disable --now mediafs@films", "sudo apt purge mediafs",
      ])
    try ServicePlace.with(owner) { place in
      if owner == .user {
        // The user's own, so that the links of the services that start are made there.
        try Command.succeed(["chown", "-R", SharedTraveller.user().name, place.folder.file(".config")])
      }
      try place.systemctl("enable", "--now", place.unit)
      #expect(try place.show("ActiveState") == "active" && place.show("UnitFileState") == "enabled")
      #expect(try place.system.run(place.asOwner + ["ls", place.mountpoint]).output == "a.bin\n")
      try place.systemctl("disable", "--now", place.unit)
      #expect(try place.mounts().isEmpty)
    }
  }

  /// The commands of a section of the guide that the walk leaves out.
  private func shown(_ title: String) throws -> [String] {
    let guide = readText("\(repository)/docs/GUIDE.md").split(separator: "\n")
    let begin = try #require(guide.firstIndex { $0 == title })
    let lines = guide[begin...].dropFirst().prefix { !$0.hasPrefix("## ") }
    var isWalked = false
    return lines.compactMap { line in
      if line.hasPrefix("```") { isWalked.toggle() }
      return !isWalked && line.hasPrefix("    ") ? String(line.dropFirst(4)) : nil
    }
  }

  private var repository: String { #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" } }
}
