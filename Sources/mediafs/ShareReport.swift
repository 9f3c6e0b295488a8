import Base

/// What a command on a bucket prints while it works: lines that stay, and on a terminal a last line that says how far
/// it is; other output gets that every ten seconds. Any thread may tell; a thread of its own writes. ``end()`` must be
/// called.
final class ShareReport: Sendable {
  private static let reportEvery = 10.0
  private static let drawEvery = 0.2

  private struct State {
    var lines: [String] = []
    var note: String?
    var isOver = false
    var failure: CommandError?
  }

  private let state = Lock(State())
  private let signal = Signal()
  private let thread: OwnedThread

  init(isSilent: Bool = false) {
    let (state, signal) = (state, signal)
    thread = OwnedThread(name: "share-report") { Self.write(state, signal, isSilent) }
  }

  func line(_ text: String) { state.withLock { $0.lines.append(text) } }
  func note(_ text: String) { state.withLock { $0.note = text } }

  /// Writes what is left, and ends the thread. Fails if something could not be written.
  func end() throws(CommandError) {
    state.withLock { $0.isOver = true }
    signal.raise()
    thread.join()
    if let failure = state.withLock({ $0.failure }) { throw failure }
  }

  private static func write(_ state: Lock<State>, _ signal: Signal, _ isSilent: Bool) {
    let terminal = Terminal()
    var isDrawn = false
    var lastReport = Instant.now
    var isOver = false
    while !isOver {
      signal.wait(seconds: drawEvery)
      var taken = State()
      (taken, isOver) = state.withLock { state in
        let taken = state
        (state.lines, state.note) = ([], nil)
        return (taken, taken.isOver)
      }
      // To the line's begin, and what is behind it away (ECMA-48: EL).
      if isDrawn, !taken.lines.isEmpty || taken.note != nil || isOver {
        terminal.raw("\r\u{1B}[K")
        isDrawn = false
      }
      for line in taken.lines { terminal.line(line) }
      if !isSilent, !isOver, let note = taken.note {
        if terminal.isInteractive {
          terminal.raw(TerminalText.fitted(note, terminal.columns - 1))
          isDrawn = true
        } else if Instant.now.seconds(since: lastReport) >= reportEvery {
          lastReport = .now
          terminal.line(note)
        }
      }
      terminal.flush()
    }
    do throws(CommandError) { try terminal.finish() } catch { state.withLock { $0.failure = error } }
  }
}
