// swift-tools-version: 6.2
// One target a room, along the data's way; dependencies point down only (docs/ARCHITECTURE.md).
import PackageDescription

let strict: [SwiftSetting] = [.treatAllWarnings(as: .error), .enableUpcomingFeature("ExistentialAny")]

/// The compiler optimises the targets that simulated time runs through in debug builds too, and keeps their assertions:
/// the tests of the reading room take a third of the time.
let fast: [SwiftSetting] = strict + [.unsafeFlags(["-O", "-assert-config", "Debug"], .when(configuration: .debug))]

func room(_ name: String, _ dependencies: [Target.Dependency], _ settings: [SwiftSetting] = strict) -> Target {
  .target(name: name, dependencies: dependencies, swiftSettings: settings)
}

func tests(_ name: String, _ dependencies: [Target.Dependency], _ settings: [SwiftSetting] = strict) -> Target {
  .testTarget(name: name, dependencies: dependencies + ["Base", "TestSupport"], swiftSettings: settings)
}

/// The commit that `mediafs --version` names. `make release` sets it (Scripts/commit), and nothing else does.
let commit = Context.environment["MEDIAFS_COMMIT"]

let package = Package(
  name: "mediafs",
  products: [
    .executable(name: "mediafs", targets: ["mediafs"]),
    .executable(name: "mount-helper", targets: ["mount-helper"]),
    .executable(name: "test-origin", targets: ["test-origin"]),
    .executable(name: "test-line", targets: ["test-line"]),
    .library(name: "disk-shim", type: .dynamic, targets: ["DiskShim"]),
  ],
  targets: [
    // The C libraries, each used by the one room that wraps it.
    .systemLibrary(name: "CFuse", pkgConfig: "fuse3", providers: [.apt(["libfuse3-dev"])]),
    .systemLibrary(name: "CCurl", pkgConfig: "libcurl", providers: [.apt(["libcurl4-openssl-dev"])]),
    .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
    .systemLibrary(name: "CCrypto", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
    .systemLibrary(name: "CLibXML", pkgConfig: "libxml-2.0", providers: [.apt(["libxml2-dev"])]),
    // Without pkgConfig: SwiftPM warns of the macros that ncursesw.pc defines. Its files are where the compiler looks.
    .systemLibrary(name: "CCurses", providers: [.apt(["libncurses-dev"])]),
    .target(name: "CXML", dependencies: ["CLibXML"]),  // keeps libxml2's headers out of Swift
    // What a build knows of itself. A target of its own: another commit compiles its one file anew, and links.
    .target(name: "CBuild", cSettings: commit.map { [.define("MEDIAFS_COMMIT", to: "\"\($0)\"")] } ?? []),
    .target(name: "CSystem"),  // glibc and Linux calls that Swift cannot import by itself

    room("Base", ["CSystem"], fast),
    room("Manifest", ["Base", "CSystem", "CCrypto", "CXML"], fast),
    room("Storing", ["Base", "Manifest", "CSQLite", "CCrypto"], fast),
    room("Fetching", ["Base", "CSystem", "CCurl"]),
    room("Media", ["Base"], fast),
    room("Reading", ["Base", "Manifest", "Storing", "Fetching", "Media"], fast),
    room("Sharing", ["Base", "CSystem", "CCrypto", "Manifest", "Fetching", "Reading"], fast),
    room("Mount", ["Base", "Reading", "CFuse"]),
    room("Control", ["Base"]),
    room("Screen", ["Base", "CSystem", "CCurses"]),
    room("Server", ["Base", "Manifest", "Storing", "Fetching", "Reading", "Sharing", "Mount", "Control"]),
    .executableTarget(
      name: "mediafs",
      dependencies: ["Base", "Manifest", "Storing", "Sharing", "Control", "Server", "Screen", "CBuild", "CSystem"],
      swiftSettings: strict),
    .executableTarget(
      name: "mount-helper", path: "mount-helper", exclude: ["PROTOCOL.md"],
      cSettings: [.define("_GNU_SOURCE"), .unsafeFlags(["-Wall", "-Wextra", "-Werror"])],
      linkerSettings: [.linkedLibrary("fuse3")]),

    // The origin that misbehaves on purpose, a line with real TCP, and helpers of the tests.
    .target(
      name: "TestSupport", dependencies: ["Base", "CSystem", "Manifest"], path: "Tests/TestSupport",
      swiftSettings: fast),
    .executableTarget(
      name: "test-origin", dependencies: ["Base", "TestSupport"], path: "Tests/test-origin", swiftSettings: strict),
    .executableTarget(
      name: "test-line", path: "Tests/test-line",
      cSettings: [.define("_GNU_SOURCE"), .unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),

    // Stands between a server and the disk, to kill it in the middle of a write, to let the disk fail, to record.
    .target(
      name: "DiskShim", path: "Tests/DiskShim", cSettings: [.unsafeFlags(["-Wall", "-Wextra", "-Werror", "-O1"])]),

    // It runs what documents show.
    tests("BaseTests", ["mediafs", "mount-helper"]),
    tests("ManifestTests", ["Manifest"]),
    tests("StoringTests", ["CSystem", "Storing", "Manifest"]),
    tests("FetchingTests", ["Fetching"]),
    tests("MediaTests", ["Media"]),
    tests("SharingTests", ["CSystem", "Sharing", "Manifest", "Fetching", "Reading"], fast),
    tests("ReadingTests", ["Reading", "Storing", "Fetching", "Manifest", "Media"], fast),
    tests("MountTests", ["Mount", "Reading"]),
    tests("ControlTests", ["Control"]),
    tests("ServerTests", ["CSystem", "Server", "Mount", "Storing", "Reading", "Fetching", "Manifest", "Control"]),
    tests(
      "AttackTests", ["Manifest", "Storing", "Fetching", "Control", "Server", "CSystem", "mediafs", "mount-helper"]),
    tests("JourneyTests", ["mediafs", "mount-helper"]),
    tests("CrashTests", ["CSystem", "mediafs", "mount-helper", "Server", "Storing", "Manifest"]),
    tests("FaultTests", ["mediafs", "mount-helper"]),
  ],
  swiftLanguageModes: [.v6]
)
