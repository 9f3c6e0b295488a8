import Control
import Screen

/// The table of the lines.
struct LineRows {
  let columns: Int
  let text: TopText

  /// The heading and the busiest lines, in so many rows.
  func rows(_ lines: [LineStatus], _ count: Int) -> [[Span]] {
    let shown = lines.prefix(max(0, count - 1))
    let more = lines.count - shown.count
    var result = [row("LINE" + (more > 0 ? " (\(more) more)" : ""), "RATE", "CONN", "LATENCY", "ERRORS", "", .dim)]
    for line in shown { result.append(row(line)) }
    return result
  }

  private func row(_ line: LineStatus) -> [Span] {
    var note = ""
    if let until = line.waitsUntil { note = "no answer, next try at \(TerminalText.timeOfDay(until))" }
    if note.isEmpty, let error = line.error {
      note = text.safe(TerminalText.error(text.reason(error), age: line.errorAge))
    }
    let isBad = line.waitsUntil != nil
    let rate = TerminalText.rate(line.rate)
    return row(
      text.safe(line.host), rate.isEmpty ? text.dashes : rate, "\(line.transfers)/\(line.connections)",
      line.roundTrip.map(Self.latency) ?? "?", "\(line.errors)", note, .plain, isBad ? Style(.red, bold: true) : .dim,
      hasErrors: line.errors > 0)
  }

  /// Seconds to a first byte: `38 ms`, `1.2 s`.
  static func latency(_ seconds: Double) -> String {
    guard seconds.isFinite, seconds >= 0, seconds < 1e6 else { return "?" }
    if seconds < 0.001 { return "<1 ms" }
    if seconds < 0.9995 { return "\(Int((seconds * 1000).rounded())) ms" }
    let tenths = Int((seconds * 10).rounded())
    return seconds < 100 ? "\(tenths / 10).\(tenths % 10) s" : "\(tenths / 10) s"
  }

  private func row(
    _ host: String, _ rate: String, _ connections: String, _ latency: String, _ errors: String, _ note: String,
    _ style: Style, _ noteStyle: Style = .dim, hasErrors: Bool = false
  ) -> [Span] {
    var line = TopLine(columns, text)
    // Where the screen is narrow, what is least missed goes first.
    let fixed = 2 + 11 + 8 + 9 + 7
    let name = max(12, min(48, columns - fixed - (columns >= 110 ? 30 : 1)))
    line.add(" ", style)
    line.add(text.fit(host, name), columns: name, style)
    line.add(rate, columns: 12, right: true, style)
    line.add(connections, columns: 8, right: true, style)
    line.add(latency, columns: 9, right: true, style)
    line.add(errors, columns: 7, right: true, hasErrors ? Style(.yellow) : style)
    if line.left > 8, !note.isEmpty {
      line.add("  ")
      line.add(note, noteStyle)
    }
    return line.spans
  }
}

extension TopText {
  /// For a value that is none.
  var dashes: String { isUnicode ? "–" : "-" }
}

/// The table of the files.
struct FileRows {
  private let columns: Int
  private let text: TopText
  /// The widths of the columns; 0: it is left out.
  let name: Int
  let bar: Int
  let percent: Int
  let size: Int
  let rate: Int
  let note: Int

  init(columns: Int, text: TopText) {
    self.columns = columns
    self.text = text
    percent = columns >= 30 ? 5 : 0
    size = columns >= 96 ? 10 : 0
    rate = columns >= 50 ? 12 : 0
    let left = max(0, columns - 2 - percent - size - rate)
    note = columns >= 70 ? min(60, 4 + left * 3 / 10) : 0
    bar = columns >= 40 ? min(160, max((left - note) * 2 / 5, left - note - 80)) : 0
    name = max(0, left - note - bar)
  }

  func heading(_ state: TopState) -> [Span] {
    func mark(_ word: String, _ order: TopState.Order) -> String {
      state.order == order
        ? word + (state.isReversed ? (text.isUnicode ? "▴" : "^") : (text.isUnicode ? "▾" : "v")) : word
    }
    var line = TopLine(columns, text)
    line.add("  ", .dim)
    line.add(mark("FILE", .name), columns: name, .dim)
    if bar > 0 { line.add(" " + mark("STORED", .stored), columns: bar, .dim) }
    if percent > 0 { line.add("", columns: percent, .dim) }
    if size > 0 { line.add(mark("SIZE", .size), columns: size, right: true, .dim) }
    if rate > 0 { line.add(mark("RATE", .rate), columns: rate, right: true, .dim) }
    if note > 0 { line.add("  " + mark("ACTIVITY", .activity), columns: note, .dim) }
    return line.spans
  }

