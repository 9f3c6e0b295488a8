import Base
import Glibc
import TestSupport
import Testing

/// Links, where the store, the library or the mountpoint has a file or a folder.
@Suite("Links", .serialized)
struct LinkAttackTests {
  private static func bytes(_ path: String) throws -> [UInt8] {
    try Command.run(["cat", path], timeout: 60).standardOutput
  }

  private static func rename(_ from: String, _ to: String) throws { try #require(Glibc.rename(from, to) == 0) }

  /// A folder of the library becomes a link that leads out of it, while the mount runs: what lies there is never shown,
  /// and nothing is placed there.
  @Test func aLibraryFolderThatBecomesALinkIsNotFollowed() throws {
    try withVictim { victim in
      for name in ["a", "b"] { victim.origin.set("/\(name).bin", OriginResource(bytes: Array("right \(name)\n".utf8))) }
      _ = try victim.mount("\(victim.origin.url("/a.bin"))\n dir=music\n\(victim.origin.url("/b.bin"))\n dir=music\n")
      let fetched = try victim.run(["fetch", "--wait", victim.mountpoint + "/music/a.bin"])
      #expect(fetched.succeeded, "\(fetched.errors)")
      let library = victim.store + "/library"
      #expect(access(library + "/music/a.bin", F_OK) == 0)
      let outside = try victim.folder.makeFolder("outside")
      try victim.folder.write("wrong a\n", to: "outside/a.bin")
      try Self.rename(library + "/music", library + "/kept")
      try #require(symlink(outside, library + "/music") == 0)
      let shown = try Self.bytes(victim.mountpoint + "/music/a.bin")
      #expect(shown.isEmpty || shown == Array("right a\n".utf8), "\(String(decoding: shown, as: UTF8.self))")
      _ = try victim.run(["fetch", "--wait", victim.mountpoint + "/music/b.bin"])
      #expect(try Self.bytes(victim.mountpoint + "/music/b.bin") == Array("right b\n".utf8))
      #expect(try names(in: outside) == ["a.bin"])
      _ = try victim.run(["clear", victim.mountpoint + "/music"])
      #expect(try contents(of: outside + "/a.bin") == Array("wrong a\n".utf8))
    }
  }

  /// A link under the very name that a copy is to have: not followed, not replaced; the copy takes the next free name.
  @Test func aLinkInTheWayOfACopyIsNotFollowed() throws {
    try withVictim { victim in
      victim.origin.set("/a.bin", OriginResource(bytes: Array("right a\n".utf8)))
      _ = try victim.mount(victim.origin.url("/a.bin") + "\n")
      let precious = try victim.folder.write("precious", to: "precious")
      let library = victim.store + "/library"
      for target in [precious, victim.folder.file("nowhere")] {
        try #require(symlink(target, library + "/a.bin") == 0)
        let fetched = try victim.run(["fetch", "--wait", victim.mountpoint + "/a.bin"])
        #expect(fetched.succeeded, "\(fetched.errors)")
        #expect(try Self.bytes(victim.mountpoint + "/a.bin") == Array("right a\n".utf8))
        #expect(try contents(of: library + "/a (2).bin") == Array("right a\n".utf8))
        #expect(try contents(of: precious) == Array("precious".utf8))
        #expect(access(victim.folder.file("nowhere"), F_OK) != 0)
        try #require(unlink(library + "/a.bin") == 0 && unlink(library + "/a (2).bin") == 0)
      }
    }
  }

  /// A partial file, the log or the lock becomes a link to a file of the user's: that file is neither shown nor
  /// changed.
  @Test func whatIsReplacedByALinkInTheStoreIsNotFollowed() throws {
    try withVictim { victim in
      victim.origin.add("/a.bin", size: 2_000_000)
      _ = try victim.mount(victim.origin.url("/a.bin") + "\n", ["--continue", "never"])
      let head = try Command.run(["head", "-c", "100000", victim.mountpoint + "/a.bin"], timeout: 60).standardOutput
      #expect(head.count == 100_000)
      try victim.unmount()
      let partials = victim.store + "/partial"
      let name = try #require(try names(in: partials).first)
      let precious = [UInt8](repeating: 0x50, count: 2_000_000)
      try victim.folder.write(precious, to: "precious")
      try #require(unlink("\(partials)/\(name)") == 0)
      try #require(symlink(victim.folder.file("precious"), "\(partials)/\(name)") == 0)
      _ = try? victim.mount(victim.origin.url("/a.bin") + "\n", ["--continue", "never"])
      if Mounts.isMounted(victim.mountpoint) {
        let again = try Command.run(["head", "-c", "100000", victim.mountpoint + "/a.bin"], timeout: 60).standardOutput
        #expect(again.isEmpty || again == head)
        try victim.unmount()
      }
      #expect(try contents(of: victim.folder.file("precious")) == precious)

      try #require(unlink(victim.store + "/lock") == 0)
      try #require(symlink(victim.folder.file("precious"), victim.store + "/lock") == 0)
      let refused = try victim.run([
        "mount", victim.mountpoint, "--manifest", victim.folder.file("urls.txt"), "--store", victim.store,
      ])
      #expect(refused.status == 1 && refused.errors.contains("no plain file"), "\(refused.errors)")
      #expect(try contents(of: victim.folder.file("precious")) == precious)
    }
  }

  /// A store and a mountpoint that are links are what they lead to, everywhere.
  @Test func aStoreAndAMountpointMayBeLinks() throws {
    try withVictim { victim in
      victim.origin.add("/a.bin", size: 1000)
      let real = try victim.folder.makeFolder("real")
      try #require(symlink(real, victim.store) == 0)
      let link = victim.folder.file("link-to-mnt")
      try #require(symlink(victim.mountpoint, link) == 0)
      let manifest = try victim.folder.write(victim.origin.url("/a.bin") + "\n", to: "urls.txt")
      let result = try victim.run(["mount", link, "--manifest", manifest, "--store", victim.store])
      #expect(result.succeeded, "\(result.errors)")
      #expect(Mounts.isMounted(victim.mountpoint))
      #expect(
        try victim.run(["status", link]).output.contains("a.bin")
          || victim.run(["status", "--all", link]).output.contains("a.bin"))
      #expect(try Self.bytes(link + "/a.bin").count == 1000)
      var status = stat()
      #expect(stat(real, &status) == 0 && status.st_mode & 0o777 == 0o700)
      #expect(try victim.run(["unmount", link]).succeeded)
      #expect(!Mounts.isMounted(victim.mountpoint))
    }
  }

