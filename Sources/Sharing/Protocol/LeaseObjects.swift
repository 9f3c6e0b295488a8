extension Lease {
  /// Reads the object.
  package init(_ bytes: [UInt8]) throws(ObjectRefusal) {
    let text = try FieldText(bytes, kind: "lease", limit: 1 << 10)
    self.init(node: try text.hex("node"), boot: try text.hex("boot"))
    counter = try text.number("counter", 0...UInt32.max)
    have = BlockSet(bits: try text.hex("have"))
    at = try text.number("at", 0...UInt8(BlockSet.most - 1))
    arrived = try text.number("arrived", 0...UInt32.max)
    rate = try text.number("rate", 0...UInt32.max)
    switch try text.text("state") {
    case "held": isReleased = false
    case "released": isReleased = true
    default: throw .damaged("state")
    }
  }

  /// The object.
  package var bytes: [UInt8] {
    var text = FieldText(kind: "lease")
    text.add("node", node.hex())
    text.add("boot", boot.hex())
    text.add("counter", counter)
    text.add("have", have.bits.hex())
    text.add("at", at)
    text.add("arrived", arrived)
    text.add("rate", rate)
    text.add("state", isReleased ? "released" : "held")
    return text.bytes
  }
}

/// Who fetches one block in a holder's place.
package struct HelperClaim: Hashable, Sendable {
  /// The node, and its process.
  package var node, boot: UInt64

  /// The claim of that process.
  package init(node: UInt64, boot: UInt64) { (self.node, self.boot) = (node, boot) }

  /// Reads the object.
  package init(_ bytes: [UInt8]) throws(ObjectRefusal) {
    let text = try FieldText(bytes, kind: "claim", limit: 1 << 10)
    self.init(node: try text.hex("node"), boot: try text.hex("boot"))
  }

  /// The object.
  package var bytes: [UInt8] {
    var text = FieldText(kind: "claim")
    text.add("node", node.hex())
    text.add("boot", boot.hex())
    return text.bytes
  }
}

/// What says by its name alone what there is to say: a generation that was used on a day, a node that was there.
package enum DayMark: String, Hashable, Sendable {
  /// A generation.
  case seen
  /// A node.
  case node

  /// The object.
  package var bytes: [UInt8] { FieldText(kind: rawValue).bytes }
}

/// What a block's metadata says of it: the value of `x-amz-meta-mfs`.
package struct BlockLabel: Hashable, Sendable {
  /// Whose block it is, and which.
  package var generation: FleetID, index: Int
  /// How long it is, and its checksum.
  package var length: Int, crc32c: UInt32

  /// The label of a block.
  package init(generation: FleetID, index: Int, length: Int, crc32c: UInt32) {
    (self.generation, self.index, self.length, self.crc32c) = (generation, index, length, crc32c)
  }

  /// Reads the value; nil: it is not one.
  package init?(_ text: String) {
    let words = text.split(separator: " ", omittingEmptySubsequences: false)
    guard text.utf8.count <= 128, words.count == 5, words[0] == "1", let generation = FleetID(words[1]),
      let index = Int(words[2]), "\(index)" == words[2], 0...99_999_999 ~= index,
      let length = Int(words[3]), "\(length)" == words[3], 0...64 << 20 ~= length,
      let crc32c = UInt64(hex: words[4], digits: 8)
    else { return nil }
    self.init(generation: generation, index: index, length: length, crc32c: UInt32(crc32c))
  }

  /// The value.
  package var text: String { "1 \(generation) \(index) \(length) \(UInt64(crc32c).hex(digits: 8))" }
}
