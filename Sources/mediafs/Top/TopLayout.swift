import Control
import Screen

/// The rows of the screen, and how many each part of it gets.
struct TopLayout {
  private let columns: Int
  private let rows: Int
  private let text: TopText
  /// The time of day, and the seconds by which words at the foot end.
  private let clock: String
  private let now: Double

  init(columns: Int, rows: Int, text: TopText, clock: String, now: Double) {
    self.columns = max(1, columns)
    self.rows = max(1, rows)
    self.text = text
    self.clock = clock
    self.now = now
  }

  /// How many rows the parts have. A small screen has files alone; the parts that tell least go first.
  struct Parts: Equatable {
    var heads = 0
    var lines = 0
    var gap = 0
    var headings = 0
    var files = 0
    var details = 0
    var foot = 0

    init(rows: Int, lines count: Int, shares: Bool = false) {
      foot = rows >= 3 ? 1 : 0
      heads = rows >= 18 && shares ? 4 : rows >= 14 ? 3 : rows >= 8 ? 2 : rows >= 2 ? 1 : 0
      headings = rows >= 6 ? 1 : 0
      if rows >= 18, count > 0 { lines = 1 + min(count, max(1, rows / 8)) }
      if rows >= 30 { gap = 1 }
      details = rows >= 40 ? 8 : rows >= 24 ? 6 : rows >= 18 ? 4 : 0
      files = rows - foot - heads - headings - lines - details - gap * (lines > 0 ? 2 : 1)
    }
  }

  /// The screen for a state: exactly as many lines as it has rows, none wider than it. `state.page` becomes the number
  /// of files that fit.
  func lines(_ state: inout TopState) -> [[Span]] {
    var screen: [[Span]]
    switch state.mode {
    case .help: screen = help()
    case .mounts: screen = choice(state)
    case .files, .filter, .question: screen = files(&state)
    }
    if screen.count > rows { screen = Array(screen.prefix(rows)) }
    while screen.count < rows { screen.append([]) }
    return screen
  }

  private func files(_ state: inout TopState) -> [[Span]] {
    let parts = Parts(rows: rows, lines: state.lines.count, shares: state.totals?.mount?.share != nil)
    if state.page != parts.files {
      state.page = parts.files
      state.scroll()
    }
    var screen: [[Span]] = Array([title(state), summary(state), stock(state), shares(state)].prefix(parts.heads))
    let gap = [[Span]](repeating: [], count: parts.gap)
    if parts.lines > 0 { screen += gap + LineRows(columns: columns, text: text).rows(state.lines, parts.lines) }
    screen += gap
    let table = FileRows(columns: columns, text: text)
    if parts.headings > 0 { screen.append(table.heading(state)) }
    var body: [[Span]] = []
    let seen = state.files.dropFirst(state.first).prefix(parts.files)
    for file in seen { body.append(table.row(file, isSelected: state.selected.map(file.isAt) ?? false)) }
    if body.isEmpty, parts.files > 0 { body.append(nothing(state)) }
    while body.count < parts.files { body.append([]) }
    screen += body
    if parts.details > 0 {
      screen.append(rule(state))
      let details = state.selectedFile.map { TopDetails(text: text).lines($0) } ?? []
      var shown = details.prefix(parts.details - 1).map { spans in
        var line = TopLine(columns, text)
        line.add(" ")
        line.add(spans)
        return line.spans
      }
      while shown.count < parts.details - 1 { shown.append([]) }
      screen += shown
    }
    if parts.foot > 0 { screen.append(foot(state)) }
    return screen
  }

  // MARK: Head

  private func title(_ state: TopState) -> [Span] {
    let right = " " + [state.server?.program, clock].compactMap { $0.map(text.safe) }.joined(separator: "  ") + " "
    let rightWidth = text.width(right)
    var line = TopLine(columns, text)
    let room = columns - rightWidth >= 20 ? columns - rightWidth : columns
    let bar = Style(bold: true, reverse: true)
    let name = text.safe(state.mountpoint)
    line.add(text.column(" mediafs top  " + text.fit(name, max(0, room - 15)), room), bar)
    if room < columns { line.add(right, Style(reverse: true)) }
    return line.filled(bar)
  }

