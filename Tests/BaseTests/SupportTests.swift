import Base
import Glibc
import TestSupport
import Testing

@Suite struct PatternTests {
  @Test func everyWayGivesTheSameBytes() {
    var random = SeededRandom.fromEnvironment()
    for _ in 0..<200 {
      let offset = Int64.random(in: 0..<(1 << 60), using: &random)
      let count = Int.random(in: 0..<300, using: &random)
      let shift = Int.random(in: 0..<8, using: &random)
      var space = [UInt8](repeating: 0xaa, count: count + shift + 8)
      space.withUnsafeMutableBytes { buffer in
        let part = UnsafeMutableRawBufferPointer(rebasing: buffer[shift..<(shift + count)])
        Pattern.fill(part, name: "a", generation: 3, offset: offset)
      }
      let single = (0..<count).map { Pattern.byte(name: "a", generation: 3, offset: offset + Int64($0)) }
      #expect(Array(space[shift..<(shift + count)]) == single, "seed \(random.seed)")
      #expect(space[(shift + count)...].allSatisfy { $0 == 0xaa }, "nothing behind the buffer is touched")
    }
  }

  @Test func checkFindsTheFirstWrongByte() {
    var bytes = Pattern.bytes(name: "a", offset: 77, count: 20_000)
    #expect(Pattern.check(bytes, name: "a", offset: 77) == nil)
    #expect(Pattern.check(bytes, name: "a", offset: 78) != nil)
    #expect(Pattern.check(bytes, name: "b", offset: 77) != nil)
    #expect(Pattern.check(bytes, name: "a", generation: 2, offset: 77) != nil)
    bytes[12_345] ^= 1
    bytes[15_000] ^= 1
    #expect(Pattern.check(bytes, name: "a", offset: 77) == Int64(77 + 12_345))
    #expect(Pattern.check([UInt8](repeating: 0, count: 64), name: "a", offset: 0) != nil, "zeros are not right")
  }

  @Test func tellsGenerationsApart() {
    let new = Pattern.bytes(name: "a", generation: 5, offset: 100, count: 100)
    let old = Pattern.bytes(name: "a", generation: 4, offset: 100, count: 50)
    #expect(Pattern.generation(of: new, name: "a", offset: 100, among: 1...9) == 5)
    #expect(Pattern.generation(of: old + new[50...], name: "a", offset: 100, among: 1...9) == nil, "a mix")
  }
}

@Suite struct CommandTests {
  @Test func givesStatusAndOutput() async throws {
    let result = try await Command.run(["sh", "-c", "cat; echo wrong >&2; exit 3"], input: Array("in".utf8))
    #expect(result.status == 3 && result.output == "in" && result.errors == "wrong\n")
    #expect(try await Command.run(["sh", "-c", "kill -9 $$"]).status == 128 + SIGKILL)
  }

  @Test func movesMoreThanAPipeHolds() async throws {
    let bytes = Pattern.bytes(name: "pipe", offset: 0, count: 3 << 20)
    let result = try await Command.run(["cat"], input: bytes)
    #expect(result.standardOutput == bytes)
    // One that does not read its input ends all the same.
    #expect(try await Command.run(["true"], input: bytes).succeeded)
  }

  @Test func setsEnvironmentAndFolder() async throws {
    let result = try await Command.run(
      ["sh", "-c", "echo $A-${HOME:-none}; pwd; ls /proc/self/fd"], environment: ["A": "b", "HOME": nil], folder: "/usr"
    )
    #expect(result.output.hasPrefix("b-none\n/usr\n0\n1\n2\n3\n"), "no descriptor of ours: \(result.output)")
    #expect(result.output.split(separator: "\n").count == 6)
  }

  @Test func killsTheGroupAtTheTimeoutAndTellsWhereItHung() async throws {
    let failure = await #expect(throws: CommandFailure.self) {
      try await Command.run(["sh", "-c", "echo begun; sleep 1000 & sleep 1001"], timeout: 5)
    }
    let report = try #require(failure).description
    #expect(report.contains("begun\n") && report.contains("State:"), "\(report)")
    #expect(report.contains("sleep 1000") && report.contains("sleep 1001"), "\(report)")
    let group = try #require(groupID(in: report))
    #expect(eventually { killpg(group, 0) != 0 }, "the whole group is gone")
  }

  /// The id of the process that a report begins with.
  private func groupID(in report: String) -> pid_t? {
    report.firstRange(of: "process ").flatMap { pid_t(report[$0.upperBound...].prefix { $0.isNumber }) }
  }

  @Test func leavesAChildInTheBackgroundAlone() async throws {
    let result = try await Command.run(["sh", "-c", "sleep 1002 & echo $!"], timeout: 5)
    let child = try #require(pid_t(result.output.dropLast()))
    #expect(kill(child, SIGKILL) == 0, "it still ran, and nobody waited for it")
  }

  @Test func saysWhyNothingStarted() async {
    await #expect(throws: CommandFailure.self) { try await Command.run(["/does/not/exist"]) }
    await #expect(throws: CommandFailure.self) { try await Command.succeed(["false"]) }
  }

  @Test(.enabled(if: TestUser.canSwitch)) func runsAsAnotherUser() async throws {
    let nobody = try #require(TestUser(named: "nobody"))
    let result = try await Command.run(["sh", "-c", "id -u; id -G; echo $USER"], user: nobody)
    #expect(result.output == "\(nobody.userID)\n\(nobody.groupID)\nnobody\n")
  }

  @Test func backgroundProcessIsSeenAndEnded() throws {
    let process = try BackgroundProcess(["sh", "-c", "echo ready; exec sleep 1003"])
    #expect(process.waitForOutput("ready"))
    #expect(process.isRunning && process.wait(timeout: 0.05) == nil)
    #expect(process.terminate())
    #expect(process.wait(timeout: 1)?.status == 128 + SIGTERM)
    let stubborn = try BackgroundProcess(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"])
    #expect(stubborn.waitForOutput("ready"))
    #expect(stubborn.terminate(grace: 0.2))
    #expect(stubborn.wait(timeout: 1)?.status == 128 + SIGKILL)
  }
}

