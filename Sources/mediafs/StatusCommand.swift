import Control
import Server
import FoundationEssentials
import Storing

/// `mediafs status`: what is stored of which file, what is being fetched, what went wrong.
enum StatusCommand {
  static let usage = """
    Usage: mediafs status [MOUNTPOINT] [--json] [--all] [PATH...]

    Tells how much of each file is stored, what is being fetched and what went
    wrong: first the sums, then file by file. Asks the running server; when none
    runs, the store's catalog. Without arguments: of every mount that is remembered.

      MOUNTPOINT   the mount to ask about
      PATH         a file, or a folder for all below it: relative to the mount, or a
                   path of the file system below a mountpoint
          --all    also list the files of which nothing is stored or known. Left out
                   by default in a mount of more than 1000 files without PATHs.
          --json   one JSON object a mount, on standard output, with all files:
                   mountpoint, running, pid, totals, files[] of path, state, stored,
                   size (null: not known), ranges ([start, end) pairs), rate (bytes/s),
                   transfers, and (null: none) error, errorAge (seconds), waitsFor
                   (reader, line, turn, space or origin), waitsUntil (seconds since
                   1970) and advice
      -h, --help   show this text

    States: remote, partial, complete, failed, modified (you changed the copy; it is
    kept). Exit status: 0 done, 1 failed, 2 wrong usage.
    """

