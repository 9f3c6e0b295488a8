import Base
import Foundation
import Glibc
import TestSupport
import Testing

/// More files in use than may be open.
@Suite("The limit of open files")
struct DescriptorTests {
  /// Limits of a process: what it has and what it may raise that to.
  struct Limits: Sendable, CustomTestStringConvertible {
    var soft: Int
    var hard: Int
    var testDescription: String { "\(soft) of \(hard)" }
  }

  private static let files = 300

  @Test(
    "The limit is raised as far as it may be; where that is too little the log says so, and nothing hangs or is wrong",
    arguments: [Limits(soft: 64, hard: 4096), Limits(soft: 256, hard: 256)])
  func limits(_ limits: Limits) async {
    let wrapper = ["prlimit", "--nofile=\(limits.soft):\(limits.hard)"]
    let timeout = limits.hard > Self.files ? "100" : "10"
    await onMount(options: ["--timeout", timeout, "--continue=never"], wrapper: wrapper) { stage in
      stage.manifest = ""
      for number in 0..<Self.files {
        stage.origin.set("/\(number).bin", OriginResource(size: 64 << 10, pattern: "/\(number).bin"))
        stage.manifest += stage.origin.url("/\(number).bin") + "\n"
      }
    } _: { scene in
      let mount = scene.mount
      // All of them open at once: each takes the server a descriptor of its own.
      let opened = Reader.sideBySide(
        timeout: FaultRun.bound,
        (0..<Self.files).map { number in { open(mount.file("\(number).bin"), O_RDONLY | O_CLOEXEC) } })
      scene.expect(opened.allSatisfy { $0 != nil }, "\(opened.count { $0 == nil }) opens hang")
      let outcomes = Reader.sideBySide(
        timeout: FaultRun.bound,
        opened.enumerated().map { number, descriptor -> @Sendable () -> ReadOutcome in
          {
            var outcome = ReadOutcome()
            guard let descriptor, descriptor >= 0 else { return outcome }
            Reader.read(
              descriptor, ByteRange(0, .max), pattern: "/\(number).bin", generations: 1...1, &outcome)
            return outcome
          }
        })
      for descriptor in opened { if let descriptor, descriptor >= 0 { close(descriptor) } }
      scene.expect(outcomes.allSatisfy { $0 != nil && $0?.wrongAt == nil }, "hang or wrong: \(outcomes)")
      let bad = outcomes.indices.filter { outcomes[$0]?.bytes != 64 << 10 }
      let log = mount.process.standardErrorSoFar
      if limits.hard > Self.files {
        scene.expect(bad.isEmpty, "\(bad.count) failed: \(bad.prefix(3).map { outcomes[$0] })")
        scene.expect(!log.contains("open at once"), "a warning where there is enough")
        return
      }
      scene.expect(log.contains("can open only \(limits.hard) files at once"), "it does not say so")
      // Where the machine is slow enough, files are finished and put away before the limit is met.
      scene.expect(bad.isEmpty || log.contains("open files"), "it does not say what failed")
      // With what was closed there is room again.
      for number in bad.prefix(20) {
        let isWhole = eventually(timeout: FaultRun.bound, interval: 0.2) {
          Reader.read(mount.file("\(number).bin"), pattern: "/\(number).bin").bytes == 64 << 10
        }
        scene.expect(isWhole, "\(number).bin stays unreadable")
      }
    }
  }

  /// The soft limit of another process; the hard one stays.
  private static func limit(_ process: Int32, to count: Int) throws {
    try Command.succeed(["prlimit", "--pid", "\(process)", "--nofile=\(count):"])
  }

  /// The numbers of another process's open files, once nothing changes there: a client's connection may just be going.
  private static func descriptors(of process: Int32) throws -> Set<Int> {
    let look = { try FileManager.default.contentsOfDirectory(atPath: "/proc/\(process)/fd").compactMap { Int($0) } }
    var before = Set<Int>()
    var now = Set(try look())
    for _ in 0..<100 where now != before {
      usleep(200_000)
      before = now
      now = Set(try look())
    }
    return now
  }

  @Test("A file that cannot be opened for want of descriptors keeps what is stored of it")
  func shortageLosesNothing() async {
    let never = ["--timeout", "10", "--continue=never"]
    await onMount(size: 4 << 20, options: never) { scene in
      let first = scene.read([ByteRange(0, 1 << 20)])
      scene.expect(first?.bytes == 1 << 20, "the first mount: \(first.map { "\($0)" } ?? "")")
      if let problem = try scene.mount.unmount() { scene.expect(false, problem) }
      let again = try FaultMount(in: scene.stage.folder, manifest: scene.stage.manifest + "\n", options: never)
      defer { again.end() }
      let server = try again.server()
      let before = try again.status(of: FaultStage.name).stored
      scene.expect(before >= 1 << 20, "\(before) bytes are stored")
      // From the lowest number that is free on: the next descriptor is one too many.
      let used = try Self.descriptors(of: server)
      try Self.limit(server, to: try #require((0...).first { !used.contains($0) }))
      let file = again.file(FaultStage.name)
      let failed = Reader.read(file, [ByteRange(0, 4096)], pattern: FaultStage.path)
      scene.expect(failed.wrongAt == nil && failed.error != nil, "it was opened all the same: \(failed)")
      try Self.limit(server, to: 1024)
      let requests = scene.origin.log.entries(of: FaultStage.path).count
      let well = Reader.read(file, [ByteRange(0, 1 << 20)], pattern: FaultStage.path)
      scene.expect(well.bytes == 1 << 20 && well.wrongAt == nil, "\(well)")
      let stored = try again.status(of: FaultStage.name).stored
      scene.expect(stored >= before, "\(stored) bytes are stored, of \(before)")
      // What lies behind it may be fetched for a reader in sequence.
      let sent = scene.origin.log.entries(of: FaultStage.path).dropFirst(requests).flatMap(\.sent)
      scene.expect(!sent.contains { $0.range.start < 1 << 20 }, "what was stored was fetched again: \(sent)")
      if let problem = try again.unmount() { scene.expect(false, problem) }
    }
  }
}
