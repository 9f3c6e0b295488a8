import Base
import Fetching

/// Tells a request to the store from others during the life of its ``ObjectStore``.
package struct StoreRequestID: Hashable, Sendable {
  package let rawValue: UInt64
  package init(_ rawValue: UInt64) { self.rawValue = rawValue }
}

/// What is asked of the store. Every key is one below the fleet's prefix.
package struct StoreRequest: Sendable {
  package enum Action: Sendable {
    /// The object, or a part of it. `inPieces`: its bytes come to the client as they arrive, and none are kept.
    case get(range: ByteRange?, inPieces: Bool)
    /// What the store says of the object, without its bytes.
    case head
    case put(StoreBody, meta: [String: String], WriteCondition)
    /// `ifMatch`: only while the object has that ETag.
    case delete(ifMatch: String?)
    /// The objects whose keys begin with ``StoreRequest/key``.
    case list(StoreListing.Query)
  }

  /// When a PUT may write.
  package enum WriteCondition: Sendable, Equatable {
    case always
    /// Only if there is no object of that key.
    case ifAbsent
    /// Only while the object has that ETag.
    case ifMatch(String)
  }

  /// Whose turn it is, and beside how many others (``StoreLimits``).
  package enum Lane: Sendable, CaseIterable {
    /// Leases and pointers: few bytes, and somebody waits.
    case small
    /// Few bytes, for which nobody waits.
    case behind
    /// Blocks that readers wait for.
    case reads
    /// Blocks that go up behind the readers.
    case uploads
  }

  package var id: StoreRequestID
  package var key: String
  package var action: Action
  package var lane: Lane
  /// The seconds from when it is sent until it ends as timed out.
  package var timeout: Double
  /// Whether the store may refuse a body before it is sent: worth a round trip only where the line is slow.
  package var awaitsContinue = false

  package init(_ id: StoreRequestID, _ key: String, _ action: Action, lane: Lane? = nil, timeout: Double) {
    (self.id, self.key, self.action, self.timeout) = (id, key, action, timeout)
    // No reader waits for what may take so long.
    let small = timeout < 5 ? Lane.small : .behind
    self.lane =
      lane
      ?? {
        switch action {
        case .get(_, let inPieces): inPieces ? .reads : small
        case .put(let body, _, _): body.count > 64 << 10 ? .uploads : small
        case .head, .delete, .list: small
        }
      }()
  }

  package static func get(
    _ id: StoreRequestID, _ key: String, range: ByteRange? = nil, inPieces: Bool = false, timeout: Double
  ) -> StoreRequest { StoreRequest(id, key, .get(range: range, inPieces: inPieces), timeout: timeout) }

  package static func head(_ id: StoreRequestID, _ key: String, timeout: Double) -> StoreRequest {
    StoreRequest(id, key, .head, timeout: timeout)
  }

  package static func putIfAbsent(
    _ id: StoreRequestID, _ key: String, _ body: StoreBody, meta: [String: String] = [:], timeout: Double
  ) -> StoreRequest { StoreRequest(id, key, .put(body, meta: meta, .ifAbsent), timeout: timeout) }

  /// Replaces the object while it has the ETag `etag`.
  package static func swap(
    _ id: StoreRequestID, _ key: String, _ body: StoreBody, meta: [String: String] = [:], etag: String, timeout: Double
  ) -> StoreRequest { StoreRequest(id, key, .put(body, meta: meta, .ifMatch(etag)), timeout: timeout) }

  package static func delete(
    _ id: StoreRequestID, _ key: String, ifMatch etag: String?, timeout: Double
  ) -> StoreRequest { StoreRequest(id, key, .delete(ifMatch: etag), timeout: timeout) }

  package static func list(
    _ id: StoreRequestID, _ prefix: String, _ query: StoreListing.Query = .init(), timeout: Double
  ) -> StoreRequest { StoreRequest(id, prefix, .list(query), timeout: timeout) }
}

/// What a PUT stores, with its checksums. A large one is to be made on a thread that nobody waits for.
package struct StoreBody: Sendable {
  let bytes: TransferBody
  /// The CRC-32C of the bytes; it goes into the object's metadata.
  package let checksum: CRC32C
  /// The SHA-256 in hexadecimal, which signs the body where no TLS does; nil: the store's thread computes it.
  let digest: String?

  /// - Parameter location: where it goes, which tells whether a digest is needed.
  package init(_ bytes: TransferBody, for location: StoreLocation? = nil) {
    self.bytes = bytes
    checksum = CRC32C(bytes.bytes)
    digest = location.map { $0.isSecure } == false ? hexadecimal(SHA256.digest(bytes.bytes)) : nil
  }

  package init(_ bytes: [UInt8], for location: StoreLocation? = nil) {
    self.init(TransferBody(bytes), for: location)
  }

  package var count: Int { bytes.bytes.count }
}
