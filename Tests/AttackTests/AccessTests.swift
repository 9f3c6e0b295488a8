import Base
import Glibc
import TestSupport
import Testing

/// What another user of the machine can reach of a mount: nothing, unless it was made for all.
@Suite("Other users", .serialized)
struct AccessTests {
  @Test func theStoreIsOnesOwn() throws {
    try withVictim { victim in
      victim.origin.add("/a.bin", size: 300_000)
      // The most open umask there is: modes must not depend on it.
      let old = umask(0)
      defer { umask(old) }
      _ = try victim.mount(victim.origin.url("/a.bin") + "\n" + victim.origin.url("/missing.bin") + "\n")
      try Command.succeed(["cat", victim.mountpoint + "/a.bin"], timeout: 60)
      _ = try victim.run(["fetch", "--wait", victim.mountpoint + "/a.bin"])
      _ = try Command.run(["cat", victim.mountpoint + "/missing.bin"])
      for (path, status) in try everything(below: victim.store) where status.st_mode & S_IFMT != S_IFLNK {
        // Completed copies are ordinary files; what keeps others out is the store's folder.
        if path.hasPrefix(victim.store + "/library") { continue }
        #expect(status.st_mode & 0o077 == 0, "\(path) has mode \(String(status.st_mode, radix: 8))")
      }
      var status = stat()
      #expect(stat(victim.log, &status) == 0 && status.st_mode & 0o077 == 0)
      #expect(status.st_uid == geteuid())
      for (path, status) in try everything(below: victim.folder.file("data")) where path.contains("/mounts") {
        #expect(status.st_mode & 0o077 == 0, "\(path)")
      }
    }
  }

  @Test func anotherUserReachesNothing() throws {
    // An ordinary user cannot become another one; the modes are checked above.
    guard TestUser.canSwitch, let nobody = TestUser(named: "nobody") else { return }
    try withVictim { victim in
      victim.origin.add("/a.bin", size: 300_000)
      _ = try victim.mount(victim.origin.url("/a.bin") + "\n")
      try Command.succeed(["cat", victim.mountpoint + "/a.bin"], timeout: 60)
      func refused(_ command: [String], _ why: String = "Permission denied") throws {
        let result = try Command.run(command, environment: ["LC_ALL": "C"], timeout: 60, user: nobody)
        #expect(!result.succeeded, "\(command)")
        #expect((result.output + result.errors).contains(why), "\(command): \(result.output) \(result.errors)")
      }
      try refused(["ls", victim.mountpoint])
      try refused(["stat", victim.mountpoint + "/a.bin"])
      try refused(["head", "-c", "1", victim.mountpoint + "/a.bin"])
      try refused(["ls", victim.store])
      for file in ["catalog.sqlite", "lock", "control", "library", "partial"] {
        try refused(["stat", "\(victim.store)/\(file)"])
      }
      try refused(["cat", victim.log])
      let processes = try victim.processes()
      #expect(Set(processes.map(\.name)) == ["mount-helper", "server"])
      for process in processes {
        for file in ["environ", "mem", "maps"] { try refused(["head", "-c", "1", "/proc/\(process.id)/\(file)"]) }
        try refused(["ls", "/proc/\(process.id)/fd"])
        try refused(["sh", "-c", "cat /proc/\(process.id)/fd/*"])
      }

      // The store laid open by a mistake: the server itself still knows who asks.
      let say = """
        $SIG{PIPE} = "IGNORE"; use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die "socket: $!"; \
        connect($s, pack_sockaddr_un($ARGV[0])) or die "connect: $!"; \
        syswrite($s, qq({"version":1,"request":"status","all":true}\\n)); while (<$s>) { print }
        """
      try refused(["perl", "-e", say, victim.store + "/control"])
      try #require(chmod(victim.store, 0o755) == 0 && chmod(victim.store + "/control", 0o666) == 0)
      let answer = try Command.run(["perl", "-e", say, victim.store + "/control"], user: nobody)
      #expect(answer.output.contains("\"code\":\"refused\""), "\(answer.output) \(answer.errors)")
      #expect(!answer.output.contains("a.bin"))
      let own = try Command.run(["perl", "-e", say, victim.store + "/control"])
      #expect(own.output.contains("a.bin"), "\(own.output) \(own.errors)")
    }
  }

  @Test func allowOtherLetsOthersReadTheFilesAndNothingElse() throws {
    guard TestUser.canSwitch, let nobody = TestUser(named: "nobody") else { return }
    try withVictim { victim in
      victim.origin.add("/a.bin", size: 300_000)
      _ = try victim.mount(victim.origin.url("/a.bin") + "\n", ["-o", "allow_other"])
      let read = try Command.run(["cat", victim.mountpoint + "/a.bin"], timeout: 60, user: nobody)
      #expect(read.standardOutput.count == 300_000, "\(read.errors)")
      #expect(!(try Command.run(["ls", victim.store], user: nobody)).succeeded)
      #expect(!(try Command.run(["sh", "-c", "echo x > \(victim.mountpoint)/a.bin"], user: nobody)).succeeded)
    }
  }

  /// A folder that everyone may write to, and no sticky bit: anyone could put another store in the place of ours.
  @Test func aStoreThatOthersCanReplaceIsRefused() throws {
    try withVictim { victim in
      let open = try victim.folder.makeFolder("open/deep")
      try #require(chmod(victim.folder.file("open"), 0o777) == 0)
      let manifest = try victim.folder.write("http://127.0.0.1:1/a\n", to: "urls.txt")
      func mount(_ store: String) throws -> CommandResult {
        try victim.run(["mount", victim.mountpoint, "--manifest", manifest, "--store", store])
      }
      for store in [open + "/store", victim.folder.file("open")] {
        let result = try mount(store)
        #expect(result.status == 1, "\(store)")
        #expect(
          result.errors.contains("every user") || result.errors.contains("open to other users"), "\(result.errors)")
        #expect(!Mounts.isMounted(victim.mountpoint))
      }
      try #require(chmod(victim.folder.file("open"), 0o1777) == 0)
      #expect(try mount(open + "/store").succeeded)
    }
  }

  /// A process of another user that calls itself our mount helper: nobody waits for its end.
  @Test func anotherUsersProcessIsNotOurHelper() throws {
    guard TestUser.canSwitch, let nobody = TestUser(named: "nobody") else { return }
    try withVictim { victim in
      _ = try victim.mount("http://127.0.0.1:1/a\n")
      let line = #"exec { "/bin/sh" } "mount-helper", "-c", "sleep 300; :", "--mountpoint", $ARGV[0]"#
      let impostor = try BackgroundProcess(["perl", "-e", line, victim.mountpoint], user: nobody)
      defer { impostor.terminate(grace: 0) }
      try waitUntil(timeout: 60, "the impostor") {
        try contents(of: "/proc/\(impostor.processID)/cmdline").starts(with: "mount-helper".utf8)
      }
      let result = try victim.run(["unmount", victim.mountpoint])
      #expect(result.succeeded, "\(result.errors)")
    }
  }
}
