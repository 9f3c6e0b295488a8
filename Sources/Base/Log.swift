import CSystem
import Glibc

/// The program's log: one line for each message, to stderr or to a file.
///
/// Any thread may log. A message must hold no secret: URLs go through ``redacted(url:)`` first, and header values and
/// tokens are never logged at any level.
package enum Log {
  /// How much a message matters.
  package enum Level: Int, Comparable, Sendable {
    /// For a developer: every transfer and decision.
    case debug
    /// What a user may want to know: mounted, completed, a new generation.
    case info
    /// A problem that does not stop the work: an origin fails, a line of the manifest is skipped.
    case warning
    /// The program cannot do what a user or a program requested.
    case error

    /// Whether the left matters less.
    package static func < (left: Level, right: Level) -> Bool { left.rawValue < right.rawValue }
  }

  private struct State {
    var level = Level.info
    var descriptor: Int32 = STDERR_FILENO
    var stamps = false
  }

  private static let state = Lock(State())

  /// Sets the lowest level that is written.
  package static func set(level: Level) { state.withLock { $0.level = level } }

  /// Sends further messages to `descriptor`, which stays open as long as the process. `stamps` puts the time before
  /// each line.
  package static func set(descriptor: Int32, stamps: Bool) {
    state.withLock {
      $0.descriptor = descriptor
      $0.stamps = stamps
    }
  }

  /// Logs at debug level.
  package static func debug(_ message: @autoclosure () -> String) { write(.debug, message) }
  /// Logs at info level.
  package static func info(_ message: @autoclosure () -> String) { write(.info, message) }
  /// Logs at warning level.
  package static func warning(_ message: @autoclosure () -> String) { write(.warning, message) }
  /// Logs at error level.
  package static func error(_ message: @autoclosure () -> String) { write(.error, message) }

  private static func write(_ level: Level, _ message: () -> String) {
    let (enabled, descriptor, stamps) = state.withLock { ($0.level <= level, $0.descriptor, $0.stamps) }
    guard enabled else { return }
    var line = stamps ? stamp() : "mediafs: "
    switch level {
    case .debug: line += "debug: "
    case .info: break
    case .warning: line += "warning: "
    case .error: line += "error: "
    }
    line += plain(message())
    line += "\n"
    // One write for each line, so that lines of several threads do not mix. A failure to write the log cannot be
    // reported anywhere.
    line.withUTF8 { bytes in _ = Glibc.write(descriptor, bytes.baseAddress, bytes.count) }
  }

  /// The message in one line, without control characters: it may contain names and servers' texts, which a terminal
  /// would obey.
  private static func plain(_ message: String) -> String {
    func isControl(_ scalar: Unicode.Scalar) -> Bool {
      scalar.value < 0x20 || (0x7F..<0xA0).contains(scalar.value) || (0x2028...0x202E).contains(scalar.value)
        || (0x2066...0x2069).contains(scalar.value)
    }
    guard message.unicodeScalars.contains(where: isControl) else { return message }
    return String(String.UnicodeScalarView(message.unicodeScalars.map { isControl($0) ? " " : $0 }))
  }

  /// Local time as `2026-01-31T12:00:00.123 `.
  private static func stamp() -> String {
    var now = timespec()
    clock_gettime(CLOCK_REALTIME, &now)
    var parts = tm()
    localtime_r(&now.tv_sec, &parts)
    var text = [CChar](repeating: 0, count: 32)
    let count = strftime(&text, text.count, "%Y-%m-%dT%H:%M:%S", &parts)
    let thousandths = String(now.tv_nsec / 1_000_000 + 1000).dropFirst()
    return String(decoding: text[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self) + ".\(thousandths) "
  }

  /// A URL without its possible secrets: userinfo, query and fragment are removed (`https://host/path`, with `?…` in
  /// place of a query).
  ///
  /// Also for bad URLs, which are the ones in messages: removes what could be userinfo even without a scheme, or with a
  /// slash in the password.
  package static func redacted(url: String) -> String {
    // By scalars: in a String, an `@` or `?` with a combining accent is another character.
    var rest = url.unicodeScalars[...]
    let query = rest.firstIndex { $0 == "?" || $0 == "#" } ?? rest.endIndex
    let suffix = query < rest.endIndex ? "?…" : ""
    rest = rest[..<query]
    var prefix = ""
    if let slashes = firstDoubleSlash(rest),
      rest[..<slashes].allSatisfy({
        $0.properties.isAlphabetic || isDigit($0) || $0 == "+" || $0 == "-" || $0 == "." || $0 == ":"
      })
    {
      let host = rest.index(slashes, offsetBy: 2)
      prefix = String(rest[..<host])
      rest = rest[host...]
    }
    var authority = rest[..<(rest.firstIndex(of: "/") ?? rest.endIndex)]
    if !authority.contains("@"), let colon = authority.lastIndex(of: ":"),
      !authority[colon...].dropFirst().allSatisfy(isDigit)
    {
      authority = rest  // the text after the colon is no port: a password with a slash in it
    }
    if let at = authority.lastIndex(of: "@") { rest = rest[rest.index(after: at)...] }
    return prefix + String(rest) + suffix
  }

  private static func firstDoubleSlash(_ text: Substring.UnicodeScalarView) -> String.Index? {
    text.indices.first { text[$0...].starts(with: ["/", "/"]) }
  }

  private static func isDigit(_ scalar: Unicode.Scalar) -> Bool { ("0"..."9").contains(scalar) }
}
