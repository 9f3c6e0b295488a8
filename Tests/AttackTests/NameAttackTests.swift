import Base
import Glibc
import Manifest
import Storing
import TestSupport
import Testing

/// Names that mean harm or look alike, on a real mount and in the library: each file is there once, under a name that
/// is safe, with its own bytes.
@Suite("Names", .serialized)
struct NameAttackTests {
  /// What the list says of a file: `out=`, or a name in the URL's own path.
  private static let wanted: [(out: String?, path: String)] =
    [
      // They differ in their bytes alone: by normalisation, by case, by an accent behind a slash.
      "caf\u{E9}.txt", "cafe\u{301}.txt", "Song.mp3", "song.mp3", "SONG.MP3", "\u{1E9B}\u{323}",
      "\u{1E9B}\u{323}\u{301}",
      "\u{212B}ngstrom", "\u{C5}ngstrom", "A\u{30A}ngstrom", "\u{301}accent first",
      // They lead elsewhere.
      "..", ".", "...", "../up.bin", "../../../../../../etc/up.bin", "/etc/absolute.bin", "a/../../b.bin", "~/home.bin",
      // They are no names.
      "con\u{1}trol.bin", "con\u{7F}trol.bin", "con\u{85}trol.bin", "\u{1B}[2Jclear.bin", "evil\u{202E}gpj.exe",
      "line\u{2028}end.bin", "-rf", " spaces around ", "back\\slash", "$(id)`id`;id|id", "*?[a-z]",
      // They are mediafs's own in the library.
      ".mediafs-library", ".mediafs-incoming", ".mediafs-incoming/in it.bin",
      // They are too long, and the same when they are cut.
      String(repeating: "x", count: 300) + ".mp4", String(repeating: "x", count: 301) + ".mp4",
      String(repeating: "\u{E9}", count: 200), String(repeating: "e\u{301}", count: 200),
      String(repeating: "y", count: 255),
    ].map { ($0, "/plain") } + [
      (nil, "/%2e%2e"), (nil, "/a%2Fb.bin"), (nil, "/a%0Ab.bin"), (nil, "/a%00b.bin"), (nil, "/a%FFb.bin"),
      (nil, "/caf%C3%A9.bin"), (nil, "/cafe%CC%81.bin"), (nil, "/%2E%2E%2F%2E%2E%2Fup.bin"),
    ]

  private static func content(_ number: Int) -> [UInt8] { Array("the bytes of number \(number)\n".utf8) }

  /// The regular files below `path`: the bytes of each one's relative path, and what is in it.
  private static func files(below path: String) throws -> [[UInt8]: [UInt8]] {
    var found: [[UInt8]: [UInt8]] = [:]
    for (file, status) in try everything(below: path) where status.st_mode & S_IFMT == S_IFREG {
      found[Array(file.utf8.dropFirst(path.utf8.count + 1))] = try contents(of: file)
    }
    return found
  }

  /// The names of two mountpoints differ in their normalisation alone: a command for one is not for the other.
  @Test func mountpointsThatLookAlikeAreTwo() throws {
    try withTemporaryFolder { folder in
      let home = ["XDG_DATA_HOME": folder.file("data"), "HOME": folder.path]
      let registry = try MountRegistry(environment: home, uid: geteuid())
      let names = ["caf\u{E9}", "cafe\u{301}"]
      for (number, name) in names.enumerated() {
        try folder.makeFolder(name)
        let store = folder.file("store\(number)")
        try registry.remember(
          MountRecord(mountpoint: folder.file(name), store: store, library: store + "/library", manifest: "-"))
      }
      for (number, name) in names.enumerated() {
        // There is no store, and the command names the one that it looked for.
        let status = try Command.run(
          [builtProduct("mediafs"), "status", folder.file(name)], environment: home.mapValues { Optional($0) })
        #expect(status.status == 1 && status.errors.contains("store\(number)/catalog.sqlite"), "\(status.errors)")
      }
    }
  }

