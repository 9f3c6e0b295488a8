import Control
import Screen

/// What of a file is stored, and where it is read, in a row of cells.
struct TopBar {
  /// How much of a cell is stored.
  enum Cell: Equatable { case missing, part, stored }

  private(set) var cells: [Cell]
  /// The cells in which the readers are; true where one waits.
  private(set) var readers: [Int: Bool] = [:]

  /// Answers are hostile: ranges may lie anywhere and overlap. More of them than a bar shows are not looked at.
  init(_ file: FileStatus, cells count: Int) {
    cells = [Cell](repeating: .missing, count: max(0, count))
    guard count > 0 else { return }
    guard let size = file.size, size > 0 else {
      if file.state == .complete { cells = [Cell](repeating: .stored, count: count) }
      return
    }
    let scale = Double(count) / Double(size)
    var covered = [Double](repeating: 0, count: count)
    for range in file.ranges.prefix(4096) where range.count == 2 {
      let (start, end) = (min(max(range[0], 0), size), min(max(range[1], 0), size))
      guard start < end else { continue }
      let (low, high) = (Double(start) * scale, Double(end) * scale)
      for index in min(Int(low), count - 1)...min(Int(high), count - 1) {
        covered[index] += max(0, min(high, Double(index + 1)) - max(low, Double(index)))
      }
    }
    for (index, part) in covered.enumerated() where part > 0 { cells[index] = part > 0.999 ? .stored : .part }
    for reader in file.readers ?? [] where reader.position >= 0 {
      let index = min(Int(Double(min(reader.position, size)) * scale), count - 1)
      readers[index] = readers[index] == true || reader.waited != nil
    }
  }

  /// The cells as text; neighbours of one style together.
  func spans(_ text: TopText, isDim: Bool) -> [Span] {
    var spans: [Span] = []
    for (index, cell) in cells.enumerated() {
      let span: Span
      if let waits = readers[index] {
        span = Span(text.bar.reader, Style(waits ? .red : .yellow, bold: true))
      } else {
        switch cell {
        case .stored: span = Span(text.bar.stored, Style(isDim ? .normal : .green))
        case .part: span = Span(text.bar.part, Style(isDim ? .normal : .green))
        case .missing: span = Span(text.bar.missing, .dim)
        }
      }
      if let last = spans.last, last.style == span.style {
        spans[spans.count - 1].text += span.text
      } else {
        spans.append(span)
      }
    }
    return spans
  }
}
