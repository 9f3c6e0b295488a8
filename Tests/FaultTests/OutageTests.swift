import Base
import Glibc
import TestSupport
import Testing

/// A whole origin that is away for a while, and very large files.
@Suite("Outages and sizes")
struct OutageTests {
  @Test("An origin goes and comes back: a hundred files, all the while names and what is stored")
  func outage() async {
    let count = 100
    let size: Int64 = 256 << 10
    await onMount(options: ["--timeout", "5", "--continue=always"]) { stage in
      stage.manifest = ""
      for number in 0..<count {
        stage.origin.set("/\(number).bin", OriginResource(size: size, pattern: "/\(number).bin"))
        stage.manifest += stage.origin.url("/\(number).bin") + "\n"
      }
      // What comes before it goes away: a head of each.
      stage.origin.decide { request in
        // Of the file, not of each answer: on a slow machine retries would bring the rest as well.
        let start = request.header("Range").flatMap { Int64($0.drop { !$0.isNumber }.prefix { $0.isNumber }) } ?? 0
        return [.stallAfter(max(0, 64 << 10 - start))]
      }
    } _: { scene in
      let mount = scene.mount
      let head = [ByteRange(0, 16 << 10)]
      let openers = (0..<count).map { number -> @Sendable () -> ReadOutcome in
        { Reader.read(mount.file("\(number).bin"), head, pattern: "/\(number).bin") }
      }
      // Not all may get their turn while the answers stall: what is stored is counted.
      let heads = Reader.sideBySide(timeout: FaultRun.bound, openers)
      let stored = heads.indices.filter { heads[$0]?.bytes == 16 << 10 }
      scene.expect(
        heads.allSatisfy { $0 != nil && $0?.wrongAt == nil }, "heads: \(heads.filter { $0 == nil }.count) hang")
      scene.expect(!stored.isEmpty, "no head was read")

      try scene.origin.setUp(false)
      scene.origin.dropConnections()
      scene.origin.clearFaults()
      scene.origin.log.reset()
      let during = Reader.sideBySide(
        timeout: FaultRun.bound,
        stored.prefix(20).flatMap { number -> [@Sendable () -> ReadOutcome] in
          [
            { Reader.read(mount.file("\(number).bin"), head, pattern: "/\(number).bin") },
            { Reader.read(mount.file("\(number).bin"), [ByteRange(192 << 10, .max)], pattern: "/\(number).bin") },
          ]
        })
      for (index, outcome) in during.enumerated() {
        let isHead = index % 2 == 0
        let isGood = isHead ? outcome?.bytes == 16 << 10 : outcome?.error?.code == ETIMEDOUT
        scene.expect(isGood && outcome?.wrongAt == nil, "while it is away: \(outcome.map { "\($0)" } ?? "hangs")")
      }
      let listed = try FileNames.list(mount.path).count
      scene.expect(listed == count, "\(listed) names are listed")

      try scene.origin.setUp(true)
      let deadline = Instant.now.adding(seconds: FaultRun.bound)
      var complete = 0
      while complete < count, Instant.now < deadline {
        sleep(seconds: 0.5)
        complete = try mount.status().files.filter { $0.state == "complete" }.count
      }
      scene.expect(complete == count, "\(complete) of \(count) came back")
      let totals = scene.origin.log.totals
      scene.expect(totals.peakConnections <= 32, "a storm: \(totals)")
      scene.expect(totals.requests <= 12 * count, "a storm: \(totals)")
      for number in stride(from: 0, to: count, by: 9) {
        let copy = Reader.read(mount.copy("\(number).bin"), pattern: "/\(number).bin")
        scene.expect(copy.bytes == size && copy.wrongAt == nil, "\(number): \(copy)")
      }
    }
  }

  @Test("A slow and honest line: no transfer of a continuation that nobody reads is cut off")
  func slow() async {
    await onMount(size: 160 << 10, options: ["--timeout", "4", "--continue=always"]) { stage in
      stage.origin.fault(.slow(bytesPerSecond: 8000))
    } _: { scene in
      _ = scene.read([])
      try scene.waitForState("complete")
      let ends = scene.origin.log.entries.map(\.end)
      scene.expect(!ends.isEmpty && ends.allSatisfy { $0 == .complete }, "\(ends)")
    }
  }

  @Test("A file over 4 GiB")
  func large() async {
    let size: Int64 = (5 << 30) + 12345
    await onMount(size: size, options: ["--timeout", "60", "--continue=never"]) { scene in
      let boundary: Int64 = 1 << 32
      let ranges = [
        ByteRange(size - 70_000, .max), ByteRange(boundary - 50_000, boundary + 50_000), ByteRange(0, 100_000),
        ByteRange((1 << 31) - 4000, (1 << 31) + 4000),
      ]
      let outcome = scene.read(ranges)
      scene.expect(outcome?.bytes == 70_000 + 100_000 + 100_000 + 8000, "\(outcome.map { "\($0)" } ?? "")")
      var status = stat()
      let path = scene.file
      scene.expect(stat(path, &status) == 0 && Int64(status.st_size) == size, "size \(status.st_size)")
    }
  }

  @Test("A file over 2^53 bytes: its bytes, or an error where the store's filesystem ends")
  func huge() async {
    let size: Int64 = (1 << 53) + 12345
    await onMount(size: size, options: ["--timeout", "60", "--continue=never"]) { scene in
      let head = scene.read([ByteRange(0, 100_000)])
      scene.expect(head?.bytes == 100_000, "the head: \(head.map { "\($0)" } ?? "")")
      let tail = scene.read([ByteRange(size - 5000, .max)])
      let isGood = tail?.bytes == 5000 || [EIO, EFBIG, ENOSPC].contains(tail?.error?.code ?? 0)
      scene.expect(isGood && tail?.wrongAt == nil, "the tail: \(tail.map { "\($0)" } ?? "")")
      let again = scene.read([ByteRange(200_000, 300_000)])
      scene.expect(again?.bytes == 100_000, "the head, after that: \(again.map { "\($0)" } ?? "")")
      var status = stat()
      let path = scene.file
      scene.expect(stat(path, &status) == 0 && Int64(status.st_size) == size, "size \(status.st_size)")
    }
  }
}
