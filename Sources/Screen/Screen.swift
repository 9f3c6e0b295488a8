import Base
import CCurses
import CSystem
import Glibc

/// The whole terminal, through ncursesw. One thread, the main one, makes and uses it; the signals that it is to outlive
/// are blocked in all threads (``ScreenSignals``).
package final class Screen {
  /// Why there is no screen.
  package struct Failure: Error, Sendable {
    package let message: String
  }

  private let hasColors: Bool
  private var isShown = true

  /// Takes the terminal at the standard input and output over. `colors`: whether to use them where it has them.
  package init(colors: Bool) throws(Failure) {
    guard isatty(STDIN_FILENO) == 1, isatty(STDOUT_FILENO) == 1, csystem_note_terminal() == 0 else {
      throw Failure(message: "the standard input and output are no terminal")
    }
    let kind = getenv("TERM").map { String(cString: $0) } ?? ""
    // newterm(3) would write its own words where the description lacks what it needs.
    guard !kind.isEmpty, kind != "dumb" else {
      throw Failure(message: kind.isEmpty ? "TERM is not set" : "the terminal \"\(kind)\" cannot move its cursor")
    }
    csystem_give_stack()
    guard ccurses_begin() != 0 else {
      throw Failure(message: "the terminal \"\(kind)\" is not known here, or cannot move its cursor")
    }
    hasColors = colors && ccurses_begin_colors() != 0
    let farewell = ["sgr0", "rmkx", "cnorm", "rmcup"].flatMap(Self.sequence)
    farewell.withUnsafeBytes { bytes in
      csystem_guard_terminal(bytes.bindMemory(to: CChar.self).baseAddress, bytes.count)
    }
  }

  deinit { end() }

  /// A string of the terminal's description, without the delays that only terminals of old need.
  private static func sequence(_ name: String) -> [UInt8] {
    guard let found = ccurses_string(name) else { return [] }
    var bytes: [UInt8] = []
    var rest = Array(UnsafeBufferPointer(start: found, count: strlen(found))).map { UInt8(bitPattern: $0) }[...]
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "$"), rest.first == UInt8(ascii: "<"), let end = rest.firstIndex(of: UInt8(ascii: ">")) {
        rest = rest[(end + 1)...]
      } else {
        bytes.append(byte)
      }
    }
    return bytes
  }

  /// Gives the terminal back as it was. A second call does nothing.
  package func end() {
    if isShown { ccurses_end() }
    isShown = false
  }

  /// Gives the terminal back, runs `body`, and takes it over again.
  package func leave(_ body: () -> Void) {
    ccurses_end()
    body()
    takeOver()
  }

  /// Sets the terminal's modes anew, takes its size, and draws all of it at the next ``draw(_:)``.
  package func takeOver() {
    ccurses_resume()
    measure()
  }

  /// Takes the terminal's present size.
  package func measure() {
    var size = winsize()
    guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_row > 0, size.ws_col > 0 else { return }
    ccurses_resize(Int32(size.ws_row), Int32(size.ws_col))
  }

  package var rows: Int { Int(ccurses_rows()) }
  package var columns: Int { Int(ccurses_columns()) }

  /// Shows these lines, from the top. ncurses sends what has changed, at once.
  package func draw(_ lines: [[Span]]) {
    ccurses_erase()
    for (row, line) in lines.prefix(rows).enumerated() {
      var column = 0
      for span in line {
        let text = span.text.unicodeScalars.map { wchar_t(bitPattern: $0.value) }
        var style: UInt32 = 0
        if span.style.isBold { style |= UInt32(ccurses_bold) }
        if span.style.isDim { style |= UInt32(ccurses_dim) }
        if span.style.isReverse { style |= UInt32(ccurses_reverse) }
        ccurses_put(
          Int32(row), Int32(column), text, Int32(text.count), style, hasColors ? span.style.color.rawValue : 0)
        column += span.text.unicodeScalars.reduce(0) { $0 + (Characters.width($1) ?? 0) }
      }
    }
    ccurses_show()
  }

  /// The keys that were typed since the last call.
  package func keys() -> [Key] {
    var keys: [Key] = []
    var character: UInt32 = 0
    while keys.count < 256 {
      switch Int(ccurses_key(&character)) {
      case Int(ccurses_no_key): return keys
      case Int(ccurses_character): keys.append(Unicode.Scalar(character).map(Key.character) ?? .other)
      case Int(ccurses_up): keys.append(.up)
      case Int(ccurses_down): keys.append(.down)
      case Int(ccurses_page_up): keys.append(.pageUp)
      case Int(ccurses_page_down): keys.append(.pageDown)
      case Int(ccurses_home): keys.append(.home)
      case Int(ccurses_end_key): keys.append(.end)
      case Int(ccurses_enter): keys.append(.enter)
      case Int(ccurses_backspace): keys.append(.backspace)
      default: keys.append(.other)
      }
    }
    return keys
  }
}