  @Test func eachIsThereOnceUnderASafeName() throws {
    try withVictim { victim in
      var manifest = ""
      for (number, (out, path)) in Self.wanted.enumerated() {
        victim.origin.set("/number/\(number)", OriginResource(bytes: Self.content(number)))
        manifest += "\(victim.origin.url(path))?number=\(number)\n" + (out.map { "  out=\($0)\n" } ?? "")
      }
      // Whatever the path (a name is made of it), the number says which bytes are meant.
      victim.origin.decide { request in
        request.target.firstRange(of: "?number=").map {
          [.redirect(302, to: "/number/\(request.target[$0.upperBound...])")]
        }
      }
      _ = try victim.mount(manifest)
      let outside = { try everything(below: victim.folder.path).map(\.path).filter { !$0.hasPrefix(victim.store) } }
      let before = try outside().sorted()
      let mounted = try Self.files(below: victim.mountpoint)
      #expect(Set(mounted.values) == Set(Self.wanted.indices.map(Self.content)))
      #expect(mounted.count == Self.wanted.count)
      for path in mounted.keys {
        for name in path.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false) {
          #expect(SafeName.isSafe(String(decoding: name, as: UTF8.self)), "\(String(decoding: path, as: UTF8.self))")
        }
      }
      for name in ["caf\u{E9}.txt", "cafe\u{301}.txt", "Song.mp3", "song.mp3", "SONG.MP3"] {
        let number = try #require(Self.wanted.firstIndex { $0.out?.utf8.elementsEqual(name.utf8) == true })
        #expect(mounted[Array(name.utf8)] == Self.content(number), "\(name)")
      }

      // The library has the same names, byte for byte, and nothing lies anywhere else.
      let fetched = try victim.run(["fetch", "--wait", victim.mountpoint])
      #expect(fetched.succeeded, "\(fetched.errors)")
      var kept = try Self.files(below: victim.store + "/library")
      #expect(kept.removeValue(forKey: Array(".mediafs-library".utf8)) != nil, "the library's own mark")
      #expect(kept == mounted)
      #expect(try outside().sorted() == before)
      try victim.unmount()
      let verified = try victim.run(["verify", victim.mountpoint])
      #expect(verified.succeeded, "\(verified.output) \(verified.errors)")
      _ = try victim.mount(manifest)
      #expect(try Self.files(below: victim.mountpoint) == mounted)
    }
  }

  /// Sizes that no disk has, more of them than a sum has room for: told as they are, and no command or sum brings
  /// anything down.
  @Test func impossibleSizesBringNothingDown() throws {
    try withVictim { victim in
      let size: Int64 = 1 << 60
      let names = (0..<20).map { "huge \($0).bin" }
      var manifest = ""
      for (number, name) in names.enumerated() {
        victim.origin.add("/\(number)", size: size)
        manifest += victim.origin.url("/\(number)") + "\n  out=\(name)\n"
      }
      _ = try victim.mount(manifest, ["--continue", "never"])
      for name in names {
        let path = "\(victim.mountpoint)/\(name)"
        var status = stat()
        #expect(stat(path, &status) == 0 && Int64(status.st_size) == size, "\(name): \(status.st_size)")
        #expect(try Command.run(["head", "-c", "1000", path], timeout: 60).standardOutput.count == 1000)
      }
      for command in [["status"], ["status", "--json"], ["status", "--all"], ["fetch"], ["status"]] {
        let result = try victim.run(command + [victim.mountpoint])
        #expect(result.succeeded, "\(command): \(result.errors)")
      }
      // One that follows the fetch sums up as well, until it is ended.
      let waiting = try BackgroundProcess(
        [victim.mediafs, "fetch", "--wait", victim.mountpoint], environment: victim.environment)
      sleep(seconds: 1)
      waiting.terminate(grace: 5)
      #expect(try victim.run(["status", victim.mountpoint]).succeeded)
      #expect(try victim.processes().count == 2, "the server is gone")
      _ = try victim.run(["clear", victim.mountpoint])
      try victim.unmount()
      let offline = try victim.run(["status", "--json", victim.mountpoint])
      #expect(offline.succeeded, "\(offline.errors)")
    }
  }
}
