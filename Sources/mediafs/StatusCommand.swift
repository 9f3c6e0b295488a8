import Base
import Control
import FoundationEssentials
import Server
import Storing

/// `mediafs status`: what is stored of each file, what is being downloaded, and errors.
enum StatusCommand {
  static let help = CommandHelp(
    synopsis: ["status [MOUNTPOINT] [--all] [--json] [PATH...]"],
    summary: "Show what is stored and what is being downloaded",
    about: [
      """
      Shows, for each file, how much of it is stored, what is being downloaded, its last error, what it waits for, and \
      what you can do about it. Totals come first, with where the mount keeps what, its limits, and its lines. Of up to \
      \(toldWhole) files that you name, it tells the story: origin, version, who reads them, what was fetched for whom, \
      where they lie, and what comes next. The running server answers; if none runs, the store's catalog \
      does, and the state says why none does. Without arguments, shows every mount of yours; for root, also the live \
      mounts of other users, of which it learns without a server only the reason.
      """
    ],
    operands: [
      ("MOUNTPOINT", "The mount to ask about."),
      ("PATH", "A file, or a folder with everything in it: a path in the mount, or an ordinary path below it."),
    ],
    groups: [
      (
        "Options",
        [
          .flag(
            "all", "a",
            help: """
              List every file. Without this option, a mount of more than \(listedWhole) files lists only those of \
              which something is stored or known.
              """),
          ClearCommand.storeOption,
          .flag("json", help: "Print one JSON object per mount, with all files; mediafs(1) describes its keys."),
        ]
      )
    ],
    sections: [
      CommandHelp.Section(
        title: "States",
        items: [
          ("remote", "Nothing is stored.", []), ("partial", "A part is stored.", []),
          ("complete", "The whole file is stored, verified, and in the library.", []),
          ("failed", "The download failed; the error says why.", []),
          ("modified", "You changed the copy in the library. mediafs keeps it.", []),
        ])
    ],
    status: "0 done, 1 failed, 2 wrong usage.")