  private func summary(_ state: TopState) -> [Span] {
    var line = TopLine(columns, text)
    line.add(" ")
    switch state.link {
    case .none:
      line.add("asking the server", .dim)
      return line.spans
    case .lost(let why):
      line.add("No server answers: ", Style(.red, bold: true))
      line.add(text.safe(why))
      return line.spans
    case .answers: break
    }
    guard let active = state.active else {
      line.add("asking the server", .dim)
      return line.spans
    }
    let readers = state.files.reduce(into: (reads: 0, waits: 0)) { sum, file in
      for reader in file.readers ?? [] {
        sum.reads += 1
        if reader.waited != nil { sum.waits += 1 }
      }
    }
    let rate = TerminalText.rate(state.rate)
    line.add("\(text.arrival) \(rate.isEmpty ? "0 B/s" : rate)", Style(rate.isEmpty ? .normal : .green, bold: true))
    line.add(text.dot + TerminalText.count(active.transfers, "transfer"))
    line.add(text.dot + TerminalText.count(active.files, "active file"))
    if readers.reads > 0 { line.add(text.dot + TerminalText.count(Int64(readers.reads), "reader")) }
    if readers.waits > 0 {
      line.add(text.dot)
      line.add("\(readers.waits) waiting", Style(.red, bold: true))
    }
    let room = min(60, line.left - 2)
    if columns >= 70, room >= 10 {
      line.add(String(repeating: " ", count: line.left - room - 1))
      line.add(graph(state.history, room), Style(.green))
    }
    return line.spans
  }

  /// The rates of late, as bars of one row each; the highest is the most of them.
  private func graph(_ history: [Double], _ cells: Int) -> String {
    let shown = history.suffix(cells)
    let most = max(shown.max() ?? 0, 1)
    let levels = text.levels
    let bars = shown.map { rate -> String in
      if rate <= 0 { return levels[0] }
      return levels[min(max(1, Int((rate / most * Double(levels.count - 1)).rounded())), levels.count - 1)]
    }
    return String(repeating: " ", count: cells - shown.count) + bars.joined()
  }

  private func stock(_ state: TopState) -> [Span] {
    var line = TopLine(columns, text)
    guard let totals = state.totals else { return [] }
    line.add(" \(TerminalText.size(totals.stored)) stored of \(TerminalText.size(totals.size))")
    line.add(text.dot + TerminalText.count(totals.files, "file"))
    for (count, name, style) in [
      (totals.failed, "failed", Style(.red, bold: true)), (totals.modified, "modified", Style(.yellow)),
      (totals.complete, "complete", Style(.green)), (totals.partial, "partial", .plain),
      (totals.remote, "remote", .plain),
    ] where count > 0 {
      line.add(text.dot)
      line.add("\(count) \(name)", style)
    }
    return line.spans
  }

  /// Through what the mount shares, how that goes, and which leases are in hand.
  private func shares(_ state: TopState) -> [Span] {
    guard let share = state.totals?.mount?.share else { return [] }
    var line = TopLine(columns, text)
    line.add(" shares ")
    line.add(text.cut(text.safe(String(share.prefix(1000))), max(0, line.left - 1)))
    return line.spans
  }

  // MARK: Between

  private func nothing(_ state: TopState) -> [Span] {
    var line = TopLine(columns, text)
    line.add("  ")
    if case .lost = state.link { return [] }
    if state.active == nil { return [] }
    if !state.filter.isEmpty {
      line.add("No file matches the filter. Esc ends it.", .dim)
    } else if state.showsAll {
      line.add("Nothing is stored yet.", .dim)
    } else {
      line.add("Nothing is read or downloaded now. Press a to see all files.", .dim)
    }
    return line.spans
  }

  private func rule(_ state: TopState) -> [Span] {
    var line = TopLine(columns, text)
    var label = ""
    if let selection = state.selection { label = " \(selection + 1) of \(state.files.count)" }
    if state.showsAll { label += state.isListedWhole ? " (all)" : " (the first \(TopState.most))" }
    if !state.filter.isEmpty { label += " (filter: \(text.safe(state.filter)))" }
    if !label.isEmpty { label += " " }
    let fill = max(0, columns - text.width(label) - 2)
    line.add(String(repeating: text.rule, count: fill), .dim)
    line.add(label, .dim)
    line.add(String(repeating: text.rule, count: 2), .dim)
    return line.spans
  }

  // MARK: Foot

  private static let keys = [
    ("f", "fetch"), ("k", "keep"), ("p", "pause"), ("c", "clear"), ("s", "sort"), ("/", "filter"),
    ("a", "all"), ("h", "help"), ("q", "quit"),
  ]

