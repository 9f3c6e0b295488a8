import Base
import Glibc
import TestSupport
import Testing

/// What a case may change before its mount: origins, the manifest, options.
final class FaultStage {
  /// The path in the origin, and the pattern's name.
  static let path = "/media/film.mp4"
  /// The name in the mount.
  static let name = "film.mp4"

  let folder: TemporaryFolder
  let origin: Origin
  private(set) var others: [Origin] = []
  private var nginxes: [Nginx] = []
  /// The entry's line, without a newline.
  var manifest: String
  var options: [String] = []

  init(_ folder: TemporaryFolder, size: Int64) throws {
    self.folder = folder
    origin = try Origin()
    origin.set(Self.path, OriginResource(size: size, pattern: Self.path, type: "video/mp4"))
    manifest = origin.url(Self.path)
  }

  /// Another origin with the same bytes (or others, by `pattern`).
  func addOrigin(size: Int64, pattern: String = FaultStage.path) throws -> Origin {
    let other = try Origin()
    other.set(Self.path, OriginResource(size: size, pattern: pattern, type: "video/mp4"))
    others.append(other)
    return other
  }

  /// Another origin without a file.
  func addOrigin(_ settings: OriginSettings) throws -> Origin {
    let other = try Origin(settings)
    others.append(other)
    return other
  }

  /// A TLS server in front of the origin.
  func addNginx(_ certificate: TestCertificate) throws -> Nginx {
    var settings = NginxSettings(.origin(origin))
    settings.certificate = certificate
    let nginx = try Nginx(settings)
    nginxes.append(nginx)
    return nginx
  }

  /// How many requests came in all.
  var requests: Int { ([origin] + others).reduce(0) { $0 + $1.log.totals.requests } }

  func end() {
    for nginx in nginxes { nginx.stop() }
    for origin in [origin] + others { origin.stop() }
  }
}

/// One fault of an origin, and what is to come of it.
struct FaultCase: Sendable, CustomTestStringConvertible {
  /// What readers get while the fault lasts.
  enum Outcome: Sendable {
    /// Every byte.
    case bytes
    /// One of these, behind right bytes.
    case errors([Int32])
    /// Every byte, or one of these behind right ones.
    case bytesOrErrors([Int32])
    /// So many right bytes: the origin says that this is all, and nothing tells otherwise.
    case fewer(Int64)
  }
  /// How it comes back when the fault is over.
  enum Recovery: Sendable {
    /// By itself.
    case alone
    /// When the file is opened again.
    case opened
    /// Not in the time of a test.
    case never
  }

  let name: String
  var size: Int64
  /// `--timeout`: where bytes are expected it must never be reached.
  var timeout: Int
  var outcome: Outcome
  var recovery: Recovery
  /// More requests than that are a storm.
  var mostRequests = 60
  let arrange: @Sendable (FaultStage) throws -> Void
  let heal: @Sendable (FaultStage) throws -> Void

  var testDescription: String { name }

  init(
    _ name: String, size: Int64 = 1 << 20, timeout: Int? = nil, _ outcome: Outcome, _ recovery: Recovery = .alone,
    mostRequests: Int = 60, arrange: @escaping @Sendable (FaultStage) throws -> Void,
    heal: @escaping @Sendable (FaultStage) throws -> Void = { $0.origin.clearFaults() }
  ) {
    self.name = name
    self.size = size
    switch outcome {
    case .bytes, .fewer: self.timeout = timeout ?? 60
    // Only an error that is the deadline's own comes by it.
    case .errors(let codes): self.timeout = timeout ?? (codes.contains(ETIMEDOUT) ? 4 : 60)
    case .bytesOrErrors: self.timeout = timeout ?? 4
    }
    self.outcome = outcome
    self.recovery = recovery
    self.mostRequests = mostRequests
    self.arrange = arrange
    self.heal = heal
  }

  /// The origin's next `next` answers (nil: all) have those faults.
  static func faults(
    _ name: String, _ faults: [OriginFault], next: Int? = nil, size: Int64 = 1 << 20, timeout: Int? = nil,
    _ outcome: Outcome, _ recovery: Recovery = .alone, mostRequests: Int = 60
  ) -> FaultCase {
    FaultCase(name, size: size, timeout: timeout, outcome, recovery, mostRequests: mostRequests) {
      $0.origin.fault(faults, path: FaultStage.path, next: next)
    }
  }

  /// The next `next` answers (nil: all) from the offset `from` on have those faults.
  static func from(
    _ from: Int64, _ name: String, _ faults: [OriginFault], next: Int? = nil, _ outcome: Outcome,
    _ recovery: Recovery = .alone
  ) -> FaultCase {
    FaultCase(name, outcome, recovery) { stage in
      let left = Lock(next ?? .max)
      stage.origin.decide { request in
        guard request.firstByte >= from else { return [] }
        return left.withLock { left in
          if left == 0 { return [] }
          left -= 1
          return faults
        }
      }
    }
  }
}

/// Who wants the bytes while the fault lasts.
enum Readers: String, Sendable, CaseIterable, CustomTestStringConvertible {
  case one = "one reader"
  case eight = "eight readers"
  case none = "a continuation that nobody reads"

  var testDescription: String { rawValue }
}

extension OriginRequest {
  /// Where its Range begins; 0 without one. A rule is asked before the origin has looked at the field.
  var firstByte: Int64 {
    guard let field = header("Range"), field.hasPrefix("bytes=") else { return 0 }
    return Int64(field.dropFirst(6).prefix { $0 != "-" }) ?? 0
  }
}
