/// Who a node is, and what the bucket's `format` object fixes for all.
package struct FleetIdentity: Hashable, Sendable {
  /// A random number that the node's store keeps.
  package var node: UInt64
  /// A random number of this process.
  package var boot: UInt64
  /// The size of a block in KiB.
  package var block = 4096
  /// How many blocks a segment has.
  package var segment = 16
  /// The round trip to the store in milliseconds.
  package var roundTrip = 0
  /// Whether the store's conditional writes are atomic.
  package var hasLeases = true

  /// The node with those numbers.
  package init(node: UInt64, boot: UInt64) {
    self.node = node
    self.boot = boot
  }
}
