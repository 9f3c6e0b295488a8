import Base
import TestSupport
import Testing

/// Every program that a test, a script or a benchmark starts is named in Scripts/deps, or is there on every Debian.
///
/// A word of the sources (``StartedPrograms``) counts if PATH has a program of that name: whoever writes a test that
/// starts a program has it installed.
@Suite("Dependencies")
struct DependencyTests {
  /// What Debian's essential packages bring, of what is started; `kill` is the shells' own.
  private static let essential: [String: String] = [
    "bash": "bash", "dash": "sh kill", "diffutils": "cmp diff", "dpkg": "dpkg dpkg-query", "findutils": "find xargs",
    "grep": "grep", "gzip": "gzip",
    "coreutils": """
    basename cat chmod chown chroot cp cut date dd df dirname du echo env false head id install ln ls md5sum mkdir mkfifo mknod
    mktemp mv od printf pwd readlink realpath rm rmdir sha256sum sleep sort stat tail tee test timeout touch tr true truncate uname
    wc
    """,
    "libc-bin": "ldconfig", "perl-base": "perl", "sed": "sed", "tar": "tar",
    "util-linux": "findmnt mountpoint nsenter pivot_root prlimit setpriv setsid unshare",
  ]
  /// What README asks for: make, and a toolchain, which has a clang and an llvm-symbolizer beside swift.
  private static let premises = ["swift", "clang", "llvm-symbolizer", "make"]

  /// Words that stand where a program could, and mostly are none there.
  private static let noPrograms: Set<String> = [
    "GET", "HEAD", "POST", "clear", "edit", "file", "free", "link", "login", "more", "open", "print", "samba", "script",
    "top", "vlc",
  ]

  struct Use: CustomTestStringConvertible, Sendable {
    /// What Scripts/deps is asked for before any of it runs.
    var purposes: Set<Substring>
    var sources: [String]
    /// Some that are surely started: were one not found, the reading would be wrong. They are named, whatever word they
    /// are.
    var known: Set<String>
    /// What they do without where it is not there.
    var optional: Set<String> = []
    var testDescription: String { sources.joined(separator: ", ") }
  }

  @Test(arguments: [
    Use(
      purposes: ["build", "test"], sources: ["Tests"],
      known: [
        "curl", "nginx", "ffprobe", "mpv", "gdb", "getfattr", "useradd", "umount", "ps", "cmp", "tar", "perl", "file",
        "tmux", "promtool",
      ], optional: ["yt-dlp", "weed", "rclone"]),
    Use(
      purposes: ["build", "test"],
      sources: [
        "Makefile", ".ci/run", "Scripts/test", "Scripts/lint", "Scripts/fuzz", "Scripts/figures",
        "Scripts/trace", "Scripts/symbolize", "Scripts/build-helper", "Scripts/install-files", "Scripts/commit",
        "Scripts/version", "Scripts/make-dist", "Benchmarks/bench.py",
        "Benchmarks/count_rows.py", "Benchmarks/rows.py",
        "Benchmarks/servers.py", "Benchmarks/systems.py", "Benchmarks/soak.py", "Benchmarks/soak_events.py",
        "Benchmarks/soak_mount.py", "Benchmarks/soak_readers.py",
      ],
      known: ["ps", "awk", "gdb", "fusermount3", "pkg-config", "nginx", "python3", "setsid"],
      optional: ["git", "rclone"]),
    Use(
      purposes: ["build", "bench", "fleet"], sources: ["Benchmarks"],
      known: ["curl", "nginx", "find", "ffmpeg", "ffprobe", "python3", "pkg-config", "openssl", "nsenter", "mpv"],
      optional: ["git", "rclone", "weed"]),
    Use(
      purposes: ["build", "demo"], sources: ["Scripts/demo"], known: ["ffmpeg", "nginx", "awk", "cmp"],
      optional: ["mpv"]),
    Use(
      purposes: ["build", "programs"], sources: ["Scripts/programs", "Scripts/programs.bash"],
      known: ["mpv", "cvlc", "nginx", "rsync", "restic", "rclone", "smbclient", "mpc"],
      optional: ["dpkg-query"]),
    Use(
      purposes: ["build", "bare"], sources: ["Scripts/bare", "Scripts/tree.bash", "Scripts/package-journey"],
      known: ["debootstrap", "git", "unshare", "mount"],
      optional: ["apt-config", "apt-get", "mediafs", "runuser", "useradd", "dpkg-deb", "dpkg-query", "man", "umount"]),
    Use(
      purposes: ["build", "package"], sources: ["Scripts/make-deb", "debian/rules"],
      known: ["dh", "dh_clean", "lintian", "dpkg-parsechangelog", "dh_builddeb"]),
    Use(
      purposes: ["build"], sources: ["Scripts/deps"], known: ["ldconfig", "apt-get", "id"],
      optional: ["apt-get", "dpkg-deb", "python3", "sudo", "systemctl"]),
  ])
  func everyProgramIsNamed(use: Use) throws {
    let named = try Self.named(for: use.purposes)
    var known = named.union(Self.premises).union(use.optional)
    for names in Self.essential.values { known.formUnion(names.split { $0 == " " || $0 == "\n" }.map(String.init)) }
    var started: [String: Set<String>] = [:]
    for file in try use.sources.flatMap(Self.files) {
      for word in StartedPrograms.words(in: try DocumentTests.text(file), of: file) {
        started[word, default: []].insert(file)
      }
    }
    for program in use.known {
      #expect(started[program] != nil, "\(program) is started, and was not found")
      #expect(known.contains(program), "Scripts/deps does not name \(program)")
    }
    for (program, files) in started where !known.contains(program) && Command.exists(program) {
      let isNoProgram = Self.noPrograms.contains(program) || program.hasPrefix("swift-")
      #expect(isNoProgram, "\(files.sorted()) start \(program), which Scripts/deps does not name for them")
    }
  }

  /// The files that start programs at `source` or below it.
  private static func files(of source: String) throws -> [String] {
    let found = try Command.succeed(["find", "\(DocumentTests.root)/\(source)", "-type", "f"]).split(separator: "\n")
    try #require(!found.isEmpty, "there is no \(source)")
    return found.map { String($0.dropFirst(DocumentTests.root.count + 1)) }.filter { file in
      let isSource = !(file.split(separator: "/").last ?? "").contains(".") || file.hasSuffix(".swift")
      return (isSource || file.hasSuffix(".py") || file == source) && !file.hasSuffix("/DependencyTests.swift")
    }
  }

  @Test func everyScriptIsRead() throws {
    let text = try DocumentTests.text("Tests/BaseTests/DependencyTests.swift")
    for script in try Self.files(of: "Scripts") { #expect(text.contains("\"\(script)\""), "\(script) is not read") }
  }

  /// The programs that Scripts/deps names for some purposes; a path counts by its last part.
  private static func named(for purposes: Set<Substring>) throws -> Set<String> {
    var names: Set<String> = []
    var isAsked = false
    for line in try DocumentTests.text("Scripts/deps").split(separator: "\n") {
      let words = line.split(separator: " ")
      if let label = words.first, words.count == 1, label.hasSuffix(")") {
        isAsked = purposes.contains(label.dropLast())
      }
      guard isAsked, words.first == "tool" || words.first == "extract" else { continue }
      names.formUnion(words.dropFirst(2).compactMap { $0.split(separator: "/").last.map(String.init) })
    }
    return names
  }
}
