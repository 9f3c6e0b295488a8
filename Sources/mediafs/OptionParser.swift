import Base
// getopt keeps its state in C globals (optarg, optind); they are used only in `OptionParser.parse`, under its lock.
@preconcurrency import CSystem
import Glibc

/// Command lines as GNU programs read them, by glibc's getopt_long: options and operands may mix, long names may be
/// shortened as long as one option alone is meant, `--` ends the options.
enum OptionParser {
  /// getopt's results for an unknown option, and for an option whose value is missing.
  private static let (wrong, missing) = (Int32(UInt8(ascii: "?")), Int32(UInt8(ascii: ":")))

  /// Parses `arguments` (without the command's own name). `mixed: false` stops at the first operand.
  ///
  /// Messages name options but never their values, which may be secret.
  static func parse(
    _ arguments: [String], _ options: [Option], mixed: Bool = true
  ) throws(CommandError) -> ParsedOptions {
    let names: [UnsafeMutablePointer<CChar>?] = options.map { strdup($0.name) }
    var argv: [UnsafeMutablePointer<CChar>?] = [strdup("mediafs")] + arguments.map { strdup($0) } + [nil]
    let owned = argv + names  // getopt moves the pointers of `argv` about
    defer { owned.forEach { free($0) } }

    // A long option gives 256 + its index, so that it never looks like a letter.
    var table: [CSystem.option] = zip(options, names).enumerated().map { index, pair in
      CSystem.option(
        name: UnsafePointer(pair.1), has_arg: pair.0.argument == .required ? 1 : 0, flag: nil, val: Int32(256 + index))
    }
    table.append(CSystem.option())
    // ":" in front makes a missing value ':' rather than '?'; "+" stops at the first operand.
    var letters = mixed ? ":" : "+:"
    for option in options {
      guard let letter = option.letter else { continue }
      letters.append(letter)
      if option.argument == .required { letters.append(":") }
    }

    return try getoptState.withLock { _ throws(CommandError) in try scan(&argv, letters, table, options) }
  }

  /// getopt's C globals belong to one parse at a time.
  private static let getoptState = Lock(())

  private static func scan(
    _ argv: inout [UnsafeMutablePointer<CChar>?], _ letters: String, _ table: [CSystem.option], _ options: [Option]
  ) throws(CommandError) -> ParsedOptions {
    var result = ParsedOptions()
    let count = Int32(argv.count - 1)  // without the nil at its end
    optind = 0  // glibc: start over, whatever was parsed before
    opterr = 0  // the messages are ours: getopt's own would show values
    while true {
      let found = getopt_long(count, &argv, letters, table, nil)
      if found == -1 { break }
      let word = argv[Int(optind) - 1].map { String(cString: $0) } ?? ""
      if found == wrong || found == missing {
        throw .usage(complaint(about: word, missingValue: found == missing, letter: optopt, options))
      }
      guard let option = known(found, options) else { continue }
      var value = option.argument == .required ? optarg.map { String(cString: $0) } : nil
      if option.takesTwoWords, let first = value, !first.contains(where: \.isWhitespace) {
        guard optind < count, let second = argv[Int(optind)] else {
          throw .usage("the option --\(option.name) needs two words: \(option.placeholder ?? "")")
        }
        value = first + " " + String(cString: second)
        optind += 1  // getopt goes on behind it
      }
      result.options.append((option.name, value))
    }
    result.operands = argv[Int(optind)..<Int(count)].compactMap { $0.map { String(cString: $0) } }
    return result
  }

  /// The option that getopt's result stands for.
  private static func known(_ found: Int32, _ options: [Option]) -> Option? {
    if found >= 256 { return options[Int(found) - 256] }
    return options.first { $0.letter?.asciiValue.map(Int32.init) == found }
  }

  /// The message for an option that getopt rejected.
  private static func complaint(
    about word: String, missingValue: Bool, letter: Int32, _ options: [Option]
  ) -> String {
    if letter != 0, let option = known(letter, options) {
      let shown = letter >= 256 ? "--\(option.name)" : option.letter.map { "-\($0)" } ?? "--\(option.name)"
      return missingValue ? "the option \(shown) needs a value" : "the option \(shown) takes no value"
    }
    if letter > 32, letter < 127 { return "unknown option -\(Character(UnicodeScalar(UInt8(letter))))" }
    let name = word.drop { $0 == "-" }.prefix { $0 != "=" }
    let meant = options.filter { $0.name.hasPrefix(name) }.map { "--\($0.name)" }
    if meant.count > 1 { return "the option --\(name) could mean \(meant.joined(separator: " or "))" }
    return "unknown option --\(name)"
  }
}

extension OptionParser {
  /// Runs a command: parses its arguments, answers `--help`, says on stderr why it ended without success.
  ///
  /// - Parameters:
  ///   - help: what `--help` prints; its options are those that the command takes.
  ///   - hidden: options that help does not list.
  ///   - body: the command's work; returns its exit code.
  static func run(
    _ command: String, _ arguments: [String], _ help: CommandHelp, hidden: [Option] = [],
    _ body: (ParsedOptions) throws(CommandError) -> Int32
  ) -> Int32 {
    do throws(CommandError) {
      let parsed = try parse(arguments, help.options + hidden)
      if parsed.has("help") {
        print(help.text)
        return ExitCode.done
      }
      return try body(parsed)
    } catch {
      switch error {
      case .usage(let message):
        complain("\(command): \(message)\nTry 'mediafs help \(command)'.")
        return ExitCode.usage
      case .failed(let message):
        complain(message)
        return ExitCode.failed
      }
    }
  }

  /// Writes `mediafs: message` to stderr. Control characters are escaped, because messages contain names that others
  /// chose.
  static func complain(_ message: String) {
    let lines = message.unicodeScalars.split(separator: "\n", omittingEmptySubsequences: false)
    var line = "mediafs: \(lines.map { TerminalText.plain(String($0)) }.joined(separator: "\n"))\n"
    line.withUTF8 { bytes in _ = Glibc.write(STDERR_FILENO, bytes.baseAddress, bytes.count) }
  }
}
