/// A JSON object of a list, to be decoded by itself.
struct JSONValue {
  /// Its bytes; none for a `null` in the place of an object.
  var bytes: [UInt8]
  /// The line where it begins.
  var line: Int
  /// Whether it is longer than ``JSONSplitter/maximumBytes``; it has no bytes then.
  var isTooLarge = false
  /// The object around the list `entries` that it is an element of, as far as it was read before; nil for none.
  var around: [UInt8]?
}

/// Splits JSON that comes in pieces into objects: those of a list, those that follow each other (one a line), and those
/// of the list `entries` in such an object. Only one object is in memory at a time.
///
/// It knows strings and brackets; what lies between is checked when an object is decoded.
struct JSONSplitter {
  /// The most bytes of an object. While it is decoded, the decoder takes up to 80 times as much.
  static let maximumBytes = 4 << 20

  /// Why the rest cannot be read.
  struct Fault: Error {
    var line: Int
    var reason: String
  }

  /// Objects that are complete.
  var values: [JSONValue] = []
  private var line = 1
  private var isInString = false
  private var isEscaped = false
  /// The depth of brackets, those of lists that are split included.
  private var depth = 0
  /// The depth of the elements of the list that is split; 0 for none.
  private var split = 0
  /// Whether a list of the object at the top was split. A second one is kept: each costs a copy of the object.
  private var hasSplit = false
  /// The object at the top, and the element that is being read.
  private var object: [UInt8] = []
  private var objectLine = 1
  /// Whether the object at the top, or the element, is too large to be kept.
  private var isTooLarge = (object: false, element: false)
  private var element: [UInt8] = []
  private var elementLine = 1
  /// Where the last string of the object at the top begins, at its own depth.
  private var key = 0
  /// The object at the top as its elements get it: all of them share it.
  private var around: [UInt8]?
  /// How many bytes of a `null` have been read.
  private var ofNull = 0

  /// The end. Throws if an object has none.
  func finish() throws(Fault) {
    if depth > 0 || isInString || ofNull > 0 { throw Fault(line: line, reason: "it ends too early") }
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
      return keep(byte)
    }
    if depth == split {
      // Between objects: of the top, or of a list that is split.
      if ofNull > 0 || (byte == 0x6E && split > 0) { return try readNull(byte) }
      switch byte {
      case 0x20, 0x09, 0x0A, 0x0D, 0x2C, 0xEF, 0xBB, 0xBF: return  // blanks, a comma, a byte order mark
      case 0x7B: break
      case 0x5B where depth == 0: (depth, split) = (1, 1); return
      case 0x5D where split > 0: return endList()
      default: throw Fault(line: line, reason: "something other than an object stands where an item should")
      }
      if split == 0 {
        (object, objectLine, hasSplit, isTooLarge.object) = ([], line, false, false)
      } else {
        (element, elementLine, isTooLarge.element) = ([], line, false)
      }
    }
    switch byte {
    case 0x22:
      isInString = true
      if split == 0, depth == 1 { key = object.count }
    case 0x5B where split == 0 && depth == 1 && !hasSplit && isAtEntries:
      (depth, split) = (2, 2)
      hasSplit = true
      around = object + Array("[]}".utf8)
      return
    case 0x5B, 0x7B: depth += 1
    case 0x5D, 0x7D:
      depth -= 1
      keep(byte)
      if depth == split { endObject() }
      return
    default: break
    }
    keep(byte)
  }

  private mutating func readNull(_ byte: UInt8) throws(Fault) {
    guard byte == Array("null".utf8)[ofNull] else { throw Fault(line: line, reason: "it is no valid JSON") }
    ofNull = ofNull == 3 ? 0 : ofNull + 1
    if ofNull == 0 { values.append(JSONValue(bytes: [], line: line)) }
  }

  private mutating func keep(_ byte: UInt8) {
    if split == 0 {
      if object.count < Self.maximumBytes { object.append(byte) } else { isTooLarge.object = true }
    } else {
      if element.count < Self.maximumBytes { element.append(byte) } else { isTooLarge.element = true }
    }
  }

  /// Whether the object at the top goes on with the value of `entries`.
  private var isAtEntries: Bool {
    guard key < object.count, object.count - key < 64 else { return false }
    return object[key...].filter { $0 > 0x20 }.elementsEqual("\"entries\":".utf8)
  }

  private mutating func endObject() {
    if split == 0 {
      values.append(JSONValue(bytes: isTooLarge.object ? [] : object, line: objectLine, isTooLarge: isTooLarge.object))
      object = []
    } else {
      values.append(
        JSONValue(
          bytes: isTooLarge.element ? [] : element, line: elementLine, isTooLarge: isTooLarge.element, around: around))
      element = []
    }
  }

  private mutating func endList() {
    around = nil
    if split == 2 {
      // The object around the list goes on without it.
      object.append(contentsOf: "[]".utf8)
      (depth, split) = (1, 0)
    } else {
      (depth, split) = (0, 0)
    }
  }
}
