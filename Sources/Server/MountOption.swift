/// One option of a mount. It is declared once, with its help, its parser and its encoding for the server. ``all`` is
/// the table of all options.
package struct MountOption: Sendable {
  /// The heading of an option in the help and the manual.
  package enum Group: String, CaseIterable, Sendable {
    /// Which list is mounted.
    case list = "List"
    /// Where downloaded data is kept.
    case storage = "Storage"
    /// What mediafs downloads, and how fast.
    case downloads = "Downloads"
    /// What the requests contain.
    case requests = "Requests"
    /// What machines with the same list share.
    case sharing = "Sharing"
    /// The process that serves the mount.
    case server = "Server"
    /// Options of mount(8), which only `-o` accepts.
    case mount = "Mount options"
  }

  /// Its long name without dashes, which is also its key in the options file.
  package let name: String
  /// Its letter, without the dash; nil for none.
  package let letter: Character?
  /// The name of its value in the help; nil for a flag.
  package let argument: String?
  /// Its heading in the help.
  package let group: Group
  /// Whether the command line accepts `--name`.
  package let isOnCommandLine: Bool
  /// Whether `-o` accepts the name.
  package let isMountOption: Bool
  /// The words that its value can be, with their meanings, which the help lists; empty if it takes other values.
  package let choices: [(word: String, meaning: String)]
  /// What it does, in complete sentences.
  package let help: String
  /// The default, in words or as a user would write it; nil for an option without a default.
  package let standard: String?
  /// What the manual adds to the help.
  package let details: String
  private let field: MountOptionField

  /// An option of both the command line and `-o`, unless the group or `onlyOnCommandLine` says otherwise.
  init(
    _ name: String, of argument: String? = nil, letter: Character? = nil, _ field: MountOptionField, in group: Group,
    choices: [(word: String, meaning: String)] = [], onlyOnCommandLine: Bool = false, help: String,
    standard: String? = nil, details: String = ""
  ) {
    self.name = name
    self.letter = letter
    self.argument = argument
    self.group = group
    isOnCommandLine = group != .mount
    isMountOption = !onlyOnCommandLine
    self.choices = choices
    self.help = help
    self.standard = standard
    self.details = details
    self.field = field
  }

  /// The help with the default.
  package var helpText: String { standard.map { "\(help) Default: \($0)." } ?? help }

  /// Whether its value may be `@FILE`, which stands for each line of that file.
  package var readsFile: Bool { field.readsFile }

  /// Whether the server gets it in the options file. Otherwise, only the mount helper uses it.
  package var isForServer: Bool { field.encode != nil }

  /// The option of that name.
  package static func named(_ name: String) -> MountOption? { byName[name] }

  private static let byName = Dictionary(uniqueKeysWithValues: all.map { ($0.name, $0) })

  /// Parses the text that a user wrote and stores the value in the request; `value` is nil for a flag.
  package func take(_ value: String?, into request: inout MountRequest) throws(MountOptionError) {
    if argument != nil, value == nil { throw .usage("the option \(name) needs a value") }
    if argument == nil, value != nil { throw .usage("the option \(name) takes no value") }
    let value = value ?? ""
    if try field.take(value, &request) { return }
    throw .usage("\(isOnCommandLine ? "--" : "")\(name) takes \(field.rule), not \(value)")
  }

  /// Decodes a value of the options file and stores it in the request. No message shows the value.
  func decode(_ value: String, into request: inout MountRequest) throws(ServerError) {
    guard field.decode(value, &request) else {
      throw .badRequest("the option \(name) has a value that this server cannot read")
    }
  }

  /// Its values for the options file: none if the user did not give it, several only for a repeatable option.
  func encoded(_ request: MountRequest) -> [String] { field.encode?(request) ?? [] }

  /// Whether the user may give it more than once, each time to add a value.
  package var isRepeatable: Bool { field.isRepeatable }
}

/// Why mediafs rejects an option that a user wrote.
package enum MountOptionError: Error, Equatable {
  /// The option is written wrongly.
  case usage(String)
  /// The option is written correctly but cannot work on this machine.
  case failed(String)
}
