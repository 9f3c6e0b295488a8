import Control
import Glibc
import Server

/// Formats numbers, times and names for people.
enum TerminalText {
  /// Bytes with three digits in binary units: `0 B`, `999 B`, `1.50 KiB`, `48.0 MiB`.
  static func size(_ bytes: Int64) -> String { ByteSize.shown(bytes) }

  /// A rate: `1.60 MiB/s`; empty when nothing arrives.
  static func rate(_ bytesPerSecond: Double) -> String {
    guard bytesPerSecond >= 0.5, bytesPerSecond < 1e18 else { return "" }
    return size(Int64(bytesPerSecond.rounded())) + "/s"
  }

  /// The value of an option as people read it: `12.0 GiB`, `1.00 MiB/s`, `1h00m`. What is no plain number stays.
  static func setting(_ name: String, _ value: String) -> String {
    let readable: String? =
      switch name {
      case "max-size", "min-free": Int64(value).map(size)
      case "limit-rate": Int64(value).map { size($0) + "/s" }
      case "max-age": Double(value).map(duration)
      default: nil
      }
    return readable ?? value
  }

  /// A duration in seconds: `9s`, `2m05s`, `3h20m`, `4d02h`.
  static func duration(_ seconds: Double) -> String {
    guard seconds.isFinite, seconds < 1e9 else { return "?" }
    let whole = Int(max(seconds, 0).rounded(.up))
    func two(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
    switch whole {
    case ..<60: return "\(whole)s"
    case ..<3600: return "\(whole / 60)m\(two(whole % 60))s"
    case ..<86400: return "\(whole / 3600)h\(two(whole / 60 % 60))m"
    default: return "\(whole / 86400)d\(two(whole / 3600 % 24))h"
    }
  }

  /// A place in a film: `0:12`, `43:10`, `1:02:03`. Rounded down, or up, to whole seconds.
  static func place(_ seconds: Double, roundedUp: Bool = false) -> String {
    guard seconds.isFinite, seconds < 1e9 else { return "?" }
    let whole = Int(max(seconds, 0).rounded(roundedUp ? .up : .down))
    func two(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
    let (hours, minutes) = (whole / 3600, whole / 60 % 60)
    return (hours > 0 ? "\(hours):\(two(minutes))" : "\(minutes)") + ":" + two(whole % 60)
  }

  /// The seconds that such a place means, with hours and minutes or without: `12:30`, `750`, `12.5`; nil if it is none.
  static func seconds(ofPlace text: String) -> Double? {
    let parts = text.split(separator: ":", omittingEmptySubsequences: false)
    guard (1...3).contains(parts.count), parts.allSatisfy({ !$0.isEmpty }) else { return nil }
    var seconds = 0.0
    for (index, part) in parts.enumerated() {
      let isLast = index == parts.count - 1
      guard part.utf8.allSatisfy({ (0x30...0x39).contains($0) || (isLast && $0 == 0x2E) }), let number = Double(part),
        index == 0 || number < 60
      else { return nil }
      seconds = seconds * 60 + number
    }
    return seconds < 1e9 ? seconds : nil
  }

  /// How much of `size` is `stored`, rounded down so that 100% means all; nil for an unknown or empty size.
  static func percent(_ stored: Int64, of size: Int64?) -> Int? {
    guard let size, size > 0 else { return nil }
    return Int((Double(min(max(stored, 0), size)) / Double(size) * 100).rounded(.down))
  }

  /// What a file waits for.
  static func wait(_ reason: FileWait, until: Int64?) -> String {
    switch reason {
    case .reader: return "a reader (no program asks for the rest of it now)"
    case .line: return "the line (downloads for other readers go first, or --limit-rate is reached)"
    case .turn: return "its turn (mediafs downloads other files first)"
    case .space: return "disk space"
    case .resume: return "you (its downloads are paused)"
    case .origin: return "the origin" + (until.map { ", until \(timeOfDay($0))" } ?? "")
    }
  }

  /// An error with its age: `no such host (2m05s ago)`.
  static func error(_ message: String, age: Int64?) -> String {
    message + (age.map { " (\(duration(Double($0))) ago)" } ?? "")
  }

  /// Why no data of a file arrives: its error, and what it waits for; nil for neither.
  static func holdUp(_ file: FetchProgress) -> String? {
    let parts = [
      file.error.map { error($0, age: file.errorAge) },
      file.waitsFor.map { "it waits for \(wait($0, until: file.waitsUntil))" },
    ].compactMap { $0 }
    return parts.isEmpty ? nil : parts.joined(separator: "; ")
  }

  /// `14:05`, or `14:05:07`, in the local time zone.
  static func timeOfDay(_ seconds: Int64, seconds withSeconds: Bool = false) -> String {
    var time = time_t(seconds)
    var parts = tm()
    guard localtime_r(&time, &parts) != nil else { return "?" }
    func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
    return "\(two(parts.tm_hour)):\(two(parts.tm_min))" + (withSeconds ? ":\(two(parts.tm_sec))" : "")
  }

  /// `1 file`, `2 files`.
  static func count(_ number: Int64, _ one: String, _ many: String? = nil) -> String {
    "\(number) \(number == 1 ? one : many ?? one + "s")"
  }

  /// A name that is safe to print on a terminal. Control characters, and characters that change the writing direction,
  /// become `\u{…}`.
  static func plain(_ text: String) -> String {
    if isPrintableASCII(text) || !text.unicodeScalars.contains(where: isControl) { return text }
    var result = ""
    for scalar in text.unicodeScalars {
      if isControl(scalar) {
        result += "\\u{\(String(scalar.value, radix: 16))}"
      } else {
        result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  private static func isControl(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .control, .lineSeparator, .paragraphSeparator, .surrogate: return true
    case .format: return scalar.value != 0x200D  // the joiner is part of many emoji
    default: return false
    }
  }

  /// Most text is printable ASCII, and this check is the fastest.
  private static func isPrintableASCII(_ text: String) -> Bool { text.utf8.allSatisfy { 0x20..<0x7F ~= $0 } }

  /// How many columns `text` takes on a terminal.
  static func width(_ text: String) -> Int {
    isPrintableASCII(text) ? text.utf8.count : text.reduce(0) { $0 + width($1) }
  }

  /// Characters in the wide blocks of Unicode's EastAsianWidth.txt, and emoji, take two columns. Combining marks are
  /// part of a Character and take none.
  private static func width(_ character: Character) -> Int {
    guard let first = character.unicodeScalars.first else { return 0 }
    switch first.value {
    case 0x1100...0x115F, 0x2E80...0x303E, 0x3041...0xA4CF, 0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F,
      0xFF00...0xFF60, 0xFFE0...0xFFE6, 0x1F300...0x1F64F, 0x1F900...0x1F9FF, 0x20000...0x3FFFD:
      return 2
    default: return 1
    }
  }

  /// Shortens `text` in the middle to at most `columns`, which keeps the start of a path and its extension.
  static func fitted(_ text: String, _ columns: Int) -> String {
    guard width(text) > columns else { return text }
    guard columns > 1 else { return columns == 1 ? "…" : "" }
    var head = ""
    var tail = ""
    var left = columns - 1
    var front = text[...]
    var fromFront = true
    while let next = fromFront ? front.first : front.last, width(next) <= left {
      left -= width(next)
      if fromFront {
        head.append(next)
        front.removeFirst()
      } else {
        tail = String(next) + tail
        front.removeLast()
      }
      fromFront.toggle()
    }
    return head + "…" + tail
  }

  /// Pads `text` to `columns` with spaces after it, or before it with `right`.
  static func padded(_ text: String, _ columns: Int, right: Bool = false) -> String {
    let fill = String(repeating: " ", count: max(0, columns - width(text)))
    return right ? fill + text : text + fill
  }
}