  private func foot(_ state: TopState) -> [Span] {
    var line = TopLine(columns, text)
    line.add(" ")
    switch state.mode {
    case .question(let words, _):
      // The end of the question is what must be seen.
      line.add(text.fit(text.safe(words), columns - 2), Style(.yellow, bold: true))
      return line.spans
    case .filter:
      line.add("Filter: ", .bold)
      let typed = text.safe(state.filter)
      // The end is where the person types.
      let shown = text.width(typed) > line.left - 2 ? String(typed.suffix(max(0, line.left - 2) / 2)) : typed
      line.add(shown)
      line.add(" ", .reverse)
      line.add("  Enter keeps it, Esc gives it up", .dim)
      return line.spans
    default: break
    }
    if let word = state.word(now) {
      line.add(text.safe(word.text), word.isError ? Style(.red, bold: true) : Style(.green, bold: true))
      return line.spans
    }
    for (key, name) in Self.keys {
      // A key without its name would be a riddle.
      guard line.left > text.width(key) + text.width(name) + 2 else { break }
      line.add(key, .bold)
      line.add(" \(name)  ")
    }
    return line.spans
  }

  // MARK: Other screens

  private func choice(_ state: TopState) -> [[Span]] {
    var head = TopLine(columns, text)
    head.add(" mediafs top", Style(bold: true, reverse: true))
    var screen = [
      head.filled(Style(bold: true, reverse: true)), [], [Span(text.cut("  Which mount?", columns), .bold)], [],
    ]
    let room = max(1, rows - 6)
    let first = max(0, min(state.choice - room + 1, state.mounts.count - room))
    for (index, mount) in state.mounts.enumerated().dropFirst(first).prefix(room) {
      var line = TopLine(columns, text)
      let isSelected = index == state.choice
      line.add(isSelected ? "  \(text.pointer) " : "    ", isSelected ? .bold : .plain)
      line.add(text.fit(text.safe(mount), max(0, columns - 5)), isSelected ? .bold : .plain)
      screen.append(line.spans)
    }
    while screen.count < rows - 1 { screen.append([]) }
    if rows > 4 {
      var foot = TopLine(columns, text)
      if let word = state.word(now) {
        foot.add(" " + text.safe(word.text), Style(.red, bold: true))
      } else {
        foot.add(" Enter", .bold)
        foot.add(" shows it  ")
        foot.add("q", .bold)
        foot.add(" quits")
      }
      screen = Array(screen.prefix(rows - 1)) + [foot.spans]
    }
    return screen
  }

  private func help() -> [[Span]] {
    var head = TopLine(columns, text)
    head.add(" mediafs top: keys", Style(bold: true, reverse: true))
    var screen = [head.filled(Style(bold: true, reverse: true)), []]
    let items = TopCommand.keys
    // Two columns where one would not fit.
    let isWide = columns >= 80 && items.count > rows - 4
    let perColumn = isWide ? (items.count + 1) / 2 : items.count
    for row in 0..<perColumn {
      var line = TopLine(columns, text)
      for index in isWide ? [row, row + perColumn] : [row] where index < items.count {
        let item = items[index]
        let width = isWide ? columns / 2 : columns
        line.add("  ")
        line.add(item.typed, columns: 12, .bold)
        line.add(text.cut(item.does, max(0, width - 15)), columns: max(0, width - 14))
      }
      screen.append(line.spans)
    }
    screen.append([])
    var bar = TopLine(columns, text)
    bar.add("  ")
    bar.add("A bar: ")
    bar.add(String(repeating: text.bar.stored, count: 3), Style(.green))
    bar.add(" stored  ")
    bar.add(String(repeating: text.bar.part, count: 3), Style(.green))
    bar.add(" in part  ")
    bar.add(String(repeating: text.bar.missing, count: 3), .dim)
    bar.add(" missing  ")
    bar.add(text.bar.reader, Style(.yellow, bold: true))
    bar.add(" a reader  ")
    bar.add(text.bar.reader, Style(.red, bold: true))
    bar.add(" one that waits")
    screen.append(bar.spans)
    if rows > 4 {
      var foot = TopLine(columns, text)
      foot.add(" Any key goes back.", .dim)
      screen = Array(screen.prefix(rows - 1))
      while screen.count < rows - 1 { screen.append([]) }
      screen.append(foot.spans)
    }
    return screen
  }
}
