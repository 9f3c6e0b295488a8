import Glibc
import TestSupport

/// Entries whose first URL is of no use: they play from the second.
enum MirrorFaults {
  static let all: [FaultCase] = [
    mirror("refuses connections") { try $0.setUp(false) },
    mirror("does not have the file") { $0.fault(.status(404)) },
    mirror("denies it") { $0.fault(.status(403)) },
    mirror("fails") { $0.fault(.status(500)) },
    mirror("is silent") { $0.fault(.stallBeforeHeaders) },
    // What is stored of it is not given up for a hiccup: without a checksum the other's bytes are another version.
    mirror("stalls at 100000", timeout: 8, .bytesOrErrors([ETIMEDOUT, ESTALE])) { origin in
      origin.decide { $0.firstByte == 0 ? [.stallAfter(100_000)] : [.stallBeforeHeaders] }
    },
    mirror("sends a byte a second", timeout: 8, .bytesOrErrors([ETIMEDOUT, ESTALE])) {
      $0.fault(.slow(bytesPerSecond: 1))
    },
    mirror("sends a page of HTML") { $0.fault(.page()) },
    mirror("sends what nobody can use") { $0.fault(.gzip) },
  ]

  private static func mirror(
    _ what: String, timeout: Int = 20, _ outcome: FaultCase.Outcome = .bytes,
    _ make: @escaping @Sendable (Origin) throws -> Void
  ) -> FaultCase {
    FaultCase("the first mirror " + what, timeout: timeout, outcome) { stage in
      let other = try stage.addOrigin(size: 1 << 20)
      stage.manifest += "\t" + other.url(FaultStage.path)
      try make(stage.origin)
    } heal: {
      // It stays as it is: the second one must do.
      _ = $0
    }
  }
}
