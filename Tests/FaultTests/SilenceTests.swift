import Base
import Glibc
import TestSupport
import Testing

/// Hosts that accept requests and never answer, on real mounts.
@Suite("Silent hosts")
struct SilenceTests {
  private static let timeout = 4.0

  /// `ls -l` of the mount: its lines without the first, and how long it took.
  private static func list(_ scene: inout Scene) -> (lines: [Substring], seconds: Double)? {
    let path = scene.mount.path
    let begun = Instant.now
    let result = scene.bounded("ls -l") { Result { try Command.run(["ls", "-l", path], timeout: FaultRun.bound) } }
    let seconds = Instant.now.seconds(since: begun)
    switch result {
    case .success(let result)?:
      scene.expect(result.succeeded, "ls -l: \(result.errors)")
      return (result.output.split(separator: "\n").dropFirst().map { $0 }, seconds)
    case .failure(let error)?: scene.expect(false, "ls -l: \(error)")
    case nil: break
    }
    return nil
  }

  /// One origin at all addresses of loopback: forty names on one host, forty each on a host of its own.
  @Test("Forty-one silent hosts hold up a listing for about the timeout, and the second not at all")
  func listings() async {
    let size: Int64 = 123_456
    let names = (0..<40).map { "good\($0).mp4" }
    await onMount(size: 1 << 20, options: ["--timeout", "\(Int(Self.timeout))"]) { stage in
      var settings = OriginSettings()
      settings.address = "0.0.0.0"
      let silent = try stage.addOrigin(settings)
      silent.fault([.stallBeforeHeaders])
      var lines: [String] = []
      for (number, name) in names.enumerated() {
        lines.append("http://127.0.0.1:\(silent.port)/one/\(number).mp4")
        lines.append("http://127.0.1.\(number + 1):\(silent.port)/each/\(number + 100).mp4")
        stage.origin.add("/\(name)", size: size)
        lines.append(stage.origin.url("/\(name)"))
      }
      stage.manifest = lines.joined(separator: "\n")
    } _: { scene in
      // For a machine that is busy with other tests; where each stat waits for itself, it is forty times the timeout.
      let bound = 20 * Self.timeout
      for title in ["the first", "the second"] {
        guard let (lines, seconds) = Self.list(&scene) else { return }
        scene.expect(seconds < bound, "\(title) listing took \(seconds) s")
        scene.expect(lines.count == 120, "\(title) listing has \(lines.count) names")
        let sized = lines.filter { $0.split(separator: " ")[4] == "\(size)" }
        scene.expect(sized.count == names.count, "\(title) listing has the sizes of \(sized.count) good files")
      }
      // A read of such a file asks, and waits its time.
      let path = scene.mount.file("0.mp4")
      let begun = Instant.now
      let outcome = scene.bounded("a reader") { Reader.read(path, pattern: "") }
      scene.expect(outcome?.error?.code == ETIMEDOUT, "the reader: \(outcome.map { "\($0)" } ?? "")")
      scene.expect(Instant.now.seconds(since: begun) >= Self.timeout - 0.1, "it did not wait")
    }
  }

  @Test("Interim answers, however many, put no reader's deadline off")
  func interimAnswersPutNoDeadlineOff() async {
    await onMount(options: ["--timeout", "\(Int(Self.timeout))"]) { stage in
      stage.origin.fault([.interimAnswers(secondsApart: 0.1)], path: FaultStage.path)
    } _: { scene in
      let begun = Instant.now
      let outcome = scene.read()
      let seconds = Instant.now.seconds(since: begun)
      scene.expect(outcome?.error?.code == ETIMEDOUT, "the reader: \(outcome.map { "\($0)" } ?? "")")
      scene.expect(seconds >= Self.timeout - 0.1, "it waited \(seconds) s")
    }
  }

  @Test("One header line without end is EIO long before the deadline, and the status says why")
  func endlessLine() async {
    await onMount(options: ["--timeout", "60"]) { stage in
      stage.origin.fault([.endlessHeaderLine], path: FaultStage.path)
    } _: { scene in
      let begun = Instant.now
      let outcome = scene.read()
      scene.expect(outcome?.error?.code == EIO, "the reader: \(outcome.map { "\($0)" } ?? "")")
      scene.expect(Instant.now.seconds(since: begun) < 30, "it waited for the deadline")
      let status = try scene.mount.status(of: FaultStage.name)
      let error = status.error ?? "nothing"
      scene.expect(error.contains("a header line of more than 100 KiB"), "the status says \(error)")
      scene.expect(error.contains("list another URL"), "the status says \(error)")
      // Neither the URL nor a login is wrong.
      scene.expect(status.advice?.contains("--header") == false, "the status advises \(status.advice ?? "nothing")")
    }
  }
}
