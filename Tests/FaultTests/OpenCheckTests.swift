import Base
import Glibc
import TestSupport
import Testing

/// Opens that ask first whether the file changed, on real mounts: the kernel looks a name up again by itself.
@Suite("Opens of files that may have changed", .serialized)
struct OpenCheckTests {
  private static let size: Int64 = 4 << 20
  private static let name = "29.bin"
  private static let path = "/29.bin"
  private static let never = ["--continue=never", "--next=0", "--timeout", "60"]

  /// The files that change. An origin that takes longer than a second, as on a machine that is busy with other tests,
  /// is not waited for: so there are several.
  private static let changing = 24...29

  /// A mount of a folder of files that `ls -l` has listed: of the last ones nothing is stored but the 4 KiB that tell
  /// their type, as the server has learned from the first ones what programs read of such files. Unless the origin
  /// `tells`, its heads say nothing of the version.
  private func onListedMount(
    _ options: [String], tells: Bool = true, _ body: @escaping @Sendable (inout Scene) throws -> Void
  ) async {
    await onMount(options: Self.never + options) { stage in
      let origin = stage.origin
      origin.configure { $0.latency = 0.02 }
      let paths = (0...29).map { "/\($0).bin" }
      for path in paths {
        origin.add(path, size: Self.size)
        if tells { continue }
        origin.change(path) {
          $0.tag = .none
          $0.modified = nil
        }
      }
      stage.manifest = paths.map { origin.url($0) }.joined(separator: "\n")
    } _: { scene in
      let folder = scene.mount.path
      let listing = scene.bounded("ls -l") { try? Command.run(["ls", "-l", folder], timeout: FaultRun.bound) }
      scene.expect(listing??.output.contains("\(Self.size)") == true, "ls -l: \(String(describing: listing))")
      // Heads that were answered may still be on their way to their files. One command asks for all: the next open is
      // to come soon after the listing.
      let (mount, names) = (scene.mount, Self.changing.map { "\($0).bin" })
      var stored: [Int64] = []
      try waitUntil(timeout: 30, "the heads of \(names)") {
        let status = try mount.status()
        stored = try names.map { try status.file($0).stored }
        return stored.allSatisfy { $0 >= 4096 }
      }
      scene.expect(stored.allSatisfy { $0 == 4096 }, "\(stored) bytes of \(names) are stored by the listing")
      try body(&scene)
    }
  }

  /// Reads the whole file, once.
  private func expectWhole(_ scene: inout Scene) {
    let file = scene.mount.file(Self.name)
    let outcome = scene.bounded("a reader") { Reader.read(file, pattern: Self.path) }
    scene.expect(
      outcome?.error == nil && outcome?.wrongAt == nil && outcome?.bytes == Self.size,
      "a reader got \(outcome.map { "\($0)" } ?? "nothing")")
  }

  /// Changes the files and reads each whole, once: a reader whose open was answered within the second that it waits at
  /// most gets the new version, without an error.
  private func expectNoErrors(_ scene: inout Scene, change: @escaping @Sendable (Origin, String) -> Void) {
    let origin = scene.origin
    var late = 0
    for number in Self.changing {
      let path = "/\(number).bin"
      let file = scene.mount.path + path
      change(origin, path)
      let result = scene.bounded("a reader") { () -> (seconds: Double, outcome: ReadOutcome) in
        let begun = Instant.now
        let descriptor = open(file, O_RDONLY | O_CLOEXEC)
        let seconds = Instant.now.seconds(since: begun)
        guard descriptor >= 0 else { return (seconds, ReadOutcome(error: ("open", 0, errno))) }
        defer { close(descriptor) }
        var outcome = ReadOutcome()
        Reader.read(descriptor, ByteRange(0, .max), pattern: path, generations: 1...2, &outcome)
        return (seconds, outcome)
      }
      guard let result else { return }
      let outcome = result.outcome
      let isNew = outcome.error == nil && outcome.generations == [2] && outcome.bytes == origin.resource(path)?.size
      if !isNew, result.seconds >= 0.95, outcome.error?.code == ESTALE, outcome.generations.isSubset(of: [1]) {
        late += 1
      } else {
        scene.expect(isNew && outcome.wrongAt == nil, "\(path), opened in \(result.seconds) s: \(outcome)")
      }
    }
    scene.expect(late < Self.changing.count, "no open was answered within a second")
  }

  /// How long an open takes, in seconds.
  private func timeOpen(_ scene: inout Scene) -> Double {
    let file = scene.mount.file(Self.name)
    let begun = Instant.now
    let descriptor = scene.bounded("an open") { open(file, O_RDONLY | O_CLOEXEC) } ?? -1
    scene.expect(descriptor >= 0, "the open failed")
    close(descriptor)
    return Instant.now.seconds(since: begun)
  }

  @Test("A file that changed between the stat and the open costs its reader no error")
  func changedBetweenStatAndOpen() async {
    await onListedMount(["--fresh", "0"]) { scene in
      sleep(seconds: 1.2)
      expectNoErrors(&scene) { $0.nextGeneration($1, size: Self.size - 5000) }
    }
  }

