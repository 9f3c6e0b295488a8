/// A JSON object of a list, to be decoded by itself.
struct JSONValue {
  /// Its bytes; none for a `null` in the place of an object.
  var bytes: [UInt8]
  /// The line where it begins.
  var line: Int
  /// Why it is not to be decoded; it has no bytes then.
  var excess: JSONExcess?
  /// The objects around the lists `entries` that it is an element of, the outermost first, as far as they were read
  /// before; empty for none.
  var around: [[UInt8]] = []
}

/// A bound of ``JSONSplitter`` that an object does not keep.
enum JSONExcess {
  case bytes, nesting

  /// What messages say of such an item.
  var words: String {
    switch self {
    case .bytes: "has more than \(JSONSplitter.maximumBytes >> 20) MiB"
    case .nesting: "nests deeper than \(JSONSplitter.maximumNesting)"
    }
  }
}

/// Splits JSON that comes in pieces into objects: those of a list, those that follow each other (one a line), and those
/// of the list `entries` in such an object, which may have lists of their own (the tabs of a channel). In memory are
/// only one object and those around it.
///
/// It knows strings and brackets; what lies between is checked when an object is decoded.
struct JSONSplitter {
  /// The most bytes of an object. While it is decoded, the decoder takes up to 80 times as much.
  static let maximumBytes = 4 << 20
  /// The most brackets within each other in an object. A decoder takes some KiB of stack for two of them, and the
  /// threads that read lists have 512 KiB.
  static let maximumNesting = 80
  /// The most lists `entries` within each other that are split.
  static let maximumDepth = 8

  /// Why the rest cannot be read.
  struct Fault: Error {
    var line: Int
    var reason: String
  }

  /// Where objects stand, and the one that is being read there.
  private struct Place {
    /// Whether it is a list; else objects follow each other.
    var isList = false
    /// The objects around the list; all values of the list share them.
    var around: [[UInt8]] = []
    /// The object's bytes, without the elements of its list that was split.
    var object: [UInt8] = []
    var line = 1
    /// The depth of brackets in the object; 0 between objects.
    var depth = 0
    /// Whether a list of the object was split. A second one is kept: each costs a copy of the object.
    var hasSplit = false
    var excess: JSONExcess?
    /// Where the last string of the object begins, at its own depth.
    var key = 0

    mutating func keep(_ byte: UInt8) {
      if excess != nil { return }
      if object.count < JSONSplitter.maximumBytes { object.append(byte) } else { excess = .bytes }
    }

    mutating func enter() {
      depth += 1
      if depth > JSONSplitter.maximumNesting, excess == nil { excess = .nesting }
    }

    /// Whether the object goes on with the value of `entries`.
    var isAtEntries: Bool {
      guard depth == 1, key < object.count, object.count - key < 64 else { return false }
      return object[key...].filter { $0 > 0x20 }.elementsEqual("\"entries\":".utf8)
    }
  }

  /// Objects that are complete.
  var values: [JSONValue] = []
  private var line = 1
  private var isInString = false
  private var isEscaped = false
  /// Where the next byte stands.
  private var place = Place()
  /// The places around it, whose objects go on behind the list.
  private var outer: [Place] = []
  /// How many bytes of a `null` have been read.
  private var ofNull = 0

  /// The end. Throws if an object has none.
  func finish() throws(Fault) {
    if place.depth > 0 || place.isList || ofNull > 0 { throw Fault(line: line, reason: "it ends too early") }
  }

  /// Reads the next byte.
  mutating func read(_ byte: UInt8) throws(Fault) {
    if byte == 0x0A { line += 1 }
    if isInString {
      if isEscaped {
        isEscaped = false
      } else if byte == 0x5C {
        isEscaped = true
      } else if byte == 0x22 {
        isInString = false
      }
      return place.keep(byte)
    }
    if place.depth == 0 {
      if ofNull > 0 || (byte == 0x6E && place.isList) { return try readNull(byte) }
      switch byte {
      case 0x20, 0x09, 0x0A, 0x0D, 0x2C, 0xEF, 0xBB, 0xBF: return  // blanks, a comma, a byte order mark
      case 0x7B:
        (place.object, place.line, place.hasSplit, place.excess) = ([], line, false, nil)
      case 0x5B where !place.isList: place.isList = true; return
      case 0x5D where place.isList: return endList()
      default: throw Fault(line: line, reason: "something other than an object stands where an item should")
      }
    }
    switch byte {
    case 0x22:
      isInString = true
      if place.depth == 1 { place.key = place.object.count }
    case 0x5B where !place.hasSplit && outer.count < Self.maximumDepth && place.isAtEntries: return beginList()
    case 0x5B, 0x7B: place.enter()
    case 0x5D, 0x7D: place.depth -= 1
    default: break
    }
    place.keep(byte)
    if place.depth == 0 { endObject() }
  }

  private mutating func readNull(_ byte: UInt8) throws(Fault) {
    guard byte == Array("null".utf8)[ofNull] else { throw Fault(line: line, reason: "it is no valid JSON") }
    ofNull = ofNull == 3 ? 0 : ofNull + 1
    if ofNull == 0 { values.append(JSONValue(bytes: [], line: line)) }
  }

  private mutating func endObject() {
    let bytes = place.excess == nil ? place.object : []
    values.append(JSONValue(bytes: bytes, line: place.line, excess: place.excess, around: place.around))
    place.object = []
  }

  private mutating func beginList() {
    place.hasSplit = true
    outer.append(place)
    place = Place(isList: true, around: place.around + [place.object + Array("[]}".utf8)])
  }

  private mutating func endList() {
    guard let around = outer.popLast() else { return place.isList = false }
    place = around
    // The object goes on without the elements.
    for byte in "[]".utf8 { place.keep(byte) }
  }
}
