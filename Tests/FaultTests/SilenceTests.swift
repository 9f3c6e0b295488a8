import Base
import Glibc
import TestSupport
import Testing

/// Hosts that never send a final answer, on real mounts.
@Suite("Silent hosts")
struct SilenceTests {
  private static let timeout = 4.0

  @Test("interim answers, however many, put no reader's deadline off")
  func interimAnswersPutNoDeadlineOff() async {
    await onMount(options: ["--timeout", "\(Int(Self.timeout))"]) { stage in
      stage.origin.fault([.interimAnswers(secondsApart: 0.1)], path: FaultStage.path)
    } _: { scene in
      let begun = Instant.now
      let outcome = scene.read()
      let seconds = Instant.now.seconds(since: begun)
      scene.expect(outcome?.error?.code == ETIMEDOUT, "the reader: \(outcome.map { "\($0)" } ?? "")")
      scene.expect(seconds >= Self.timeout - 0.1 && seconds < 2 * Self.timeout, "it waited \(seconds) s")
    }
  }

  @Test("one header line without end is EIO long before the deadline, and the status says why")
  func endlessLine() async {
    await onMount(options: ["--timeout", "60"]) { stage in
      stage.origin.fault([.endlessHeaderLine], path: FaultStage.path)
    } _: { scene in
      let begun = Instant.now
      let outcome = scene.read()
      scene.expect(outcome?.error?.code == EIO, "the reader: \(outcome.map { "\($0)" } ?? "")")
      scene.expect(Instant.now.seconds(since: begun) < 30, "it waited for the deadline")
      let error = try scene.mount.status(of: FaultStage.name).error ?? "nothing"
      scene.expect(error.contains("a header line of more than 100 KiB"), "the status says \(error)")
    }
  }
}
