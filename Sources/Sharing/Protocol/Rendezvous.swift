/// Which node is first at a segment, by a hash that all nodes compute alike (rendezvous hashing).
package enum Rendezvous {
  /// The weight of `node` at a segment of the generation whose id begins with `generation`.
  package static func weight(node: UInt64, generation: UInt64, segment: Int) -> UInt64 {
    mix(mix(mix(node) ^ generation) ^ UInt64(truncatingIfNeeded: segment))
  }

  /// How many of `nodes` are before `node` at that segment.
  package static func rank(of node: UInt64, among nodes: [UInt64], generation: UInt64, segment: Int) -> Int {
    let own = weight(node: node, generation: generation, segment: segment)
    return nodes.reduce(into: 0) { count, other in
      let weight = weight(node: other, generation: generation, segment: segment)
      if weight > own || (weight == own && other > node) { count += 1 }
    }
  }

  /// The last step of splitmix64.
  private static func mix(_ value: UInt64) -> UInt64 {
    var mixed = value &+ 0x9e37_79b9_7f4a_7c15
    mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
    return mixed ^ (mixed >> 31)
  }
}
