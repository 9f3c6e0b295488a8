/// Who fetches a segment from the origin for the whole fleet, and how far it is.
package struct Lease: Hashable, Sendable {
  /// The node that holds it.
  package var node: UInt64
  /// A random number of that node's process: after a write without an answer it tells whose the lease is.
  package var boot: UInt64
  /// How often it was renewed.
  package var counter: UInt32 = 0
  /// The blocks of the segment that the holder knows to be in the store.
  package var have = BlockSet()
  /// The block that it is fetching.
  package var at: UInt8 = 0
  /// What it has of that block, in KiB.
  package var arrived: UInt32 = 0
  /// The rate at which the origin brings it, in KiB a second; 0: not known.
  package var rate: UInt32 = 0
  /// Whether the holder has given it up.
  package var isReleased = false

  /// The lease that a process takes.
  package init(node: UInt64, boot: UInt64) {
    self.node = node
    self.boot = boot
  }

  /// Whether the same process holds `other`.
  package func isSameHolder(as other: Lease) -> Bool { node == other.node && boot == other.boot }

  /// Whether `other` says that the origin brought something since.
  package func hasProgress(since other: Lease) -> Bool {
    !isSameHolder(as: other) || have != other.have || at != other.at || arrived != other.arrived
  }
}

/// The store's name for one version of an object: its ETag, or a number that stands for it.
package struct ObjectVersion: Hashable, Sendable {
  /// The ETag as sent, with its quotes.
  package var etag: String

  /// The version with that ETag.
  package init(etag: String) { self.etag = etag }
}

/// The condition of a write.
package enum WriteCondition: Hashable, Sendable {
  /// Only if there is no such object (`If-None-Match: *`).
  case absent
  /// Only in the place of this version (`If-Match`).
  case version(ObjectVersion)
}