  @Test("Nor does one that changed while another program has it open, idle for longer than --fresh")
  func changedWhileIdle() async {
    // The first open is to come within this time, however busy the machine is: else it asks by itself, and fetches what
    // later opens need not ask for.
    await onListedMount(["--fresh", "6s"]) { scene in
      let file = scene.mount.file(Self.name)
      let old = scene.bounded("an open") { open(file, O_RDONLY | O_CLOEXEC) } ?? -1
      defer { close(old) }
      sleep(seconds: 6.5)
      expectNoErrors(&scene) { origin, path in origin.nextGeneration(path) }
      // The old handle has its own version, of which it can get no more.
      let outcome = scene.bounded("the old handle") {
        var outcome = ReadOutcome()
        Reader.read(old, ByteRange(1 << 20, 2 << 20), pattern: Self.path, generations: 1...2, &outcome)
        return outcome
      }
      scene.expect(outcome?.error?.code == ESTALE, "the old handle: \(outcome.map { "\($0)" } ?? "")")
    }
  }

  @Test("Nor does one that changed between two mounts")
  func changedOverARestart() async {
    await onListedMount([]) { scene in
      if let problem = try scene.mount.unmount() { scene.expect(false, problem) }
      let again = try FaultMount(in: scene.stage.folder, manifest: scene.stage.manifest + "\n", options: Self.never)
      defer { again.end() }
      var second = Scene(stage: scene.stage, mount: again)
      expectNoErrors(&second) { $0.nextGeneration($1, size: Self.size - 5000) }
      if let problem = try again.unmount() { second.expect(false, problem) }
      for problem in second.problems { scene.expect(false, problem) }
    }
  }

  @Test("Nor does one without validators that changed: the bytes tell")
  func changedUntold() async {
    await onListedMount(["--fresh", "0"], tells: false) { scene in
      sleep(seconds: 1.2)
      expectNoErrors(&scene) { origin, path in origin.change(path) { $0.generation = 2 } }
    }
  }

  @Test("An open and the read after it make one request")
  func unchanged() async {
    await onListedMount(["--fresh", "0"]) { scene in
      sleep(seconds: 1.2)
      let before = scene.origin.log.entries(of: Self.path).count
      let file = scene.mount.file(Self.name)
      let outcome = scene.bounded("a reader") { Reader.read(file, [ByteRange(0, 64 << 10)], pattern: Self.path) }
      scene.expect(outcome?.bytes == 64 << 10 && outcome?.wrongAt == nil, "\(outcome.map { "\($0)" } ?? "")")
      // What is asked for behind the first request's bytes is the reader's play-ahead.
      let made = scene.origin.log.entries(of: Self.path).dropFirst(before)
      let starts = made.compactMap { $0.request.range?.start }
      scene.expect(starts.count { $0 <= 4096 } == 1, "\(starts)")
    }
  }

  @Test("An origin that does not answer delays an open by a second")
  func silentOrigin() async {
    await onListedMount(["--fresh", "0"]) { scene in
      sleep(seconds: 1.2)
      scene.origin.fault([.stallBeforeHeaders])
      let seconds = timeOpen(&scene)
      // With slack for a busy machine. An open that waits for an answer ends by the deadline, after 60 s.
      scene.expect(seconds >= 0.9 && seconds < 30, "the open took \(seconds) s")
      scene.origin.clearFaults()
      scene.origin.dropConnections()
      expectWhole(&scene)
    }
  }

  @Test("A host that is known to be away delays no open")
  func hostAway() async {
    await onListedMount(["--fresh", "0"]) { scene in
      let asked = scene.mount.file("3.bin")
      let origin = scene.origin
      sleep(seconds: 1.2)
      origin.fault([.stallBeforeHeaders])
      // Another file's read waits in vain, which is how mediafs gets to know.
      let hasEnded = Lock(false)
      Reader.detached {
        _ = Reader.read(asked, [ByteRange(2 << 20, 3 << 20)], pattern: "/3.bin")
        hasEnded.withLock { $0 = true }
      }
      let isAsked = eventually(timeout: 60) { origin.log.entries(of: "/3.bin").count > 1 }
      scene.expect(isAsked, "the other reader does not wait")
      let isKnown = eventually(timeout: 60, interval: 0.2) {
        (try? scene.mount.status(of: "3.bin").error) != nil
      }
      scene.expect(isKnown, "status knows of no failure")
      // An open that waits takes a second each time. One of these takes less, also on a busy machine.
      var seconds: [Double] = []
      while seconds.count < 10, seconds.allSatisfy({ $0 >= 0.9 && $0 < 30 }) { seconds.append(timeOpen(&scene)) }
      scene.expect(seconds.contains { $0 < 0.9 }, "the opens took \(seconds) s")
      origin.clearFaults()
      origin.dropConnections()
      scene.expect(eventually(timeout: FaultRun.bound) { hasEnded.withLock { $0 } }, "the other reader hangs")
    }
  }

  @Test("A program that looks at many files asks nothing when it opens one; another program does")
  func lookers() async {
    await onListedMount(["--fresh", "0"]) { scene in
      sleep(seconds: 1.2)
      // It opens the file and reads nothing.
      guard let program = Command.path(of: "dd") else { return scene.expect(false, "there is no dd") }
      let looker = scene.stage.folder.file("ffprobe")
      _ = try Command.succeed(["cp", program, looker])
      let origin = scene.origin
      let file = scene.mount.file(Self.name)
      var requests: [Int] = []
      for command in [looker, program] {
        let before = origin.log.entries(of: Self.path).count
        _ = try Command.succeed([command, "if=\(file)", "of=/dev/null", "count=0", "status=none"])
        // An open waits for a second at most: a busy origin may get its request afterwards.
        if command == program { _ = eventually { origin.log.entries(of: Self.path).count > before } }
        sleep(seconds: 0.5)
        requests.append(origin.log.entries(of: Self.path).count - before)
      }
      scene.expect(requests == [0, 1], "\(requests) requests")
    }
  }
}
