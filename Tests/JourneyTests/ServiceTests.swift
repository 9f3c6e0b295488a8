import Base
import Glibc
import TestSupport
import Testing

/// The project's units, under a real systemd (docs/SERVICE.md).
@Suite("Services", .serialized, .enabled(if: BootedSystem.isPossible, "\(BootedSystem.reason)")) struct ServiceTests {
  @Test(arguments: ServiceOwner.allCases)
  func readersNoticeNoRestartNoKillAndNoWatchdog(_ owner: ServiceOwner) throws {
    try ServicePlace.with(owner, settings: "WatchdogSec=2") { place in
      try place.systemctl("start", place.unit)
      let mounts = try place.mounts()
      try #require(mounts.count == 1)
      let reader = try place.startReader()
      defer { reader.stop() }
      for event in ["restart", "kill", "watchdog", "both", "restart"] {
        try reader.read(12)
        let old = try place.show("MainPID")
        switch event {
        case "restart": try place.systemctl("restart", place.unit)
        case "kill": try place.signal("KILL")
        case "both": try place.systemctl("kill", "--kill-who=all", "--signal=KILL", place.unit)
        default: try place.signal("STOP")
        }
        try place.waitForHelper(after: old)
        #expect(try place.mounts() == mounts, "\(event): it is another mount")
      }
      try reader.read(12)
      #expect(try place.show("NFileDescriptorStore") == "3")
      reader.stop()
      try place.systemctl("stop", place.unit)
      #expect(try place.mounts().isEmpty)
      #expect(try place.show("Result") == "success")
      #expect(place.log.contains("goes on with the mount at \(place.mountpoint)"))
    }
  }

  @Test func aStopUnmountsAndAnUnmountStops() throws {
    try ServicePlace.with { place in
      try place.systemctl("start", place.unit)
      try waitUntil(timeout: 60, interval: 0.05, "a status") {
        try place.show("StatusText") == "1 file, 0 complete, 0 B stored"
      }
      // Also if it is in use.
      let reader = try place.startReader()
      defer { reader.stop() }
      try reader.read(1)
      try place.systemctl("stop", place.unit)
      #expect(try place.mounts().isEmpty && place.show("NFileDescriptorStore") == "0")
      reader.stop()
      try place.systemctl("start", place.unit)
      #expect(try place.mounts().count == 1)
      try place.system.succeed(place.mediafs, "unmount", place.mountpoint)
      try waitUntil(timeout: 60, interval: 0.05, "the service's end") { try place.show("ActiveState") == "inactive" }
      #expect(try place.show("Result") == "success" && place.mounts().isEmpty)
    }
  }

  @Test func aReloadReadsTheListAndIsTold() throws {
    try ServicePlace.with { place in
      try place.systemctl("start", place.unit)
      place.origin.add("/b.bin", size: 10)
      try place.folder.write(place.origin.url("/a.bin") + "\n" + place.origin.url("/b.bin") + "\n", to: "urls.txt")
      try place.systemctl("reload", place.unit)
      try waitUntil(timeout: 60, interval: 0.05, "the new list") {
        try place.system.succeed("ls", place.mountpoint) == "a.bin\nb.bin\n" && place.show("ActiveState") == "active"
      }
      try waitUntil(timeout: 60, interval: 0.05, "the status") {
        try place.show("StatusText").hasPrefix("2 files, 0 complete")
      }
      try place.systemctl("stop", place.unit)
    }
  }

  @Test func aReloadEndsWhereTheDiskOfTheListDoesNotAnswer() throws {
    try ServicePlace.with { place in
      let disk = try SilentDisk(in: place.folder, place.origin.url("/a.bin") + "\n") { command in
        try BackgroundProcess(place.system.inside + command)
      }
      defer { disk.end() }
      try place.system.succeed("ln", "-sf", disk.file, place.folder.file("urls.txt"))
      try place.systemctl("start", place.unit)
      disk.stop()
      try place.systemctl("reload", place.unit)
      try waitUntil(timeout: 60, interval: 0.05, "the status") {
        try place.show("StatusText").contains("its disk does not answer")
      }
      try waitUntil(timeout: 60, interval: 0.05, "the end of the reload") {
        try place.show("ActiveState") == "active"
      }
      // The kernel ends no process whose request the disk has taken.
      disk.goOn()
      try place.systemctl("stop", place.unit)
      #expect(try place.mounts().isEmpty)
    }
  }

  @Test func anUpgradeAndARestartTakeTheInstalledProgram() throws {
    try ServicePlace.with { place in
      try place.systemctl("start", place.unit)
      let mounts = try place.mounts()
      let reader = try place.startReader()
      defer { reader.stop() }
      try reader.read(3)
      let helper = try place.show("MainPID")
      for name in ["mediafs", "mount-helper"] {
        try place.system.succeed("cp", place.folder.file(name), place.folder.file("new"))
        try place.system.succeed("mv", place.folder.file("new"), place.folder.file(name))
      }
      try place.system.succeed(place.mediafs, "upgrade", place.mountpoint)
      #expect(try place.show("MainPID") == helper)
      try reader.read(3)
      try place.systemctl("try-restart", place.unit)
      #expect(
        try place.system.run(["readlink", "/proc/\(place.show("MainPID"))/exe"]).output.hasSuffix("mount-helper\n"))
      try reader.read(3)
      #expect(try place.mounts() == mounts)
    }
  }

  @Test func wrongOptionsEndTheServiceAndItsMount() throws {
    try ServicePlace.with { place in
      try place.systemctl("start", place.unit)
      for wrong in ["timeout = never\n", "library = /proc/no-such\n"] {
        try place.configure(wrong)
        #expect(throws: MountFailure.self) { try place.systemctl("restart", place.unit) }
        try waitUntil(timeout: 60, interval: 0.05, "the end of the mount") { try place.mounts().isEmpty }
        try place.systemctl("stop", place.unit)
        try place.configure("")
        try place.systemctl("start", place.unit)
        #expect(try place.mounts().count == 1)
        #expect(try place.system.succeed("ls", place.mountpoint) == "a.bin\n")
      }
    }
  }

  /// The manager gives up, and closes what it kept: a dead mount stays, until the service starts again.
  @Test func aDeadMountIsTakenAway() throws {
    try ServicePlace.with(settings: "Restart=no") { place in
      try place.systemctl("start", place.unit)
      try place.signal("KILL")
      try waitUntil(timeout: 60, interval: 0.05, "the service's end") { try place.show("ActiveState") == "failed" }
      #expect(try place.mounts().count == 1 && !place.system.run(["stat", place.mountpoint]).succeeded)
      try place.systemctl("start", place.unit)
      #expect(try place.mounts().count == 1 && place.system.succeed("ls", place.mountpoint) == "a.bin\n")
    }
  }

  @Test func anotherMountpointIsAnotherMount() throws {
    try ServicePlace.with { place in
      try place.systemctl("start", place.unit)
      let other = place.folder.file("other")
      try place.folder.write(
        readText(place.folder.file("etc/mediafs/x.conf")).replacing(place.mountpoint, with: other), to: "y.conf")
      try place.system.succeed("cp", place.folder.file("y.conf"), "/etc/mediafs/x.conf")
      try place.systemctl("restart", place.unit)
      #expect(try place.mounts().isEmpty && place.system.succeed("ls", other) == "a.bin\n")
      #expect(place.log.contains("the mountpoint is another one now"))
    }
  }
}
