import Base
import Control
import Glibc

/// `mediafs ready`: whether files play without a stall.
enum ReadyCommand {
  static let help = CommandHelp(
    synopsis: ["ready [--from TIME] [--wait] [--json] FILE..."],
    summary: "Say whether a file plays without a stall",
    about: [
      """
      Compares what is stored of a file, and the rate at which its line brings the rest now, with the file's own index, \
      which says how many bytes each second of it takes. Prints a sentence for each file. Downloads nothing: to have \
      the rest fetched, play the file or use 'mediafs fetch'.
      """
    ],
    operands: [("FILE", "A file, or a folder with everything in it, in a running mount.")],
    groups: [
      (
        "Options",
        [
          .value(
            "from", of: "TIME",
            help: """
              The place in the film at which the play begins: 12:30, 1:02:30, or seconds. Default: where a program \
              reads the file now, else its start.
              """),
          .flag(
            "wait", "w",
            help: """
              Return when every file plays through. Gives up, with status 1, when waiting cannot help: nothing \
              downloads a file for \(Int(grace)) seconds, it failed, it waits for disk space, its downloads are \
              paused, or nothing has arrived for \(Int(patience)) seconds.
              """),
          .flag(
            "json",
            help: """
              Print a JSON object for each file, one in a line, with the keys of the control socket's "ready" \
              (CONTROL.md).
              """),
        ]
      )
    ],
    status: """
      0 every file plays through, 1 a file would stall or its length in time is unknown, 2 wrong usage, or an error.
      """)

  /// How long `--wait` waits for bytes, and for a server that follows another, in seconds.
  private static let patience = 60.0
  /// For how long `--wait` waits for a download that may just have been asked for, in seconds: a server takes the files
  /// of a 'mediafs fetch' up one after the other, and those of the mount before it too.
  private static let grace = 5.0

  static func run(_ arguments: [String]) -> Int32 {
    // A script must be able to tell "it would stall" from "nobody knows": errors have another status here.
    var hasFailed = false
    let status = OptionParser.run("ready", arguments, help) { options throws(CommandError) in
      do throws(CommandError) { return try answer(options) } catch {
        hasFailed = true
        throw error
      }
    }
    return hasFailed ? ExitCode.usage : status
  }

  private static func answer(_ options: ParsedOptions) throws(CommandError) -> Int32 {
    guard !options.operands.isEmpty else { throw .usage("FILE is missing: name the files to play") }
    var from: Double?
    if let text = options.value("from") {
      guard let seconds = TerminalText.seconds(ofPlace: text) else {
        throw .usage("--from takes a place such as 12:30, 1:02:30 or 750, not \(text)")
      }
      from = seconds
    }
    let choices = try MountSelection.remembered().choose(options.operands)
    let terminal = Terminal()
    var isReady = true
    for choice in choices {
      let files: [FileReadiness]
      do throws(ControlFailure) {
        let client = try ControlClient.connect(store: choice.mount.store, owner: choice.mount.owner)
        files =
          try options.has("wait")
          ? wait(client, choice, from: from) : client.readiness(choice.paths, from: from)
      } catch let failure where failure.kind == .notRunning {
        throw .failed("\(choice.mount.mountpoint) is not mounted, and only its server knows the line: mount it first")
      } catch {
        throw error.commandError
      }
      for file in files {
        if let duration = file.duration, isBehind(from, file) {
          throw .failed("\(file.path) is \(TerminalText.place(duration)) long: --from is behind its end")
        }
        if options.has("json") {
          terminal.raw(try StatusCommand.encode(file) + "\n".utf8)
        } else {
          terminal.line(TerminalText.plain("\(file.path): \(sentence(file, from: from))"))
        }
        if file.playsThrough != true { isReady = false }
      }
    }
    try terminal.finish()
    return isReady ? ExitCode.done : ExitCode.failed
  }

  /// Asks each second until all files play through, or waiting cannot help, also while one server follows another.
  private static func wait(
    _ first: ControlClient, _ choice: MountSelection.Choice, from: Double?
  ) throws(ControlFailure) -> [FileReadiness] {
    var client = first
    var stored: Int64 = -1
    // When bytes arrived last, and when a download was seen of each file, or none is missed yet.
    var (since, seen) = (Instant.now, Instant.now)
    while true {
      let files: [FileReadiness]
      do throws(ControlFailure) { files = try client.readiness(choice.paths, from: from) } catch let failure
        where failure.kind == .gone
      {
        client = try NextServer.connect(choice.mount, until: .now.adding(seconds: patience))
        seen = .now  // it takes up what was downloaded before
        if Instant.now.seconds(since: since) >= patience { throw failure }
        continue
      }
      let open = files.filter { $0.playsThrough != true }
      if open.isEmpty || open.contains(where: { isHopeless($0) || isBehind(from, $0) }) { return files }
      // A 'mediafs fetch' tries a file that failed again.
      if !open.contains(where: { $0.waitsFor == .reader || $0.state == .failed }) { seen = .now }
      let sum = open.reduce(Int64(0)) { .clampedSum($0, $1.stored) }
      if sum != stored { (stored, since) = (sum, .now) }
      if Instant.now.seconds(since: since) >= patience || Instant.now.seconds(since: seen) >= grace { return files }
      sleep(1)
    }
  }

  /// Whether waiting does not change the answer.
  private static func isHopeless(_ file: FileReadiness) -> Bool {
    switch file.state {
    case .remote, .partial: return [.space, .resume].contains(file.waitsFor)
    case .failed: return false
    case .complete, .modified: return true
    }
  }

  /// Whether the play is to begin behind the film's end.
  private static func isBehind(_ from: Double?, _ file: FileReadiness) -> Bool {
    guard let from, let duration = file.duration else { return false }
    return from >= duration
  }

  private static func sentence(_ file: FileReadiness, from: Double?) -> String {
    let place = from.map { " from \(TerminalText.place($0))" } ?? ""
    if file.playsThrough == true { return "plays through" + place }
    let answer = file.playsThrough.map { _ in "would stall at \(TerminalText.place(file.stallsAt ?? 0))" }
    let stall = answer ?? "its length in time is unknown"
    let isIdle = isHopeless(file) || file.state == .failed || file.waitsFor == .reader
    if let error = file.error, isIdle { return "\(stall); it failed: \(error)" }
    switch file.waitsFor {
    case .reader: return "\(stall); nothing downloads it now: play it, or use 'mediafs fetch'"
    case .space: return "\(stall); it waits for disk space"
    case .resume: return "\(stall); its downloads are paused: let them go on with 'mediafs resume'"
    case .origin: return "\(stall); it waits for its origin" + (file.error.map { " (\($0))" } ?? "")
    case .line, .turn, nil: break
    }
    if answer == nil { return stall }
    guard let seconds = file.readyIn else { return "\(stall); the rate of its line is not known yet" }
    return "\(stall); ready in about \(about(seconds))"
  }

  /// `40 s`, `2 min`, `3 h`.
  private static func about(_ seconds: Double) -> String {
    switch seconds {
    case ..<90: return "\(Int(max(1, seconds.rounded(.up)))) s"
    case ..<5400: return "\(Int((seconds / 60).rounded(.up))) min"
    default: return "\(Int((min(seconds, 1e9) / 3600).rounded(.up))) h"
    }
  }
}
