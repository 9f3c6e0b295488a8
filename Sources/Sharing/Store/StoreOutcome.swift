import Base

/// What became of a request to the store.
package enum StoreOutcome: Sendable, Equatable {
  /// The object, or what the store says of it.
  case found(StoredObject)
  /// It is written; the ETag is nil when the store did not tell it.
  case written(etag: String?)
  case deleted
  case listed(StoreListing)
  /// There is no such object.
  case absent
  /// A condition did not hold. A store may say so although nothing was written: ask again before you believe it.
  case conflict
  /// The store has too much to do. `retryAfter`: the seconds that it named.
  case busy(retryAfter: Double?, reason: String)
  /// The store does not let it happen, and would say the same again: keys, rights, region, bucket, certificate.
  case refused(reason: String)
  /// The store has no room.
  case full(reason: String)
  /// The store failed, or what came from it cannot be used.
  case broken(reason: String)
  /// The object's bytes are not those that were stored. It may be deleted while it has that ETag.
  case rotten(etag: String?, reason: String)
  /// Its time ran out. Whether the store did it is unknown.
  case timedOut
  /// It was given up. Whether the store did it is unknown.
  case cancelled
}

/// An object, as the store gave it.
package struct StoredObject: Sendable, Equatable {
  /// nil when the store tells none: then it cannot be swapped.
  package var etag: String?
  /// The metadata that were stored with it, by their names in lower case, without `x-amz-meta-` and the checksum.
  package var meta: [String: String] = [:]
  /// The length of the whole object, nil when the store did not say.
  package var size: Int64?
  /// Which part came, nil for all of it.
  package var range: ByteRange?
  /// Its bytes; empty if they came in pieces, and of a HEAD.
  package var body: [UInt8] = []
  /// The CRC-32C that was stored with it; nil for an object of another program. Of all that came whole, it is right.
  package var checksum: String?
  /// The time of the store's clock, in seconds since 1970.
  package var date: Int64?
}

/// A page of a list (ListObjectsV2).
package struct StoreListing: Sendable, Equatable {
  /// What is asked for, beside the beginning of the keys.
  package struct Query: Sendable, Equatable {
    /// Where the page before ended.
    package var continuation: String?
    /// Only keys behind this one.
    package var after: String?
    /// Whether keys with a slash behind the beginning are told once for all, as ``StoreListing/folders``.
    package var isFlat = false
    /// The most of a page; stores have 1,000 at most.
    package var limit = 1000

    package init(continuation: String? = nil, after: String? = nil, isFlat: Bool = false, limit: Int = 1000) {
      (self.continuation, self.after, self.isFlat, self.limit) = (continuation, after, isFlat, limit)
    }
  }

  package struct Entry: Sendable, Equatable {
    package var key: String
    package var size: Int64
    package var etag: String?
    /// When it was written, in seconds since 1970; nil when the store does not tell.
    package var modified: Int64?
  }

  package var entries: [Entry] = []
  /// With a slash at the end of each.
  package var folders: [String] = []
  /// Where the next page begins; nil for the last page.
  package var continuation: String?
}

/// The store, as the rest of Sharing sees it. Its thread alone uses it.
package protocol ObjectStore: AnyObject {
  /// Starts a request. Its client hears of it until ``ObjectStoreClient/store(_:ended:)``, in later calls.
  /// Precondition: the id is new.
  func start(_ request: StoreRequest)
  /// Gives a request up; it ends as cancelled. Does nothing if it is over.
  func cancel(_ id: StoreRequestID)
}

/// Hears what the store says, on the store's thread. No call may block.
package protocol ObjectStoreClient: AnyObject {
  /// Called once each turn of the loop: starts and cancels requests, and returns the latest time for the next call.
  func turn(now: Instant) -> Instant
  /// The next bytes of a body that comes in pieces, valid during the call; `object` has no body. They are not checked
  /// before the outcome is ``StoreOutcome/found(_:)``. Returning false gives the request up.
  func store(_ id: StoreRequestID, received bytes: UnsafeRawBufferPointer, of object: StoredObject) -> Bool
  /// The request is over; no call about it follows.
  func store(_ id: StoreRequestID, ended outcome: StoreOutcome)
}
