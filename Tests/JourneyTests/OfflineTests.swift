import Base
import Glibc
import TestSupport
import Testing

/// No network, every way to unmount, and users who change what is theirs.
@Suite struct OfflineTests {
  private static let size = Int64(5 << 20) + 11

  @Test(arguments: Traveller.all) func aMountWithoutNetworkListsAllAndPlaysWhatIsStored(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        try withThreeFiles(journey, origin)
        try journey.unmount()
        origin.stop()
        try journey.mount(nil, "--timeout", "3")
        #expect(try journey.succeed(["ls", journey.mountpoint]) == "away\npart.bin\nwhole.bin\n")
        #expect(try journey.succeed(["stat", "-c", "%s", journey.at("part.bin")]) == "\(Self.size)\n")
        // Not known, and nobody to ask: there all the same, and not empty.
        #expect(try journey.succeed(["ls", journey.at("away")]) == "never-seen.bin\n")
        #expect(try journey.succeed(["stat", "-c", "%s %F", journey.at("away/never-seen.bin")]) == "1 regular file\n")
        try journey.succeed(["cmp", journey.at("whole.bin"), journey.folder.file("originals/whole.bin")])
        try journey.shell(
          #"cmp -n 400000 "$1" "$2""#, journey.at("part.bin"), journey.folder.file("originals/part.bin"))
        for name in ["part.bin", "away/never-seen.bin"] {
          let result = try journey.run(["tail", "-c", "1", journey.at(name)])
          #expect(
            !result.succeeded && result.output.isEmpty && !result.errors.contains("No such file"), "\(result.errors)")
        }
      }
    }
  }

  enum Way: String, Sendable, CaseIterable { case mediafs, fusermount, umount, interrupt }

  @Test(arguments: Traveller.all, Way.allCases)
  func everyWayToUnmountLosesNothing(_ traveller: Traveller, _ way: Way) throws {
    // Only root may call umount(8); an ordinary user's is fusermount3.
    if way == .umount, traveller != .root { return }
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        var foreground: BackgroundProcess?
        try withThreeFiles(journey, origin, isForeground: way == .interrupt) { foreground = $0 }
        let before = try journey.status()
        switch way {
        case .mediafs: try journey.unmount()
        case .fusermount: try journey.succeed(["fusermount3", "-u", journey.mountpoint])
        case .umount: try journey.succeed(["umount", journey.mountpoint])
        case .interrupt:
          foreground?.signal(SIGINT)
          let ended = try #require(foreground?.wait(timeout: 60), "it does not end")
          #expect(ended.status == 0, "\(ended.errors)")
        }
        #expect(eventually(timeout: 60) { !Mounts.isMounted(journey.mountpoint) })
        #expect(eventually(timeout: 60) { (try? journey.status().running) == false }, "the server ends by itself")
        let after = try journey.status()
        #expect(after.files.map(\.stored) == before.files.map(\.stored))
        #expect(after.files.map(\.state) == before.files.map(\.state))
        let requests = origin.log.totals.requests
        try journey.mount(nil, "--continue", "never")
        try journey.shell(
          #"cmp -n 400000 "$1" "$2""#, journey.at("part.bin"), journey.folder.file("originals/part.bin"))
        try journey.succeed(["cmp", journey.at("whole.bin"), journey.folder.file("originals/whole.bin")])
        #expect(origin.log.totals.requests == requests, "what is stored is not asked for")
      }
    }
  }

  @Test(arguments: Traveller.all) func whatUsersDoToCopiesIsRespected(_ traveller: Traveller) throws {
    try withJourney(traveller) { journey in
      try withOrigin { origin in
        try withThreeFiles(journey, origin)
        let original = journey.folder.file("originals/whole.bin")
        // Deleted: remote again, and fetched only when it is read.
        try journey.succeed(["rm", journey.kept("whole.bin")])
        let requests = origin.log.totals.requests
        #expect(try journey.status().file("whole.bin").state == "remote")
        #expect(origin.log.totals.requests == requests)
        try journey.succeed(["cmp", journey.at("whole.bin"), original])
        #expect(try journey.mediafs("fetch", "--wait", journey.at("whole.bin")).status == 0)
        try journey.succeed(["cmp", journey.kept("whole.bin"), original])

        // Edited: kept, told, and never served as the origin's.
        try journey.shell(#"echo mine >>"$1""#, journey.kept("whole.bin"))
        let edited = try journey.succeed(["sha256sum", journey.kept("whole.bin")]).prefix(64)
        let changed = try journey.status().file("whole.bin")
        #expect(changed.state == "modified" && changed.error != nil && changed.advice != nil, "\(changed)")
        try journey.succeed(["cmp", journey.at("whole.bin"), original])
        #expect(try journey.mediafs("fetch", "--wait", journey.at("whole.bin")).status == 0)
        let kept = try journey.succeed(["find", journey.library, "-type", "f", "-exec", "sha256sum", "{}", "+"])
        #expect(kept.contains(edited), "the user's own file is still there: \(kept)")
        try journey.unmount()
        try journey.mount()
        try journey.succeed(["cmp", journey.at("whole.bin"), original])
      }
    }
  }

  /// Mounts three files: one complete, one of which some is stored, one that nobody looked at.
  private func withThreeFiles(
    _ journey: Journey, _ origin: Origin, isForeground: Bool = false, started: (BackgroundProcess) -> Void = { _ in }
  ) throws {
    let names = ["whole.bin", "part.bin", "never-seen.bin"]
    for name in names { origin.add("/\(name)", size: Self.size) }
    for name in names.dropLast() { try journey.original(name, size: Self.size) }
    // In a folder of its own: the looks at the others would find out about a sibling.
    try journey.list(names.map { origin.url("/\($0)") + "\n" }.joined() + "  dir=away\n")
    let command = try journey.mountCommand(["--continue", "never"])
    if isForeground {
      let process = try journey.start(command + ["--foreground"])
      started(process)
      try #require(process.waitForOutput("mounted at", timeout: 60), "\(process.standardErrorSoFar)")
    } else {
      try journey.succeed(command)
    }
    try journey.succeed(["cp", journey.at("whole.bin"), journey.folder.file("copy")])
    try journey.wait(for: "complete", "whole.bin")
    try journey.python(reader, journey.at("part.bin"), "0:1000000")
    _ = try journey.storedAtRest(origin, "part.bin")
  }
}
