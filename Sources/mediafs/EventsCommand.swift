import Base
import Control
import Glibc
import Storing

/// `mediafs events`: what happens in a mount, as it happens.
enum EventsCommand {
  static let help = CommandHelp(
    synopsis: ["events [MOUNTPOINT] [--json]"],
    summary: "Print what happens in a mount, as it happens",
    about: [
      """
      Prints a line for each event, until it is interrupted or the mount ends. It goes on with the next server if one \
      is replaced, and says that events in between are lost. Whoever reads the lines too slowly loses events, and a \
      line says how many.
      """
    ],
    operands: [("MOUNTPOINT", "The mount to listen to. With one mount it may be left out.")],
    groups: [
      (
        "Options",
        [.flag("json", help: "Print each event as a JSON object on a line of its own; mediafs(1) describes its keys.")]
      )
    ],
    sections: [
      CommandHelp.Section(
        title: "Events",
        items: [
          ("new", "The origin answered for the file for the first time: its size is known.", []),
          ("changed", "The origin has another version of the file, or you changed its copy.", []),
          ("complete", "The file is complete, verified, and in the library.", []),
          ("failing", "Its download has an error that it did not have before.", []),
          ("evicted", "Stored bytes of the file made room for others.", []),
          ("stalled", "A program has waited for bytes of the file for 2 seconds.", []),
          ("rule", "A user changed what mediafs does with the file.", []),
          ("lost", "As many events are lost: they were read too slowly, or the server was replaced.", []),
        ])
    ],
    status: "0 the mount ended, 1 failed, 2 wrong usage.")

  /// How long the command looks for the next server, in seconds.
  private static let patience = 30.0

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("events", arguments, help) { options throws(CommandError) in
      let mount = try MountSelection.remembered().one(options.operands)
      let printer = EventPrinter(isJSON: options.has("json"))
      do throws(ControlFailure) {
        var client = try ControlClient.connect(store: mount.store, owner: mount.owner)
        while try !hasEnough(client, printer), NextServer.isMounted(mount) {
          client = try NextServer.connect(mount, until: .now.adding(seconds: patience))
        }
      } catch let failure where failure.kind == .notRunning && !printer.hasBegun {
        throw .failed("\(mount.mountpoint) is not mounted: nothing happens there")
      } catch let failure where failure.kind == .gone && printer.hasBegun {
        // The mount ended.
      } catch {
        throw error.commandError
      }
      try printer.terminal.finish()
      return ExitCode.done
    }
  }

  /// Prints what a server tells. False if that server ended, true if nobody reads what is printed.
  private static func hasEnough(_ client: ControlClient, _ printer: EventPrinter) throws(ControlFailure) -> Bool {
    do throws(ControlFailure) {
      return try client.events(isReady: printer.begin, printer.show)
    } catch let failure where failure.kind == .gone && printer.hasBegun {
      return false  // it was killed, or closed the connection before it could say that it ends
    }
  }
}

/// Prints events as they come.
private final class EventPrinter {
  let terminal = Terminal()
  private(set) var hasBegun = false
  private let isJSON: Bool

  init(isJSON: Bool) { self.isJSON = isJSON }

  /// A server tells events from now on: the first one, or the next.
  func begin() {
    defer { hasBegun = true }
    guard hasBegun else { return }
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    _ = show(ControlEvent(.lost, at: Double(now.tv_sec), message: "the server was replaced"))
  }

  /// Prints an event; false if nobody reads it.
  func show(_ event: ControlEvent) -> Bool {
    if isJSON {
      guard let line = try? event.json() else { return true }  // it came as JSON
      terminal.raw(line + [UInt8(ascii: "\n")])
    } else {
      terminal.line(TerminalText.plain(Self.text(event)))
    }
    terminal.flush()
    return terminal.failure == nil
  }

  private static func text(_ event: ControlEvent) -> String {
    var parts = [TerminalText.timeOfDay(Int64(clamping: event.at), seconds: true)]
    parts.append(TerminalText.padded(event.kind.rawValue, 8))
    if let path = event.path { parts.append(PathPattern.shown(path)) }
    if let count = event.count { parts.append(TerminalText.count(Int64(count), "event")) }
    var text = parts.joined(separator: "  ")
    if let bytes = event.bytes { text += " (\(TerminalText.size(bytes)))" }
    if let message = event.message { text += (event.path == nil ? "  " : ": ") + message }
    return text
  }
}

extension Int64 {
  /// The whole number next to zero; the nearest one there is.
  fileprivate init(clamping value: Double) { self = value.isFinite && abs(value) < 9e18 ? Int64(value) : 0 }
}