  /// Mounts with no more files than this are listed whole: it is a screenful or ten, not a flood.
  private static let listedWhole: Int64 = 1000

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("status", arguments, usage: usage, [.flag("json"), .flag("all")]) { options throws(CommandError) in
      let terminal = Terminal()
      var result = ExitCode.done
      let choices = try choose(options.operands)
      if choices.isEmpty, !options.has("json") { terminal.line("No mount is remembered.") }
      for (index, choice) in choices.enumerated() {
        do throws(CommandError) {
          if options.has("json") {
            try json(choice, terminal)
          } else {
            if index > 0 { terminal.line() }
            try text(choice, all: options.has("all"), terminal)
          }
        } catch {
          // One mount whose store is gone must not hide the others.
          guard case .failed(let message) = error, choices.count > 1 else { throw error }
          terminal.flush()
          OptionParser.complain("\(choice.mount.mountpoint): \(message)")
          result = ExitCode.failed
        }
      }
      try terminal.finish()
      return result
    }
  }

  private static func choose(_ operands: [String]) throws(CommandError) -> [MountSelection.Choice] {
    let selection = try MountSelection.remembered()
    guard let first = operands.first else { return selection.everything }
    guard operands.count > 1, selection.isMountpoint(first) else { return try selection.choose(operands) }
    let base = try selection.mount(first)
    return try selection.choose(operands.dropFirst(), in: base)
  }

  /// The running server of a mount, else its catalog.
  private static func source(
    _ mount: MountRecord
  ) throws(CommandError) -> (any StatusSource, server: ServerIdentity?) {
    do throws(ControlFailure) {
      let client = try ControlClient.connect(store: mount.store)
      return (client, try client.hello())
    } catch {
      guard error.kind == .notRunning else { throw error.commandError }
    }
    do throws(ControlFailure) { return (try CatalogStatus(mount), nil) } catch { throw error.commandError }
  }

  private static func paths(_ choice: MountSelection.Choice) -> [String]? {
    choice.paths.contains("") ? nil : choice.paths
  }

  // MARK: - Text

  private static func text(
    _ choice: MountSelection.Choice, all: Bool, _ terminal: Terminal
  ) throws(CommandError) {
    let (source, server) = try source(choice.mount)
    var query = StatusQuery(paths: paths(choice))
    let totals: StatusTotals
    do throws(ControlFailure) { totals = try source.totals(query) } catch { throw error.commandError }
    query.all = all || totals.files <= listedWhole

    let state = server.map { "mounted, served by process \($0.pid)" } ?? "not mounted: as the store knows it"
    terminal.line("\(TerminalText.plain(choice.mount.mountpoint)): \(state)")
    terminal.line("  " + states(totals))
    terminal.line("  " + amounts(totals))
    if totals.files == 0 { return }
    terminal.line()
    var listed: Int64 = 0
    try pages(source, query) { file in
      if listed == 0 { terminal.line(heading) }
      listed += 1
      describe(file, terminal)
    }
    if listed < totals.files, query.paths == nil {
      let hidden = TerminalText.count(totals.files - listed, "file")
      terminal.line("(\(hidden) of which nothing is stored: list them with --all)")
    }
  }

  private static func states(_ totals: StatusTotals) -> String {
    let parts = [
      (totals.complete, "complete"), (totals.partial, "partial"), (totals.remote, "remote"), (totals.failed, "failed"),
      (totals.modified, "modified"),
    ].filter { $0.0 > 0 }.map { "\($0.0) \($0.1)" }
    let files = TerminalText.count(totals.files, "file")
    return parts.isEmpty ? files : "\(files): \(parts.joined(separator: ", "))"
  }

  private static func amounts(_ totals: StatusTotals) -> String {
    var text = "\(TerminalText.size(totals.stored)) stored of \(TerminalText.size(totals.size))"
    if totals.unknownSizes > 0 { text += " and \(TerminalText.count(totals.unknownSizes, "unknown size"))" }
    if totals.transfers > 0 { text += ", \(TerminalText.count(totals.transfers, "transfer"))" }
    let rate = TerminalText.rate(totals.rate)
    return rate.isEmpty ? text : "\(text) at \(rate)"
  }

  private static let heading = row("STATE", "STORED", "SIZE", "", "RATE", "FILE")

  private static func row(
    _ state: String, _ stored: String, _ size: String, _ percent: String, _ rate: String, _ path: String
  ) -> String {
    [
      TerminalText.padded(state, 8), TerminalText.padded(stored, 8, right: true),
      TerminalText.padded(size, 8, right: true), TerminalText.padded(percent, 4, right: true),
      TerminalText.padded(rate, 10, right: true), path,
    ].joined(separator: "  ")
  }

  private static func describe(_ file: FileStatus, _ terminal: Terminal) {
    let percent = TerminalText.percent(file.stored, of: file.size).map { "\($0)%" } ?? ""
    terminal.line(
      row(
        file.state.rawValue, TerminalText.size(file.stored), file.size.map(TerminalText.size) ?? "?", percent,
        TerminalText.rate(file.rate), TerminalText.plain(file.path)))
    if file.state != .complete, !file.ranges.isEmpty {
      let shown = file.ranges.prefix(4).compactMap { range in
        range.count == 2 ? "\(TerminalText.size(range[0])) to \(TerminalText.size(range[1]))" : nil
      }
      let more = file.ranges.count > 4 ? ", and \(TerminalText.count(Int64(file.ranges.count - 4), "range"))" : ""
      terminal.line("          stored: \(shown.joined(separator: ", "))\(more)")
    }
    if let error = file.error {
      terminal.line("          error: \(TerminalText.plain(TerminalText.error(error, age: file.errorAge)))")
    }
    // That a file of which nothing is known waits for a reader goes without saying.
    if let reason = file.waitsFor, reason != .reader || file.state != .remote || file.error != nil {
      terminal.line("          waits for: \(TerminalText.wait(reason, until: file.waitsUntil))")
    }
    if let advice = file.advice { terminal.line("          to do: \(TerminalText.plain(advice))") }
  }

  // MARK: - JSON

  /// What stands before the files, written by JSONEncoder as one object.
  private struct Head: Encodable {
    var mountpoint: String
    var running: Bool
    var pid: Int32?
    var totals: StatusTotals

    func encode(to encoder: any Encoder) throws {
      var container = encoder.container(keyedBy: CodingKeys.self)
      try container.encode(mountpoint, forKey: .mountpoint)
      try container.encode(running, forKey: .running)
      try container.encode(pid, forKey: .pid)
      try container.encode(totals, forKey: .totals)
    }

    enum CodingKeys: String, CodingKey { case mountpoint, running, pid, totals }
  }

  /// The object is put together from pieces: the files may be a million, and are never in memory together.
  private static func json(_ choice: MountSelection.Choice, _ terminal: Terminal) throws(CommandError) {
    let (source, server) = try source(choice.mount)
    let query = StatusQuery(paths: paths(choice), all: true)
    let totals: StatusTotals
    do throws(ControlFailure) { totals = try source.totals(query) } catch { throw error.commandError }
    let head = Head(
      mountpoint: choice.mount.mountpoint, running: server != nil, pid: server?.pid, totals: totals)
    terminal.raw(Array(try encode(head).dropLast()))  // without its closing brace
    terminal.raw(",\"files\":[")
    var line = Array("\n".utf8)
    do throws(CommandError) {
      try pages(source, query) { file in
        file.appendJSON(to: &line)
        terminal.raw(line)
        line.removeAll(keepingCapacity: true)
        line += ",\n".utf8
      }
    } catch {
      // Whoever reads gets valid JSON that says it is not whole, and the exit status says so too.
      terminal.raw("\n],\"incomplete\":true}\n")
      terminal.flush()
      throw error
    }
    terminal.raw("\n]}\n")
  }

  private static func encode(_ value: some Encodable) throws(CommandError) -> [UInt8] {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    do {
      return Array(try encoder.encode(value))
    } catch {
      throw .failed("cannot write this as JSON: \(error)")
    }
  }

  private static func pages(
    _ source: any StatusSource, _ query: StatusQuery, _ visit: (FileStatus) throws(CommandError) -> Void
  ) throws(CommandError) {
    var query = query
    repeat {
      let page: StatusPage
      do throws(ControlFailure) { page = try source.page(query) } catch { throw error.commandError }
      for file in page.files { try visit(file) }
      query.after = page.next
    } while query.after != nil
  }
}
