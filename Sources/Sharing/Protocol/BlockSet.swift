/// Blocks of one segment, by their place in it: at most 64.
package struct BlockSet: Hashable, Sendable {
  /// How many blocks a segment may have.
  package static let most = 64

  /// Bit n stands for block n.
  package var bits: UInt64

  /// The blocks whose bits are set.
  package init(bits: UInt64 = 0) { self.bits = bits }

  /// The blocks of `range`.
  package init(_ range: Range<Int>) {
    precondition(range.lowerBound >= 0 && range.upperBound <= Self.most, "a segment has at most 64 blocks")
    bits = range.isEmpty ? 0 : (~0 >> UInt64(Self.most - range.count)) << UInt64(range.lowerBound)
  }

  /// Whether it has no block.
  package var isEmpty: Bool { bits == 0 }
  /// How many blocks it has.
  package var count: Int { bits.nonzeroBitCount }
  /// The first block.
  package var first: Int? { isEmpty ? nil : bits.trailingZeroBitCount }

  /// The first block at `place` or behind it, else the first of all.
  package func first(from place: Int) -> Int? { BlockSet(bits: bits & (~0 << UInt64(place))).first ?? first }

  /// Whether it has `block`.
  package func contains(_ block: Int) -> Bool { bits & (1 << UInt64(block)) != 0 }

  /// Adds `block`.
  package mutating func insert(_ block: Int) { bits |= 1 << UInt64(block) }

  /// Takes `block` out.
  package mutating func remove(_ block: Int) { bits &= ~(1 << UInt64(block)) }

  /// The blocks of both.
  package static func | (left: BlockSet, right: BlockSet) -> BlockSet { BlockSet(bits: left.bits | right.bits) }
  /// The blocks that both have.
  package static func & (left: BlockSet, right: BlockSet) -> BlockSet { BlockSet(bits: left.bits & right.bits) }
  /// The blocks of `left` that `right` does not have.
  package static func - (left: BlockSet, right: BlockSet) -> BlockSet { BlockSet(bits: left.bits & ~right.bits) }
  /// Adds the blocks of `right`.
  package static func |= (left: inout BlockSet, right: BlockSet) { left.bits |= right.bits }
}
