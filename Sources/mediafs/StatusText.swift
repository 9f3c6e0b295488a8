import Control
import Glibc
import Storing

/// What `mediafs status` prints beside the list of files: where a mount keeps what, its limits, its lines, and the
/// story of a file.
enum StatusText {
  // MARK: - A mount

  /// Where the mount keeps what, and its limits. Without a server that tells, what the record of the mount says.
  static func mount(_ facts: MountFacts?, _ record: MountRecord) -> [String] {
    var facts = facts
    if facts == nil, !record.store.isEmpty {
      facts = MountFacts(
        store: record.store, library: record.library, list: record.manifest == "-" ? nil : record.manifest,
        log: "\(record.store)/mediafs.log, or the file of --log-file")
    }
    guard let facts else { return [] }
    var rows = [
      ("store", facts.store), ("library", facts.library), ("list", facts.list ?? "standard input"),
    ]
    if let problem = facts.listProblem { rows.append(("!", problem)) }
    rows.append(("log", facts.log ?? "standard error"))
    if let metrics = facts.metrics { rows.append(("metrics", metrics)) }
    if let held = facts.held {
      let copies = facts.copies.flatMap { $0 > 0 ? ", \(TerminalText.size($0)) of it in complete files" : nil } ?? ""
      rows.append(("holds", TerminalText.size(held) + copies))
    }
    if let full = facts.full { rows.append(("full", full)) }
    if let share = facts.share { rows.append(("shares", share)) }
    let shown = facts.settings.filter { $0.source != .default || $0.name == "max-size" || $0.name == "min-free" }
    if !shown.isEmpty { rows.append(("limits", shown.map(setting).joined(separator: ", "))) }
    return rows.map { row($0, $1) }
  }

  /// The limits that apply to a file of these hosts: what was set for a host goes before what holds for the mount.
  private static func limits(_ hosts: [String], _ facts: MountFacts?) -> String? {
    let limits = (facts?.settings ?? []).filter { setting in
      ["limit-rate", "max-connections", "max-size"].contains(setting.name) && setting.value != nil
        && setting.host.map(hosts.contains) ?? true
    }
    return limits.isEmpty ? nil : limits.map(setting).joined(separator: ", ")
  }

  private static func row(_ name: String, _ text: String) -> String {
    "  \(TerminalText.padded(name + ":", 9))\(TerminalText.plain(text))"
  }

  /// `--limit-rate 1.00 MiB/s`, `--max-size 12.0 GiB (default)`.
  private static func setting(_ setting: MountFacts.Setting) -> String {
    let value = setting.value.map { TerminalText.setting(setting.name, $0) } ?? "none"
    let source =
      switch setting.source {
      case .option: ""
      case .default: " (default)"
      case .set: setting.host.map { " (set for \($0))" } ?? " (set)"
      }
    return "--\(setting.name) \(value)\(source)"
  }

  /// The lines, the busiest first: at most so many, and how many more there are.
  static func lines(_ lines: [LineStatus], most: Int = 8) -> [String] {
    var rows = lines.prefix(most).map { row("line", line($0)) }
    if lines.count > most {
      rows.append("  and \(TerminalText.count(Int64(lines.count - most), "line")) more (--json)")
    }
    return rows
  }

  private static func line(_ line: LineStatus) -> String {
    var parts = [line.transfers > 0 || line.rate >= 1 ? TerminalText.rate(line.rate) : "idle"]
    if parts[0].isEmpty { parts[0] = "nothing arrives" }
    parts.append("\(TerminalText.count(Int64(line.connections), "connection")) of \(line.limit)")
    if let http = line.http { parts.append("HTTP/\(http == 2 ? "2" : "\(http)")") }
    if let trip = line.roundTrip, trip.isFinite, trip >= 0, trip < 1e6 {
      parts.append("first byte after \(Int((trip * 1000).rounded())) ms")
    }
    if line.errors > 0 { parts.append(TerminalText.count(line.errors, "error")) }
    if let error = line.error { parts.append("the last: \(TerminalText.error(error, age: line.errorAge))") }
    if let until = line.waitsUntil { parts.append("asked again at \(TerminalText.timeOfDay(until))") }
    return "\(line.host): \(parts.joined(separator: ", "))"
  }

  // MARK: - A file

