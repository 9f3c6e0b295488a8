import Fetching

/// The small objects of the bucket as bytes (FLEET-FORMAT.md). Reading refuses what is damaged or of another version;
/// what was read is within the bounds that the document gives.
package struct FleetFormat: Hashable, Sendable {
  /// The size of a block in bytes.
  package var block = 4 << 20
  /// How many blocks a segment has.
  package var segment = 16

  /// The layout of a new bucket.
  package init() {}

  /// Reads the object `format`. A refusal means: leave the bucket alone.
  package init(_ bytes: [UInt8], key: FleetKey) throws(ObjectRefusal) {
    let text = try FieldText(bytes, kind: "fleet", limit: 1 << 10)
    block = try text.number("block", 64 << 10...64 << 20)
    guard block % (64 << 10) == 0 else { throw .damaged("block") }
    segment = try text.number("segment", 1...BlockSet.most)
    guard try text.hex("key") == key.mark else { throw .otherKey }
  }

  /// The object.
  package func bytes(key: FleetKey) -> [UInt8] {
    var text = FieldText(kind: "fleet")
    text.add("block", block)
    text.add("segment", segment)
    text.add("key", key.mark.hex())
    return text.bytes
  }
}

/// Which generation an entry has.
package struct Pointer: Hashable, Sendable {
  /// The generation.
  package var generation: FleetID
  /// Its size, and the strong ETag as the origin sent it.
  package var size: Int64, validator: String
  /// When a node last heard it from the origin, in seconds since 1970 by the store's clock.
  package var checked: Int64
  /// When a node began to ask the origin whether it still is this one, by the same clock.
  package var asked: Int64?
  /// The media type, and Last-Modified in seconds since 1970, if the origin sent them.
  package var type: String?, modified: Int64?

  /// A pointer to that generation.
  package init(generation: FleetID, size: Int64, validator: String, checked: Int64) {
    (self.generation, self.size, self.validator, self.checked) = (generation, size, validator, checked)
  }

  /// Whether the object is a pointer, and of a version that this program does not know: nobody replaces it.
  package static func isOfAnotherVersion(_ bytes: [UInt8]) -> Bool {
    do throws(ObjectRefusal) { _ = try Pointer(bytes) } catch { if case .version = error { return true } }
    return false
  }

  /// Reads the object.
  package init(_ bytes: [UInt8]) throws(ObjectRefusal) {
    let text = try FieldText(bytes, kind: "pointer", limit: 4 << 10)
    guard let generation = FleetID(try text.text("generation")) else { throw .damaged("generation") }
    self.init(
      generation: generation, size: try text.number("size", 0...longestResource), validator: try text.text("validator"),
      checked: try text.number("checked", 0...Int64.max))
    if text["asked"] != nil { asked = try text.number("asked", 0...Int64.max) }
    if text["type"] != nil { type = try text.text("type", atMost: 256) }
    if text["modified"] != nil { modified = try text.number("modified", Int64.min...Int64.max) }
  }

  /// The object.
  package var bytes: [UInt8] {
    var text = FieldText(kind: "pointer")
    text.add("generation", generation)
    text.add("size", size)
    text.add("validator", validator)
    text.add("checked", checked)
    if let asked { text.add("asked", asked) }
    if let type { text.add("type", type) }
    if let modified { text.add("modified", modified) }
    return text.bytes
  }
}

/// What a generation is.
package struct GenerationHead: Hashable, Sendable {
  /// Its size, and the strong ETag as the origin sent it.
  package var size: Int64, validator: String
  /// The media type.
  package var type: String?

  /// The head of a generation.
  package init(size: Int64, validator: String, type: String? = nil) {
    (self.size, self.validator, self.type) = (size, validator, type)
  }

  /// Reads the object.
  package init(_ bytes: [UInt8]) throws(ObjectRefusal) {
    let text = try FieldText(bytes, kind: "head", limit: 4 << 10)
    self.init(size: try text.number("size", 0...Int64.max), validator: try text.text("validator"))
    if text["type"] != nil { type = try text.text("type", atMost: 256) }
  }

  /// The object.
  package var bytes: [UInt8] {
    var text = FieldText(kind: "head")
    text.add("size", size)
    text.add("validator", validator)
    if let type { text.add("type", type) }
    return text.bytes
  }
}

extension FieldText {
  /// The 64 digits of a SHA-256, if the field is there.
  func digest(_ name: String) throws(ObjectRefusal) -> String? {
    guard let value = self[name] else { return nil }
    guard value.utf8.count == 64, value.utf8.allSatisfy(\.isHexDigit) else { throw .damaged(name) }
    return value
  }
}

extension UInt8 {
  /// Whether it is a lower-case hexadecimal digit.
  var isHexDigit: Bool {
    (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(self) || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(self)
  }
}
