import Base
import Glibc
import TestSupport
import Testing

/// Entries with several URLs, and checksums.
@Suite("Mirrors and checksums")
struct MirrorTests {
  private static let size: Int64 = 1 << 20

  private static func checksum(pattern: String = FaultStage.path, size: Int64 = Self.size) throws -> String {
    try withTemporaryFolder { folder in
      let file = try folder.write(Pattern.bytes(name: pattern, offset: 0, count: Int(size)), to: "whole")
      return String(try Command.succeed(["sha256sum", file]).prefix(64))
    }
  }

  /// A second URL behind the first; `pattern` names its bytes.
  private static func add(_ stage: FaultStage, size: Int64 = Self.size, pattern: String = FaultStage.path) throws {
    let other = try stage.addOrigin(size: size, pattern: pattern)
    stage.manifest = stage.origin.url(FaultStage.path) + "\t" + other.url(FaultStage.path)
  }

  enum First: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case refused, gone, failing, silent, stalled, trickling, page
    var testDescription: String { rawValue }

    func apply(_ origin: Origin) throws {
      switch self {
      case .refused: try origin.setUp(false)
      case .gone: origin.fault(.status(404))
      case .failing: origin.fault(.status(500))
      case .silent: origin.fault(.stallBeforeHeaders)
      case .stalled: origin.decide { $0.firstByte == 0 ? [.stallAfter(100_000)] : [.stallBeforeHeaders] }
      case .trickling: origin.fault(.slow(bytesPerSecond: 1))
      case .page: origin.fault(.page())
      }
    }
  }

  @Test("The first is of no use: it plays from the second", arguments: First.allCases, [true, false])
  func firstUseless(first: First, hasChecksum: Bool) async {
    await onMount(options: ["--timeout", "8"]) { stage in
      try Self.add(stage)
      if hasChecksum { stage.manifest += "\n  checksum=sha-256=" + (try Self.checksum()) }
      try first.apply(stage.origin)
    } _: { scene in
      scene.readUntilWhole(size: Self.size)
      try scene.waitForState("complete")
      scene.checkCopy(size: Self.size)
    }
  }

  @Test("The first ends in the middle, the second has other bytes: no mix", arguments: [0, 5000] as [Int64])
  func otherBytes(longer: Int64) async {
    await onMount(size: 4 << 20, options: ["--timeout", "30", "--continue=never"]) { stage in
      try Self.add(stage, size: (4 << 20) + longer, pattern: "/other")
      stage.origin.decide { $0.firstByte >= 1 << 20 ? [.status(404)] : [] }
    } _: { scene in
      let first = scene.read()
      scene.expect(first?.wrongAt == nil && first?.error != nil, "the first: \(first.map { "\($0)" } ?? "")")
      scene.readUntilWhole(size: (4 << 20) + longer, pattern: "/other")
    }
  }

  @Test("A hiccup of the first: what is stored of it is not given up for the second's other bytes")
  func hiccup() async {
    await onMount(options: ["--timeout", "60", "--continue=never"]) { stage in
      try Self.add(stage, pattern: "/other")
      stage.origin.decide { (2...3).contains($0.indexOfPath) ? [.resetBeforeHeaders] : [] }
    } _: { scene in
      let outcome = scene.read()
      scene.expect(
        outcome?.bytes == Self.size && outcome?.wrongAt == nil && outcome?.error == nil,
        "\(outcome.map { "\($0)" } ?? "")")
      let asked = scene.stage.others[0].log.totals.requests
      scene.expect(asked == 0, "the second was asked \(asked) times")
    }
  }

  @Test("A wrong checksum at the end: fetched once more from the other mirror")
  func wrongChecksum() async {
    await onMount(options: ["--timeout", "30", "--continue=always"]) { stage in
      let bad = try stage.addOrigin(size: Self.size, pattern: "/bad")
      stage.manifest = bad.url(FaultStage.path) + "\t" + stage.origin.url(FaultStage.path)
      stage.manifest += "\n  checksum=sha-256=" + (try Self.checksum())
    } _: { scene in
      // What is shown before the end is what came: SEMANTICS says so. Then every byte is the verified one.
      let path = scene.file
      let held = scene.bounded("an open") { open(path, O_RDONLY | O_CLOEXEC) } ?? -1
      defer { close(held) }
      _ = scene.bounded("a reader") { Reader.read(path, pattern: "/bad") }
      try scene.waitForState("complete")
      scene.checkCopy(size: Self.size)
      // Although someone has it open since before, so that the page cache is in use.
      scene.readUntilWhole(size: Self.size)
    }
  }

  @Test("A checksum that is wrong everywhere: failed, with the reason, and not in the library")
  func wrongEverywhere() async {
    await onMount(options: ["--timeout", "30", "--continue=always"]) { stage in
      try Self.add(stage)
      stage.manifest += "\n  checksum=sha-256=" + String(repeating: "0", count: 64)
    } _: { scene in
      _ = scene.read([])
      try scene.waitForState("failed")
      let file = try scene.mount.status(of: FaultStage.name)
      scene.expect(file.error?.contains("sha-256") ?? false, "the reason: \(file.error ?? "none")")
      scene.expect(access(scene.mount.copy(FaultStage.name), F_OK) != 0, "it is in the library")
      let sent =
        scene.stage.origin.log.bytesSent(of: FaultStage.path) + scene.stage.others[0].log.bytesSent(of: FaultStage.path)
      scene.expect(sent <= 2 * Self.size + (256 << 10), "\(sent) bytes were sent")
    }
  }

  @Test("Nothing secret goes to another host, and no secret is shown")
  func secrets() async {
    await onMount { stage in
      let other = try stage.addOrigin(size: Self.size)
      let url = stage.origin.url(FaultStage.path).dropFirst("http://".count)
      stage.manifest =
        "http://planted-user:planted-word@\(url)?token=planted-token\n  out=film.mp4\n"
        + "  header=X-Key: planted-key\n  header=Cookie: planted-cookie\n  referer=http://planted.example/"
      stage.origin.fault(.redirect(302, to: other.url(FaultStage.path)))
    } _: { scene in
      scene.readUntilWhole(size: Self.size)
      let home = scene.origin.log.entries
      scene.expect(
        home.contains { $0.request.header("Authorization") != nil && $0.request.header("X-Key") == "planted-key" },
        "the entry's own host got no login or field")
      let leaked = scene.stage.others[0].log.entries.filter {
        "\($0.request)".contains("planted") || $0.request.header("Authorization") != nil
      }
      scene.expect(leaked.isEmpty, "leaked: \(leaked.map(\.request))")
      let shown = "\(try scene.mount.status())" + scene.mount.process.standardErrorSoFar
      scene.expect(!shown.contains("planted-"), "shown: \(shown)")
    }
  }
}