  /// The story of a file, a line for each thing that is known. `facts`: of its mount.
  static func story(_ file: FileStatus, _ facts: MountFacts?) -> [String] {
    guard let story = file.story else { return [] }
    var rows: [(String, String)] = [("from", origins(story))]
    if let version = version(story) { rows.append(("version", version)) }
    if let opens = file.opens, opens > 0, file.readers?.isEmpty ?? true {
      rows.append(("read by", "nobody now; \(TerminalText.count(opens, "handle")) open"))
    }
    for reader in file.readers ?? [] { rows.append(("read by", text(reader))) }
    if let fetched = story.fetched { rows.append(("fetched", text(fetched))) }
    if let leases = story.leases {
      let ranges = leases.map { "\(TerminalText.size($0[0])) to \(TerminalText.size($0[1]))" }
      rows.append(("lease", "\(ranges.joined(separator: ", ")), fetched for all that share"))
    }
    if let partial = story.partial { rows.append(("lies in", partial)) }
    if let copy = story.copy { rows.append(("lies in", copy)) }
    // The first one may be the error that is shown already.
    let past = story.errors.filter { $0.message != file.error }
    if !past.isEmpty {
      rows.append(("before", past.map { TerminalText.error($0.message, age: $0.age) }.joined(separator: "; ")))
    }
    if let limits = limits(story.origins.map(\.host), facts) { rows.append(("limits", limits)) }
    rows.append(("next", next(file, story)))
    return rows.map { "          \($0): \(TerminalText.plain($1))" }
  }

  private static func origins(_ story: FileStory) -> String {
    let hosts = story.origins.map { origin in
      let isNext = origin.asked && story.origins.count > 1
      return origin.host + (isNext ? " (asked now)" : "") + (origin.refusal.map { " (given up: \($0))" } ?? "")
    }
    return hosts.joined(separator: ", ") + ", line \(story.line) of the list"
  }

  private static func version(_ story: FileStory) -> String? {
    var parts: [String] = []
    if let type = story.type { parts.append(type) }
    if let etag = story.etag { parts.append("ETag \(etag)") }
    if let modified = story.lastModified { parts.append("modified \(date(modified))") }
    if story.etag == nil, story.lastModified == nil, story.type != nil { parts.append("no ETag, no Last-Modified") }
    if let serves = story.servesRanges { parts.append(serves ? "serves ranges" : "serves no ranges") }
    if let age = story.checkedAge { parts.append("seen at the origin \(TerminalText.duration(Double(age))) ago") }
    return parts.isEmpty ? nil : parts.joined(separator: ", ")
  }

  private static func text(_ reader: ReaderStatus) -> String {
    var text = reader.process ?? "a program"
    if let pid = reader.pid { text += " (\(pid))" }
    text += " at \(TerminalText.size(reader.position))"
    let pace = TerminalText.rate(reader.pace)
    if !pace.isEmpty { text += ", \(pace)" }
    if let waited = reader.waited, waited.isFinite {
      text += ", has waited for \(TerminalText.duration(waited))"
      if let reason = reader.waitsFor { text += ", for \(TerminalText.wait(reason, until: nil))" }
    }
    return text
  }

  private static func text(_ fetched: FileStory.Fetched) -> String {
    let amounts = [
      (fetched.reader, "for readers"), (fetched.scan, "for scans"), (fetched.continuation, "in the background"),
    ].filter { $0.0 > 0 }.map { "\(TerminalText.size($0.0)) \($0.1)" }
    if amounts.isEmpty { return "nothing since the server started" }
    let sources = fetched.sources.map { "\(TerminalText.size($0.bytes)) from \($0.host)" }
    return amounts.joined(separator: ", ") + "; " + sources.joined(separator: ", ")
  }

  /// What comes next. What it waits for is told beside that.
  private static func next(_ file: FileStatus, _ story: FileStory) -> String {
    switch file.state {
    case .complete: return "nothing: it is complete"
    case .modified: return "nothing: the copy is yours"
    case .failed: return "nothing, until a program opens it or 'mediafs fetch' names it"
    case .remote, .partial: break
    }
    if file.size.map({ file.stored >= $0 }) ?? false { return "it is verified, and placed in the library" }
    if file.downloads?.word == "pause" { return "what programs read of it: its downloads are paused" }
    if file.rule?.word == "online" { return "what programs read of it, through memory" }
    let place = missing(file).map { ", from \(TerminalText.size($0)) on" } ?? ""
    if file.rule?.word == "keep" { return "its rest\(place), because a rule keeps it" }
    switch story.goesOn {
    case .fetch: return "its rest\(place), because you fetch it"
    case .played: return "its rest\(place), because it was played (--continue)"
    case nil: return "what programs read of it"
    }
  }

  /// The first missing byte behind the place where it is read, or in all.
  private static func missing(_ file: FileStatus) -> Int64? {
    guard let size = file.size else { return nil }
    func gap(from start: Int64) -> Int64? {
      var place = start
      for range in file.ranges where range.count == 2 && range[0] <= place && place < range[1] { place = range[1] }
      return place < size ? place : nil
    }
    return (file.readers?.map(\.position).min()).flatMap(gap) ?? gap(from: 0)
  }

  /// `2026-01-31 14:05`, in the local time zone.
  private static func date(_ seconds: Int64) -> String {
    var time = time_t(seconds)
    var parts = tm()
    var text = [CChar](repeating: 0, count: 32)
    guard localtime_r(&time, &parts) != nil else { return "?" }
    let count = strftime(&text, text.count, "%Y-%m-%d %H:%M", &parts)
    return String(decoding: text[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}
