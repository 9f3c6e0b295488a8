import Server

/// One option that a command knows.
struct Option: Sendable {
  /// Whether an option takes a value.
  enum Argument: Sendable {
    /// A flag.
    case none
    /// A value must follow: `--name=VALUE`, `--name VALUE`, `-nVALUE` or `-n VALUE`.
    case required
  }

  /// Its long name, without the dashes.
  let name: String
  /// Its letter, without the dash; nil when it has none.
  let letter: Character?
  /// The name of its value in the help; nil for a flag.
  let placeholder: String?
  /// Its description in the help; nil for an option that the help does not list.
  let help: String?
  /// The meanings of its values, one line each.
  var choices: [String] = []

  /// Whether its value may also come as two words, as its placeholder has two.
  var takesTwoWords: Bool { placeholder?.contains(" ") ?? false }

  /// Whether the option takes a value.
  var argument: Argument { placeholder == nil ? .none : .required }

  /// A flag: `--name`, and `-letter` if one is given.
  static func flag(_ name: String, _ letter: Character? = nil, help: String? = nil) -> Option {
    Option(name: name, letter: letter, placeholder: nil, help: help)
  }

  /// An option with a value: `--name VALUE`, and `-letter VALUE` if one is given.
  static func value(
    _ name: String, _ letter: Character? = nil, of placeholder: String = "VALUE", help: String? = nil
  ) -> Option {
    Option(name: name, letter: letter, placeholder: placeholder, help: help)
  }

  /// The option that every command has.
  static let help = Option.flag("help", "h", help: "Print this help.")
}

/// A parsed command line.
struct ParsedOptions: Sendable {
  /// The options in their order, under their long names; the value is nil for a flag.
  var options: [(name: String, value: String?)] = []
  /// The words that are not options, in their order.
  var operands: [String] = []

  /// Whether the option is there.
  func has(_ name: String) -> Bool { options.contains { $0.name == name } }

  /// The option's value; the last one if the user gave it more than once, nil if the user did not give it.
  func value(_ name: String) -> String? { options.last { $0.name == name }?.value }

  /// Every value of an option that may be repeated.
  func values(_ name: String) -> [String] { options.compactMap { $0.name == name ? $0.value : nil } }
}

/// Why a command ends without having done its work.
enum CommandError: Error, Equatable {
  /// The command line is wrong: exit code 2.
  case usage(String)
  /// The command cannot do it: exit code 1.
  case failed(String)

  /// Converts an error in an option of `mount`.
  init(_ error: MountOptionError) {
    switch error {
    case .usage(let message): self = .usage(message)
    case .failed(let message): self = .failed(message)
    }
  }
}

/// The exit codes, the same for every command.
enum ExitCode {
  /// The command did its work.
  static let done: Int32 = 0
  /// The command failed; stderr says why.
  static let failed: Int32 = 1
  /// The command line is wrong; the command did nothing.
  static let usage: Int32 = 2
}

extension Option {
  /// Converts an option of `mount` for getopt and for the help.
  init(_ option: MountOption) {
    self.init(
      name: option.name, letter: option.letter, placeholder: option.argument, help: option.helpText,
      choices: option.choices.map { "\($0.word): \($0.meaning)" })
  }
}
