/// A half-open range of bytes in a resource: `start` is in it, `end` is not.
///
/// Offsets are file offsets, never negative. A range with `start == end` is empty.
package struct ByteRange: Hashable, Sendable {
  /// The first byte.
  package var start: Int64
  /// One past the last byte.
  package var end: Int64

  /// Precondition: `0 <= start <= end`.
  @inlinable
  package init(_ start: Int64, _ end: Int64) {
    precondition(0 <= start && start <= end, "a byte range runs forward from an offset that is not negative")
    self.start = start
    self.end = end
  }

  /// The range of `count` bytes from `start`.
  @inlinable
  package init(at start: Int64, count: Int64) { self.init(start, start + count) }

  /// Its length in bytes.
  @inlinable package var count: Int64 { end - start }
  /// Whether it has no byte.
  @inlinable package var isEmpty: Bool { start == end }

  /// Whether the byte at `offset` is in it.
  @inlinable package func contains(_ offset: Int64) -> Bool { start <= offset && offset < end }

  /// Whether every byte of `other` is in it (an empty `other` always is).
  @inlinable package func contains(_ other: ByteRange) -> Bool {
    other.isEmpty || (start <= other.start && other.end <= end)
  }

  /// Whether they share a byte.
  @inlinable package func overlaps(_ other: ByteRange) -> Bool {
    max(start, other.start) < min(end, other.end)
  }

  /// The least range of whole blocks of `size` bytes that contains it; the last one may be cut at the greatest offset.
  package func blocks(of size: Int64) -> ByteRange {
    isEmpty ? self : ByteRange(start / size * size, .clampedSum((end - 1) / size * size, size))
  }

  /// The bytes in both, or nil when there are none.
  @inlinable package func intersection(_ other: ByteRange) -> ByteRange? {
    let low = max(start, other.start)
    let high = min(end, other.end)
    return low < high ? ByteRange(low, high) : nil
  }
}

extension ByteRange: CustomStringConvertible {
  /// `[start, end)`.
  package var description: String { "[\(start), \(end))" }
}