  /// A link that leads into the mount does not bring the store there.
  @Test func aStoreInsideTheMountIsRefusedThroughLinksToo() throws {
    try withVictim { victim in
      let manifest = try victim.folder.write("http://127.0.0.1:1/a\n", to: "urls.txt")
      let link = victim.folder.file("link")
      try #require(symlink(victim.mountpoint, link) == 0)
      for option in ["--store", "--library", "--log-file"] {
        let result = try victim.run(["mount", victim.mountpoint, "--manifest", manifest, option, link + "/x"])
        #expect(result.status == 1 && result.errors.contains("inside the mount"), "\(option): \(result.errors)")
      }
    }
  }

  /// Names of the manifest that lead elsewhere: what the mount shows lies in the mount, what is kept lies in the
  /// library.
  @Test func noNameLeadsOutOfMountOrLibrary() throws {
    try withVictim { victim in
      victim.origin.set("/a.bin", OriginResource(bytes: Array("bytes".utf8)))
      let url = victim.origin.url("/a.bin")
      let manifest = ["../up", "../../../../up", "/\(victim.folder.path)/absolute", "a/../../up", "..", "x/./..//y"]
        .enumerated()
        .map { "\(url)?\($0.offset)\n dir=\($0.element)\n out=../../name\n" }.joined()
      _ = try victim.mount(manifest)
      let before = try everything(below: victim.folder.path).map(\.path).filter { !$0.hasPrefix(victim.store) }.sorted()
      _ = try victim.run(["fetch", "--wait", victim.mountpoint])
      let after = try everything(below: victim.folder.path).map(\.path).filter { !$0.hasPrefix(victim.store) }.sorted()
      #expect(before == after)
      let found = try Command.succeed(["find", victim.mountpoint, "-type", "f"]).split(separator: "\n")
      #expect(found.count == 6, "\(found)")
      let kept = try everything(below: victim.store + "/library").filter {
        $0.status.st_mode & S_IFMT == S_IFREG && !$0.path.hasSuffix("/.mediafs-library")
      }
      #expect(kept.count == 6, "\(kept.map(\.path))")
    }
  }
}
