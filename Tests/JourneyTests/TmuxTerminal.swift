import Base
import Glibc
import TestSupport
import Testing

/// A terminal that tests type into and read: a tmux server of its own, with one window.
final class TmuxTerminal {
  private let journey: Journey
  private let socket: String

  /// Opens a window of that size with a shell in it.
  init(_ journey: Journey, columns: Int, rows: Int) throws {
    self.journey = journey
    socket = journey.folder.file("tmux")
    try tmux(
      "-f", "/dev/null", "new-session", "-d", "-x", "\(columns)", "-y", "\(rows)",
      "env PS1='$ ' bash --norc --noprofile -i")
    try tmux("set-option", "-g", "window-size", "manual")
  }

  /// Runs tmux, whose server is only ours.
  @discardableResult
  func tmux(_ arguments: String...) throws -> String {
    try journey.succeed(["tmux", "-u", "-S", socket] + arguments)
  }

  /// What the window shows, without colors.
  var screen: String { get throws { try tmux("capture-pane", "-p") } }
  var lines: [String] {
    get throws { try screen.split(separator: "\n", omittingEmptySubsequences: false).map(String.init) }
  }
  /// What it shows, with the sequences of its attributes.
  var colored: String { get throws { try tmux("capture-pane", "-p", "-e") } }
  /// Whether a program has the whole terminal, and whether the cursor is hidden.
  var isTaken: Bool { get throws { try tmux("display-message", "-p", "#{alternate_on}").hasPrefix("1") } }
  var hasCursor: Bool { get throws { try tmux("display-message", "-p", "#{cursor_flag}").hasPrefix("1") } }

  /// Types keys by their names in tmux.
  func type(_ keys: String...) throws { for key in keys { try tmux("send-keys", key) } }
  /// Types text.
  func write(_ text: String) throws { try tmux("send-keys", "-l", text) }
  /// Types a command and Enter.
  func command(_ text: String) throws {
    try write(text)
    try type("Enter")
  }

  func resize(columns: Int, rows: Int) throws {
    try tmux("resize-window", "-x", "\(columns)", "-y", "\(rows)")
  }

  /// Waits until the screen is so; the test fails with the screen if it is never.
  func wait(
    _ what: String, timeout: Double = 60, sourceLocation: SourceLocation = #_sourceLocation,
    _ isSo: (String) throws -> Bool
  ) throws {
    var last = ""
    let end = Instant.now.adding(seconds: timeout)
    while Instant.now < end {
      last = try screen
      if try isSo(last) { return }
      sleep(seconds: 0.05)
    }
    try #require(Bool(false), "\(what) is never seen:\n\(last)", sourceLocation: sourceLocation)
  }

  func wait(for text: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
    try wait("\"\(text)\"", sourceLocation: sourceLocation) { $0.contains(text) }
  }

  func end() throws { try tmux("kill-server") }
}

/// Lends a terminal; ends it afterwards, with all that runs in it.
func withTerminal(_ journey: Journey, columns: Int = 80, rows: Int = 24, _ body: (TmuxTerminal) throws -> Void) throws {
  let terminal = try TmuxTerminal(journey, columns: columns, rows: rows)
  do {
    try body(terminal)
  } catch {
    do { try terminal.end() } catch { print("\(error)") }  // the body's error is the one to tell
    throw error
  }
  try terminal.end()
}
