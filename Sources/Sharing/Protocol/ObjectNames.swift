/// The names of the bucket's objects, below the prefix that the user gave (FLEET-FORMAT.md).
package enum ObjectName: Hashable, Sendable {
  /// What fixes the layout.
  case format
  /// Which generation an entry has.
  case pointer(FleetID)
  /// What a generation is.
  case head(FleetID)
  /// The bytes of a block.
  case block(FleetID, Int)
  /// Who fetches a segment.
  case lease(FleetID, segment: Int)
  /// Who fetches one block in a holder's place.
  case claim(FleetID, Int, round: Int)
  /// The bytes that programs look at.
  case probe(FleetID)
  /// The digests of a complete generation.
  case done(FleetID)
  /// That a generation was used on a day (YYYYMMDD).
  case seen(day: Int, FleetID)
  /// That a node was there on a day.
  case node(day: Int, UInt64)

  /// The name.
  package var text: String {
    switch self {
    case .format: "mfs1/format"
    case .pointer(let entry): "mfs1/u/\(entry)"
    case .head(let generation): "mfs1/g/\(generation)"
    case .block(let generation, let index): "\(Self.blocks(of: generation))\(Self.digits(index, 8))"
    case .lease(let generation, let segment): "mfs1/l/\(generation)/\(Self.digits(segment, 6))"
    case .claim(let generation, let index, let round):
      "mfs1/e/\(generation)/\(Self.digits(index, 8))-\(Self.digits(min(round, 99), 2))"
    case .probe(let generation): "mfs1/p/\(generation)"
    case .done(let generation): "mfs1/d/\(generation)"
    case .seen(let day, let generation): "mfs1/s/\(Self.digits(day, 8))/\(generation)"
    case .node(let day, let node): "\(Self.nodes(of: day))\(node.hex())"
    }
  }

  /// What the names of a generation's blocks begin with, for a list.
  package static func blocks(of generation: FleetID) -> String { "mfs1/b/\(generation)/" }

  /// What the names of a day's nodes begin with.
  package static func nodes(of day: Int) -> String { "mfs1/n/\(digits(day, 8))/" }

  /// The block that a name of a list stands for; nil: none of that generation.
  package static func block(in name: some StringProtocol, of generation: FleetID) -> Int? {
    let prefix = blocks(of: generation)
    guard name.hasPrefix(prefix) else { return nil }
    let rest = name.utf8.dropFirst(prefix.utf8.count)
    guard rest.count == 8, rest.allSatisfy({ $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") }) else { return nil }
    return rest.reduce(0) { $0 * 10 + Int($1 - UInt8(ascii: "0")) }
  }

  /// The node that a name of a list stands for.
  package static func node(in name: some StringProtocol, of day: Int) -> UInt64? {
    let prefix = nodes(of: day)
    return name.hasPrefix(prefix) ? UInt64(hex: name.dropFirst(prefix.count), digits: 16) : nil
  }

  private static func digits(_ number: Int, _ count: Int) -> String {
    let text = String(max(0, number))
    return String(repeating: "0", count: max(0, count - text.utf8.count)) + text
  }
}