  func row(_ file: FileStatus, isSelected: Bool) -> [Span] {
    var line = TopLine(columns, text)
    let isIdle = TopOrder.rank(file) >= 5
    let plain = Style(bold: isSelected, dim: isIdle && !isSelected)
    line.add(isSelected ? text.pointer + " " : "  ", Style(.yellow, bold: true))
    line.add(text.path(text.safe(file.path), max(0, name - 1)), columns: name, plain)
    if bar > 0 {
      line.add(" ")
      line.add(TopBar(file, cells: bar - 2).spans(text, isDim: isIdle))
      line.add(" ")
    }
    if percent > 0 {
      let part = TerminalText.percent(file.stored, of: file.size).map { "\($0)%" } ?? ""
      line.add(part, columns: percent, right: true, plain)
    }
    if size > 0 { line.add(file.size.map(TerminalText.size) ?? "?", columns: size, right: true, plain) }
    if rate > 0 { line.add(TerminalText.rate(file.rate), columns: rate, right: true, Style(.green, bold: isSelected)) }
    if note > 0 {
      let (words, style) = activity(file)
      line.add("  ")
      line.add(text.safe(words), style)
    }
    return line.spans
  }

  /// What goes on with a file, in a few words: who reads it, or what it waits for.
  func activity(_ file: FileStatus) -> (String, Style) {
    if let readers = file.readers, let first = readers.first(where: { $0.waited != nil }) ?? readers.first {
      var words = first.process ?? first.pid.map { "process \($0)" } ?? "a reader"
      if let waited = first.waited {
        words += " waits \(TerminalText.duration(waited))"
      } else if first.pace >= 1 {
        words += " \(TerminalText.rate(first.pace))"
      }
      if readers.count > 1 { words += " +\(readers.count - 1)" }
      return (words, first.waited != nil ? Style(.red, bold: true) : Style(.yellow))
    }
    switch file.state {
    case .failed: return ("failed: \(text.reason(file.error ?? ""))", Style(.red, bold: true))
    case .modified: return ("modified", Style(.yellow))
    case .complete: return (file.opens != nil ? "complete, open" : "complete", Style(.green))
    case .remote, .partial: break
    }
    if file.transfers > 0 || file.rate >= 1024 { return ("downloads", .plain) }
    if let error = file.error, file.waitsFor == .origin { return ("retries: \(text.reason(error))", Style(.yellow)) }
    switch file.waitsFor {
    case .origin: return ("waits for the origin", Style(.yellow))
    case .space: return ("waits for space", Style(.red, bold: true))
    case .line: return ("waits for the line", .plain)
    case .turn: return ("waits for its turn", .plain)
    case .resume: return ("paused", Style(.yellow))
    case .reader: return (file.opens != nil ? "open" : "", .dim)
    case nil: return (file.stored > 0 && file.stored == file.size ? "is verified" : "downloads", .plain)
    }
  }
}

/// What is known of the selected file.
struct TopDetails {
  let text: TopText

  func lines(_ file: FileStatus) -> [[Span]] {
    var lines: [[Span]] = [[Span(text.safe(file.path), .bold), Span("  \(file.state.rawValue)", .dim)]]
    var amount = "\(TerminalText.size(file.stored)) of \(file.size.map(TerminalText.size) ?? "an unknown size") stored"
    if file.transfers > 0 {
      amount += text.dot + TerminalText.count(Int64(file.transfers), "transfer")
      let rate = TerminalText.rate(file.rate)
      if !rate.isEmpty { amount += " at \(rate)" }
      if let size = file.size, size > file.stored, file.rate >= 1 {
        amount += text.dot + TerminalText.duration((Double(size) - Double(file.stored)) / file.rate) + " for all of it"
      }
    }
    if let film = film(file) { amount += text.dot + film }
    lines.append([Span(amount)])
    for reader in file.readers ?? [] {
      lines.append([Span(text.safe(words(reader)), reader.waited != nil ? Style(.red) : .plain)])
    }
    if let error = file.error {
      lines.append([
        Span("error: ", Style(.red, bold: true)), Span(text.safe(TerminalText.error(error, age: file.errorAge))),
      ])
    }
    if let reason = file.waitsFor, reason != .reader || file.error != nil {
      lines.append([
        Span("waits for ", Style(.yellow)), Span(text.safe(TerminalText.wait(reason, until: file.waitsUntil))),
      ])
    }
    for rule in [file.rule, file.downloads].compactMap({ $0 }) {
      lines.append([
        Span("rule: ", .dim), Span(text.safe("\(rule.word) (for \(RuleCommand.shown(rule.pattern)))")),
      ])
    }
    if let advice = file.advice { lines.append([Span("to do: ", .bold), Span(text.safe(advice))]) }
    return lines
  }

  private func words(_ reader: ReaderStatus) -> String {
    var words = reader.process ?? "a program"
    words += reader.pid.map { " (\($0))" } ?? " in another PID namespace"
    words += " at \(TerminalText.size(max(0, reader.position)))"
    if let waited = reader.waited {
      words +=
        ", waits \(TerminalText.duration(waited)) for "
        + (reader.waitsFor.map { TerminalText.wait($0, until: nil) } ?? "bytes that are on the way")
    } else if reader.pace >= 1 {
      words += ", reads \(TerminalText.rate(reader.pace))"
    }
    return words
  }

  /// How long a file plays, and whether it stalls; nil if that is not known.
  private func film(_ file: FileStatus) -> String? {
    guard let duration = file.duration else { return nil }
    let length = "\(TerminalText.place(duration)) long"
    return file.state == .complete
      ? length : length + (file.holdsTo.map { ", holds to \(TerminalText.place($0))" } ?? "")
  }
}
