/// How text looks. A terminal without colors shows the rest.
package struct Style: Hashable, Sendable {
  /// A color of the terminal's own palette.
  package enum Color: Int16, Sendable {
    /// That of ordinary text.
    case normal = 0
    case red, green, yellow, blue, magenta, cyan
  }

  package var color: Color
  package var isBold: Bool
  package var isDim: Bool
  package var isReverse: Bool

  package init(_ color: Color = .normal, bold: Bool = false, dim: Bool = false, reverse: Bool = false) {
    self.color = color
    isBold = bold
    isDim = dim
    isReverse = reverse
  }

  /// Ordinary text.
  package static let plain = Style()
  package static let bold = Style(bold: true)
  package static let dim = Style(dim: true)
  package static let reverse = Style(reverse: true)
}

/// Text of one style, on one line. It has printable characters only.
package struct Span: Equatable, Sendable {
  package var text: String
  package var style: Style

  package init(_ text: String, _ style: Style = .plain) {
    self.text = text
    self.style = style
  }
}

/// A key that was typed.
package enum Key: Equatable, Sendable {
  case character(Unicode.Scalar)
  case up, down, pageUp, pageDown, home, end, enter, backspace
  /// One without a use.
  case other
}
