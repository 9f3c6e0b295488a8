import Glibc
import TestSupport
import Testing

@testable import mediafs

/// The archives of a release.
@Suite struct DistTests {
  private static let root = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }

  /// The same bytes in another folder, time zone, umask and minute, and with other settings of git; complete; and
  /// installed by their own script.
  @Test func archivesAreTheSameTwiceAndInstall() throws {
    let place = try TestSupport.TemporaryFolder()
    defer { do { try place.remove() } catch { Issue.record("\(error)") } }
    try place.makeFolder("built")
    for program in ["mediafs", "mount-helper"] {
      // A build for debugging is large.
      try Command.succeed(["strip", "-o", place.file("built/\(program)"), builtProduct(program)])
    }
    let make = "umask \"$1\"; exec \"$2\" \"$3\" \"$4\""
    // Folders in one that hands on its group do so too.
    try place.makeFolder("group")
    try Command.succeed(["chmod", "2755", place.file("group")])
    let other = [
      "TZ": "Asia/Tokyo", "TMPDIR": place.file("group"), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.autocrlf",
      "GIT_CONFIG_VALUE_0": "true",
    ]
    for (output, umask, environment) in [("one", "022", ["TZ": "UTC"]), ("two", "077", other)] {
      try Command.succeed(
        ["sh", "-c", make, "sh", umask, "\(Self.root)/Scripts/make-dist", place.file("built"), place.file(output)],
        environment: environment, timeout: 240)
    }
    let version = Program.version
    let architecture = try Command.succeed(["uname", "-m"]).filter { !$0.isWhitespace }
    let (source, program) = ("mediafs-\(version)", "mediafs-\(version)-linux-\(architecture)")
    for name in ["\(source).tar.gz", "\(program).tar.gz", "SHA256SUMS"] {
      try Command.succeed(["cmp", place.file("one/\(name)"), place.file("two/\(name)")])
    }
    try Command.succeed(["sha256sum", "--check", "--strict", "SHA256SUMS"], folder: place.file("one"))

    for name in [source, program] {
      try Command.succeed(["tar", "--extract", "--directory", place.path, "--file", place.file("one/\(name).tar.gz")])
    }
    let head = try Command.succeed(["git", "-C", Self.root, "rev-parse", "--short=12", "HEAD"])
    #expect(try Command.succeed([place.file("\(source)/Scripts/commit")]) == head)
    #expect(access(place.file("\(source)/Package.swift"), R_OK) == 0)
    #expect(access(place.file("\(source)/debian/rules"), X_OK) == 0)

    let there = place.file("root")
    func install(_ words: String...) throws {
      try Command.succeed([place.file("\(program)/install")] + words, environment: ["DESTDIR": there])
    }
    try install()
    let installed = "\(there)/usr/local"
    #expect(try Command.succeed(["\(installed)/bin/mediafs", "--version"]).hasPrefix("mediafs \(version)\n"))
    for file in [
      "libexec/mediafs/mount-helper", "sbin/mount.mediafs", "share/man/man1/mediafs.1", "share/doc/mediafs/README.md",
      "share/bash-completion/completions/mediafs", "share/zsh/site-functions/_mediafs",
      "share/fish/vendor_completions.d/mediafs.fish",
    ] { #expect(access("\(installed)/\(file)", F_OK) == 0, "\(file) is not installed") }
    try install("--remove")
    let left = try Command.succeed(["find", there, "-not", "-type", "d"])
    #expect(left.isEmpty, "what is left: \(left)")
  }

  /// systemd finds the units of an installation into a home, and an installer says where it would not.
  @Test func unitsLieWhereSystemdLooks() throws {
    let place = try TestSupport.TemporaryFolder()
    defer { do { try place.remove() } catch { Issue.record("\(error)") } }
    try place.makeFolder("built")
    for program in ["mediafs", "mount-helper"] {
      try Command.succeed(["ln", "-s", builtProduct(program), place.file("built/\(program)")])
    }
    let home = place.file("home")
    func install(_ prefix: String, action: String = "install", below root: String = "") throws -> String {
      try Command.succeed(
        [
          "make", "-C", Self.root, action, "BUILT=\(place.file("built"))", "PREFIX=\(prefix)", "DESTDIR=\(root)",
        ], environment: ["HOME": home])
    }
    func units(_ folder: String) throws -> [Substring] {
      try Command.succeed(["find", folder, "-name", "mediafs@.service"]).split(separator: "\n").sorted()
    }

    let own = try install("\(home)/.local")
    let unit = try #require(try units(home).first)
    #expect(try units(home).count == 1, "a home has no use for units of the system")
    #expect(try Command.succeed(["cat", String(unit)]).contains("ExecStart=\(home)/.local/bin/mediafs mount"))
    #expect(!own.contains(" link "), "\(own)")
    let searched = try Command.succeed(
      ["systemd-analyze", "--user", "unit-paths"], environment: ["HOME": home, "XDG_RUNTIME_DIR": home])
    #expect(searched.split(separator: "\n").contains(unit.prefix { $0 != "@" }.dropLast("/mediafs".count)))
    _ = try install("\(home)/.local", action: "uninstall")
    #expect(try Command.succeed(["find", home, "-not", "-type", "d"]).isEmpty)

    let far = try install("/opt/mediafs", below: place.file("root"))
    #expect(try units(place.file("root")).count == 2)
    for kind in ["system", "user"] {
      #expect(far.contains("systemctl --\(kind) link /opt/mediafs/lib/systemd/\(kind)/mediafs@.service"))
    }
    #expect(try !install("/usr/local", below: place.file("usual")).contains(" link "))
  }
}
