import Base
import Fetching
import TestSupport
import Testing

@testable import Sharing

extension StoreLocation {
  /// The tests' bucket at an endpoint.
  static func test(
    _ endpoint: String, prefix: String = "p", style: Style = .path, region: String? = nil
  ) throws -> StoreLocation {
    try StoreLocation(
      share: "s3://\(StoreKeys.bucket)/\(prefix)", endpoint: endpoint, region: region, style: style)
  }
}

extension StoreCredentials {
  static let test = StoreCredentials(accessKey: StoreKeys.key, secretKey: StoreKeys.secret, origin: "a test")
  static let guest = StoreCredentials(accessKey: StoreKeys.guestKey, secretKey: StoreKeys.guestSecret, origin: "a test")
}

/// Calls to a store, for a test; it stops them afterwards.
func withCalls<Result>(
  _ endpoint: String, prefix: String = "p", style: StoreLocation.Style = .path,
  options: TransferOptions = TransferOptions(), _ change: (inout StoreSetup) -> Void = { _ in },
  _ body: (StoreCalls) throws -> Result
) throws -> Result {
  var setup = StoreSetup(try .test(endpoint, prefix: prefix, style: style), .test)
  change(&setup)
  let calls = try StoreCalls(setup, options: options)
  defer { calls.stop() }
  return try body(calls)
}

extension StoreCalls {
  private static let patience: Double = 20

  func get(_ key: String, _ range: ByteRange? = nil, timeout: Double = patience) -> StoreOutcome {
    outcome(.get(Self.anyID, key, range: range, timeout: timeout))
  }
  func head(_ key: String) -> StoreOutcome { outcome(.head(Self.anyID, key, timeout: Self.patience)) }
  func put(_ key: String, _ body: [UInt8], meta: [String: String] = [:], timeout: Double = patience) -> StoreOutcome {
    outcome(.putIfAbsent(Self.anyID, key, StoreBody(body, for: location), meta: meta, timeout: timeout))
  }
  func swap(_ key: String, _ body: [UInt8], etag: String) -> StoreOutcome {
    outcome(.swap(Self.anyID, key, StoreBody(body, for: location), etag: etag, timeout: Self.patience))
  }
  func delete(_ key: String, ifMatch etag: String? = nil) -> StoreOutcome {
    outcome(.delete(Self.anyID, key, ifMatch: etag, timeout: Self.patience))
  }
  func list(_ prefix: String, _ query: StoreListing.Query = .init()) -> StoreOutcome {
    outcome(.list(Self.anyID, prefix, query, timeout: Self.patience))
  }
  /// Again while the store is too slow for an answer, as a mount does it.
  func probe(nonce: String) -> StoreProbe.Verdict {
    for attempt in 1... {
      let verdict = probeOnce(nonce: "\(nonce)-\(attempt)")
      if verdict != .unknown(.timedOut) || attempt == 3 { return verdict }
    }
    return .unknown(.timedOut)
  }

  private func probeOnce(nonce: String) -> StoreProbe.Verdict {
    let result = Lock<StoreProbe.Verdict?>(nil)
    probe(nonce: nonce) { verdict in result.withLock { $0 = verdict } }
    guard eventually(timeout: 60, { result.withLock { $0 } != nil }) else { return .unknown(.timedOut) }
    return result.withLock { $0 } ?? .unknown(.timedOut)
  }
}

extension StoreOutcome {
  var object: StoredObject? { if case .found(let object) = self { object } else { nil } }
  var listing: StoreListing? { if case .listed(let listing) = self { listing } else { nil } }
  var isWritten: Bool { if case .written = self { true } else { false } }
  var etag: String? {
    switch self {
    case .written(let etag): etag
    case .found(let object): object.etag
    default: nil
    }
  }
  var refusal: String? { if case .refused(let reason) = self { reason } else { nil } }
  var breakage: String? { if case .broken(let reason) = self { reason } else { nil } }
}