  /// A mount with at most this many files is listed in full.
  private static let listedWhole: Int64 = 1000
  /// The stories of at most so many files that the user names are printed; --json has all.
  private static let toldWhole: Int64 = 16

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("status", arguments, help) { options throws(CommandError) in
      let terminal = Terminal()
      var result = ExitCode.done
      let choices = try choose(options)
      if choices.isEmpty, !options.has("json") { terminal.line("There is no mount.") }
      for (index, choice) in choices.enumerated() {
        do throws(CommandError) {
          if options.has("json") {
            try json(choice, terminal)
          } else {
            if index > 0 { terminal.line() }
            try text(choice, all: options.has("all"), terminal)
          }
        } catch {
          // A mount whose store is missing does not hide the others.
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

  private static func choose(_ options: ParsedOptions) throws(CommandError) -> [MountSelection.Choice] {
    let operands = options.operands
    let selection = try MountSelection.remembered()
    if let folder = options.value("store") {
      let mount = try selection.store(folder)
      return operands.isEmpty
        ? [MountSelection.Choice(mount: mount, paths: [""])] : try selection.choose(operands, in: mount)
    }
    guard let first = operands.first else { return selection.everyones }
    guard operands.count > 1, selection.isMountpoint(first) else { return try selection.choose(operands) }
    let base = try selection.mount(first)
    return try selection.choose(operands.dropFirst(), in: base)
  }

  /// The running server of a mount, else its catalog.
  private static func source(
    _ mount: MountRecord
  ) throws(CommandError) -> (any StatusSource, server: ServerIdentity?) {
    do throws(ControlFailure) {
      let client = try ControlClient.connect(store: mount.store, owner: mount.owner)
      return (client, try client.hello())
    } catch {
      // Root reads nothing of another user's store.
      if mount.owner != nil, let why = MountUsers.state(of: mount.mountpoint, owner: mount.owner) {
        throw .failed("\(mount.mountpoint) is mounted, but no server runs at the moment. \(why)")
      }
      guard error.kind == .notRunning else { throw error.commandError }
    }
    do throws(ControlFailure) { return (try CatalogStatus(mount), nil) } catch {
      guard let why = MountUsers.state(of: mount.mountpoint) else { throw error.commandError }
      throw .failed("\(mount.mountpoint) is mounted, but no server runs at the moment. \(why). \(error.message)")
    }
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
    query.film = query.paths != nil
    let totals: StatusTotals
    do throws(ControlFailure) { totals = try source.totals(query) } catch { throw error.commandError }
    query.all = all || totals.files <= listedWhole
    query.story = query.paths != nil && totals.files <= toldWhole

    let state =
      server.map { "mounted, served by process \($0.pid) (\($0.program))" } ?? stateWithoutServer(choice.mount)
    terminal.line("\(TerminalText.plain(choice.mount.mountpoint)): \(state)")
    terminal.line("  " + states(totals))
    terminal.line("  " + amounts(totals))
    if query.paths == nil {
      for line in StatusText.mount(totals.mount, choice.mount) { terminal.line(line) }
      for line in StatusText.lines(totals.lines ?? []) { terminal.line(line) }
    }
    if let unlisted = totals.unlisted, unlisted > 0 {
      terminal.line(
        "  \(TerminalText.size(unlisted)) of files that are no longer listed: 'mediafs clear --unlisted' deletes it")
    }
    if let rules = rules(totals) { terminal.line("  rules: \(rules)") }
    if totals.files == 0 { return }
    terminal.line()
    var listed: Int64 = 0
    try pages(source, query) { file in
      if listed == 0 { terminal.line(heading) }
      listed += 1
      describe(file, totals.mount, terminal)
    }
    if listed < totals.files, query.paths == nil {
      let hidden = TerminalText.count(totals.files - listed, "file")
      terminal.line("(\(hidden) of which nothing is stored: list them with --all)")
    }
  }

  /// A mount outlives its server: the helper starts the next one.
  private static func stateWithoutServer(_ mount: MountRecord) -> String {
    let entry: MountTableEntry?
    do throws(Errno) { entry = try MountTable.entry(at: mount.mountpoint) } catch { entry = nil }
    guard entry?.isMediafs ?? false else { return "not mounted: read from its store" }
    let why = MountUsers.state(of: mount.mountpoint, owner: mount.owner) ?? "The mount helper starts the next one"
    let log = mount.store.isEmpty ? "The log" : "The log (\(mount.store)/mediafs.log, or the file of --log-file)"
    return "mounted, but no server runs at the moment. \(why). \(log) says more"
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

  /// The rules of a mount, with their paths; nil if there is none. The list of its files may name more.
  private static func rules(_ totals: StatusTotals) -> String? {
    guard let rules = totals.rules, !rules.isEmpty else { return nil }
    let shown = rules.prefix(8).map { "\(TerminalText.plain($0.word)) \(RuleCommand.shown($0.pattern))" }
    let more = max(totals.ruleCount ?? 0, rules.count) - shown.count
    return shown.joined(separator: ", ") + (more > 0 ? ", and \(more) more" : "")
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

  private static func describe(_ file: FileStatus, _ facts: MountFacts?, _ terminal: Terminal) {
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
    // Every remote file waits for a reader, so the list does not repeat it.
    if let reason = file.waitsFor, reason != .reader || file.state != .remote || file.error != nil {
      terminal.line("          waits for: \(TerminalText.wait(reason, until: file.waitsUntil))")
    }
    for rule in [file.rule, file.downloads].compactMap({ $0 }) {
      terminal.line("          rule: \(TerminalText.plain(rule.word)) (for \(RuleCommand.shown(rule.pattern)))")
    }
    if let film = film(file) { terminal.line("          film: \(film)") }
    for line in StatusText.story(file, facts) { terminal.line(line) }
    if let advice = file.advice { terminal.line("          to do: \(TerminalText.plain(advice))") }
  }

  /// How long a file plays, and whether it stalls; nil if that is not known.
  private static func film(_ file: FileStatus) -> String? {
    guard let duration = file.duration else { return nil }
    let length = "\(TerminalText.place(duration)) long"
    if file.state == .complete { return length }
    let holds = file.holdsTo.map { ", holds to \(TerminalText.place($0))" } ?? ""
    return length + holds
      + (file.playsFrom.map { ", plays through from \(TerminalText.place($0, roundedUp: true))" } ?? "")
  }

  // MARK: - JSON

  /// The keys before `files`, which JSONEncoder writes as one object.
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

  /// The command writes the object piece by piece: a million files never are in memory together.
  private static func json(_ choice: MountSelection.Choice, _ terminal: Terminal) throws(CommandError) {
    let (source, server) = try source(choice.mount)
    var query = StatusQuery(paths: paths(choice), all: true)
    query.film = query.paths != nil
    query.story = query.paths != nil
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
      // The program that reads this gets valid JSON that says it is incomplete; the exit status says so too.
      terminal.raw("\n],\"incomplete\":true}\n")
      terminal.flush()
      throw error
    }
    terminal.raw("\n]}\n")
  }

  static func encode(_ value: some Encodable) throws(CommandError) -> [UInt8] {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    do {
      return Array(try encoder.encode(value))
    } catch {
      throw .failed("cannot write the status as JSON: \(error)")
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
