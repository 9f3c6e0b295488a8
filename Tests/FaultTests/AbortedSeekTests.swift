import Base
import Glibc
import TestSupport
import Testing

/// Readers that seek and are killed while the origin hangs leave nothing behind that others wait for.
@Suite("Aborted seeks")
struct AbortedSeekTests {
  enum Hang: CaseIterable, Sendable { case beforeTheAnswer, inTheBody }

  @Test(
    "After 200 seeks that were killed at an origin that hangs, a cold read ends long before a stall",
    arguments: Hang.allCases)
  func twoHundredSeeks(hang: Hang) async {
    let size: Int64 = 1 << 30
    let seeks = 200
    let other = "/other.bin"
    // While no reader waits for a file, its requests count as stalled after this time: longer than any wait here.
    await onMount(size: size, options: ["--timeout", "600", "--continue=never"]) { stage in
      stage.origin.set(other, OriginResource(size: 4 << 20, pattern: other))
      // The first half of the film is well.
      stage.origin.decide { request in
        guard request.path == FaultStage.path, request.firstByte >= size / 2 else { return [] }
        return hang == .beforeTheAnswer ? [.stallBeforeHeaders] : [.stallAfter(1)]
      }
      stage.manifest += "\n" + stage.origin.url(other)
    } _: { scene in
      let opened = scene.read([ByteRange(0, 4096)])
      scene.expect(opened?.bytes == 4096, "\(opened.map { "\($0)" } ?? "")")
      for seek in 0..<seeks {
        let block = size / 2 / 4096 + Int64(seek) * 619
        let reader = try BackgroundProcess([
          "dd", "if=\(scene.file)", "of=/dev/null", "bs=4096", "count=1", "skip=\(block)", "status=none",
        ])
        sleep(seconds: 0.02)
        scene.expect(reader.isRunning, "seek \(seek) ended by itself")
        guard reader.terminate(grace: 0) else {
          return scene.expect(false, "the reader of seek \(seek) cannot be killed")
        }
      }
      let cold = scene.bounded("a cold read") { [file = scene.mount.file("other.bin")] in
        Reader.read(file, [ByteRange(1 << 20, (1 << 20) + 65536)], pattern: other)
      }
      scene.expect(cold?.bytes == 65536 && cold?.wrongAt == nil, "\(cold.map { "\($0)" } ?? "")")
      // Before a reader of the file waits again: then they would count as stalled. A body that stopped is left alone
      // while connections are free.
      if hang == .beforeTheAnswer {
        let open = scene.origin.log.totals.openRequests
        let areOver = eventually(timeout: FaultRun.bound) { scene.origin.log.totals.openRequests == 0 }
        scene.expect(areOver, "\(open) requests stay open")
      }
      let same = scene.read([ByteRange(100 << 20, (100 << 20) + 65536)])
      scene.expect(same?.bytes == 65536 && same?.wrongAt == nil, "\(same.map { "\($0)" } ?? "")")
    }
  }
}
