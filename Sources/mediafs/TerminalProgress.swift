import Base
import Control

/// Shows the progress of a fetch. A terminal gets a few lines that are redrawn: the files in flight and the total.
/// Other output gets a line for each finished file, and a line about the total every ten seconds.
final class TerminalProgress {
  /// Files shown at once: as many as fit a small terminal with a prompt.
  private static let rows = 8
  private static let reportEvery = 10.0

  private let terminal: Terminal
  private var drawn = 0
  private var lastReport = Instant.now
  private var busy: [FetchProgress] = []

  init(_ terminal: Terminal) { self.terminal = terminal }

  /// Shows the next report.
  func show(_ report: FetchReport) {
    erase()
    for file in report.changes where file.isOver { over(file) }
    busy = report.changes.filter { !$0.isOver }
    if terminal.isInteractive {
      if !report.isOver { draw(report) }
    } else if Instant.now.seconds(since: lastReport) >= Self.reportEvery, !report.isOver {
      lastReport = .now
      terminal.line(whole(report))
    }
    terminal.flush()
  }

  /// Writes the line for a finished file: that it is complete, or why it is not.
  private func over(_ file: FetchProgress) {
    switch file.state {
    case .complete:
      let path = TerminalText.plain(file.path)
      terminal.line("complete  \(TerminalText.padded(TerminalText.size(file.stored), 9, right: true))  \(path)")
    case .modified: complain(file, file.error ?? "you changed the copy, and mediafs keeps it")
    case .failed, .partial, .remote: complain(file, file.error ?? "no reason is known")
    }
  }

  private func complain(_ file: FetchProgress, _ problem: String) {
    terminal.flush()
    OptionParser.complain("\(file.path): \(problem)" + (file.advice.map { " (\($0))" } ?? ""))
  }

  private func draw(_ report: FetchReport) {
    let columns = terminal.columns
    var lines = busy.prefix(Self.rows).map { file in
      bar(
        TerminalText.plain(file.path), file.stored, file.size, file.rate, columns,
        note: TerminalText.holdUp(file).map(TerminalText.plain))
    }
    if busy.count > Self.rows { lines.append("… and \(busy.count - Self.rows) more") }
    // The sum of the sizes is the total only if every size is known.
    let size = report.unknownSizes == 0 ? report.size : nil
    let name = "\(report.complete + report.failed) of \(TerminalText.count(Int64(report.files), "file"))"
    lines.append(bar(name, report.stored, size, report.rate, columns, note: size == nil ? Self.left(report) : nil))
    for line in lines { terminal.line(TerminalText.fitted(line, columns - 1)) }
    drawn = lines.count
  }

  /// Moves the cursor up to the first drawn line and clears from there (ECMA-48: CPL, ED).
  private func erase() {
    if drawn > 0 { terminal.raw("\u{1B}[\(drawn)F\u{1B}[J") }
    drawn = 0
  }

  /// `name  [#####.....]  42%  12.0 MiB / 28.5 MiB  1.60 MiB/s  10s`
  private func bar(
    _ name: String, _ stored: Int64, _ size: Int64?, _ rate: Double, _ columns: Int, note: String?
  ) -> String {
    let percent = TerminalText.percent(stored, of: size)
    var numbers = percent.map { TerminalText.padded("\($0)%", 4, right: true) } ?? "   ?"
    numbers += "  " + TerminalText.padded(amount(stored, size), 21)
    numbers += "  " + TerminalText.padded(TerminalText.rate(rate), 11)
    numbers += "  " + TerminalText.padded(note ?? remaining(stored, size, rate), 7)
    let width = min(20, max(0, columns - TerminalText.width(numbers) - 22))
    let filled = (percent ?? 0) * width / 100
    let cells = String(repeating: "#", count: filled) + String(repeating: ".", count: width - filled)
    let room = max(8, columns - TerminalText.width(numbers) - width - 6)
    let label = TerminalText.padded(TerminalText.fitted(name, room), room)
    return label + (width > 0 ? " [\(cells)] " : " ") + numbers
  }

  /// The total in one line, for output that is not a terminal.
  private func whole(_ report: FetchReport) -> String {
    let size = report.unknownSizes == 0 ? report.size : nil
    var parts = [
      "\(report.complete + report.failed) of \(TerminalText.count(Int64(report.files), "file"))",
      amount(report.stored, size), TerminalText.rate(report.rate), Self.left(report),
    ]
    if report.rate < 1, let first = busy.first, let why = TerminalText.holdUp(first) {
      parts.append(TerminalText.plain("\(first.path): \(why)"))
    }
    return parts.filter { !$0.isEmpty }.joined(separator: ", ")
  }

  /// How long the rest takes at the present rate: `10s left`. While sizes are unknown that is the least:
  /// `10s left at least, 2 sizes unknown`. Empty when nothing is known.
  static func left(_ report: FetchReport) -> String {
    let unknown = report.unknownSizes > 0 ? TerminalText.count(Int64(report.unknownSizes), "size") + " unknown" : ""
    guard report.size > report.stored, report.rate >= 1 else { return unknown }
    let left = TerminalText.duration(Double(report.size - report.stored) / report.rate) + " left"
    return unknown.isEmpty ? left : "\(left) at least, \(unknown)"
  }

  private func amount(_ stored: Int64, _ size: Int64?) -> String {
    "\(TerminalText.size(stored)) / \(size.map(TerminalText.size) ?? "?")"
  }

  private func remaining(_ stored: Int64, _ size: Int64?, _ rate: Double) -> String {
    guard let size, size > stored, rate >= 1 else { return "" }
    return TerminalText.duration(Double(size - stored) / rate)
  }
}
