import Glibc
import TestSupport

/// Faults of the connection: no connection, broken ones, slow ones, names, certificates.
enum ConnectionFaults {
  static let all: [FaultCase] = broken + slow + names + certificates

  static let broken: [FaultCase] = [
    FaultCase("connections are refused", .errors([ETIMEDOUT])) {
      try $0.origin.setUp(false)
    } heal: {
      try $0.origin.setUp(true)
    },
    .faults("reset before the head, three times", [.resetBeforeHeaders], next: 3, .bytes),
    .faults("reset before the head, for ever", [.resetBeforeHeaders], .errors([ETIMEDOUT])),
    .faults("closed before the head, for ever", [.closeBeforeHeaders], .errors([ETIMEDOUT])),
    .faults("no answer, for ever", [.stallBeforeHeaders], .errors([ETIMEDOUT])),
    .faults("reset after 70 kB of each answer", [.resetAfter(70_000)], .bytes),
    .faults("closed short after 70 kB of each answer", [.closeAfter(70_000)], .bytes),
    .faults("stalled after 400 kB of each answer", [.stallAfter(400_000)], .bytes),
    FaultCase("stalled for ever at 300000", .errors([ETIMEDOUT])) { stage in
      stage.origin.decide { request in
        request.firstByte < 300_000 ? [.stallAfter(300_000 - request.firstByte)] : [.stallBeforeHeaders]
      }
    },
  ]

  static let slow: [FaultCase] = [
    .faults("one byte a second, for ever", [.slow(bytesPerSecond: 1)], .errors([ETIMEDOUT])),
    // It takes twice the timeout. A busy machine too brings some of it within one.
    .faults("a slow and honest line", [.slow(bytesPerSecond: 8000)], size: 192 << 10, timeout: 12, .bytes),
    .faults("header fields without end, slowly", [.endlessHeaders(bytesPerSecond: 100)], .errors([ETIMEDOUT])),
    .faults(
      "header fields without end, fast", [.endlessHeaders(bytesPerSecond: 1e7)], timeout: 60, .errors([EIO]), .opened),
    .faults(
      "one header line without end", [.endlessHeaderLine], timeout: 60, .errors([EIO]), .opened),
    .faults(
      "interim answers without end, slowly", [.interimAnswers(secondsApart: 0.3)], .errors([ETIMEDOUT])),
    .faults("the head comes a second late", [.delay(1)], .bytes),
  ]

  static let names: [FaultCase] = [
    FaultCase("a host's name that does not resolve", .errors([ETIMEDOUT]), .never) {
      $0.manifest = "http://mediafs-test.invalid\(FaultStage.path)"
    }
  ]

  static let certificates: [FaultCase] = [
    certificate("a certificate of another host", .wrongHost, isTrusted: true, .errors([EIO])),
    certificate("an expired certificate", .expired, isTrusted: true, .errors([EIO])),
    certificate("a certificate signed by itself", .selfSigned, isTrusted: false, .errors([EIO])),
    certificate("a certificate signed by itself, with --cacert", .selfSigned, isTrusted: true, .bytes),
    certificate("an unknown authority", .good, isTrusted: false, .errors([EIO])),
    certificate("an unknown authority, with --cacert", .good, isTrusted: true, .bytes),
  ]

  private static func certificate(
    _ name: String, _ kind: TestCertificate.Kind, isTrusted: Bool, _ outcome: FaultCase.Outcome
  ) -> FaultCase {
    var isBad = true
    if case .bytes = outcome { isBad = false }
    return FaultCase(name, outcome, isBad ? .never : .alone) { stage in
      let certificate = try TestCertificate(kind, in: stage.folder)
      stage.manifest = try stage.addNginx(certificate).url(FaultStage.path)
      if isTrusted { stage.options += ["--cacert", certificate.authority] }
    }
  }
}