@Suite struct WatchdogTests {
  @Test func endsAHangWithItsBacktraces() async throws {
    let result = try await Command.run([builtProduct("test-origin"), "--hang"], timeout: 120)
    #expect(result.status == 128 + SIGABRT)
    #expect(result.errors.contains("a hang on purpose has not ended within 0.5 s"))
    #expect(result.errors.contains("sleep 1004"), "a process that was started is told of: \(result.errors)")
    #expect(result.errors.contains("watchdog"), "the threads are told of: \(result.errors)")
    if Command.exists("gdb") {
      #expect(result.errors.contains("clock_nanosleep") && result.errors.contains("withWatchdog"), "\(result.errors)")
    }
    let child = try #require(
      result.errors.firstRange(of: "process ").flatMap { range in
        pid_t(result.errors[range.upperBound...].prefix { $0.isNumber })
      })
    #expect(eventually { kill(child, 0) != 0 }, "and killed")
  }

  @Test func letsThroughWhatEndsInTime() async throws {
    #expect(withWatchdog(600) { 5 } == 5)
    #expect(try await withWatchdog(600) { try await Command.run(["true"]).status } == 0)
  }
}

@Suite struct TemporaryFolderTests {
  @Test func isRemovedWithAllThatIsInIt() throws {
    let path = try withTemporaryFolder { folder in
      try folder.write("x", to: "a/b/c")
      symlink("/etc", folder.file("link"))
      chmod(folder.file("a/b"), 0)
      return folder.path
    }
    #expect(access(path, F_OK) != 0)
    #expect(access("/etc/passwd", F_OK) == 0, "a link is not followed")
  }

  @Test(.enabled(if: geteuid() == 0)) func unmountsWhatLiesInItFirst() throws {
    let folder = try TemporaryFolder()
    let mountpoint = try folder.makeFolder("with space")
    try Command.succeed(["mount", "-t", "tmpfs", "-o", "size=1M", "test-source", mountpoint])
    let mount = try #require(Mounts.below(folder.path).first)
    #expect(mount.mountpoint == mountpoint && mount.type == "tmpfs" && mount.source == "test-source")
    #expect(mount.superOptions.contains("size=1024k"))
    let busy = try FileDescriptor.open("\(mountpoint)/file", O_RDWR | O_CREAT)
    try folder.remove()
    #expect(Mounts.below(folder.path).isEmpty && access(folder.path, F_OK) != 0)
    #expect(try busy.status().st_nlink == 1, "what was mounted there has not been removed")
  }
}

@Suite struct MediaTests {
  @Test(arguments: MediaFactory.Kind.allCases) func makesMediaThatPlays(kind: MediaFactory.Kind) async throws {
    let path = try MediaFactory.file(kind)
    let bytes = try MediaFactory.bytes(kind)
    #expect(bytes.count > 300_000 && bytes.count < 12 << 20)
    let duration = try await Command.succeed(
      ["ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0", path])
    #expect(abs((Double(duration.filter { !$0.isWhitespace }) ?? 0) - Double(MediaFactory.seconds)) < 1)
    switch kind {
    case .mp4IndexFirst: #expect(offset(of: "moov", in: bytes) < offset(of: "mdat", in: bytes))
    case .mp4IndexLast: #expect(offset(of: "moov", in: bytes) > offset(of: "mdat", in: bytes))
    case .mp3: #expect(bytes.suffix(128).prefix(3).elementsEqual(Array("TAG".utf8)))
    case .flac: #expect(bytes.prefix(4).elementsEqual(Array("fLaC".utf8)))
    case .ogg: #expect(bytes.prefix(4).elementsEqual(Array("OggS".utf8)))
    case .matroska: #expect(bytes.prefix(4) == [0x1a, 0x45, 0xdf, 0xa3])
    }
  }

  /// Where an MP4 atom stands at the top level.
  private func offset(of atom: String, in bytes: [UInt8]) -> Int {
    var at = 0
    while at + 8 <= bytes.count {
      if bytes[(at + 4)..<(at + 8)].elementsEqual(Array(atom.utf8)) { return at }
      let size = bytes[at..<(at + 4)].reduce(0) { $0 << 8 | Int($1) }
      at += max(8, size)
    }
    return -1
  }
}
