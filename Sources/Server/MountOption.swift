/// One option of a mount, declared once: what help and the manual say of it, how its text is read, and its way to the
/// server. ``all`` is the table of them.
package struct MountOption: Sendable {
  /// Where help and the manual list it.
  package enum Group: String, CaseIterable, Sendable {
    /// What is mounted.
    case list = "List"
    /// Where downloaded data is kept.
    case storage = "Storage"
    /// What is downloaded, and how fast.
    case downloads = "Downloads"
    /// What requests carry.
    case requests = "Requests"
    /// The process that serves the mount.
    case server = "Server"
    /// Options of mount(8), which stand behind `-o` alone.
    case mount = "Mount options"
  }

  /// Its long name, without dashes: also the key in the options file.
  package let name: String
  /// Its letter, without the dash; nil for none.
  package let letter: Character?
  /// What stands for its value in help; nil for a flag.
  package let argument: String?
  /// Where help lists it.
  package let group: Group
  /// Whether `--name` is understood.
  package let isOnCommandLine: Bool
  /// Whether `-o name` is understood.
  package let isMountOption: Bool
  /// The words that its value may be; empty when it is no such choice. Help lists them with their meaning.
  package let choices: [(word: String, meaning: String)]
  /// What it does, in whole sentences.
  package let help: String
  /// The default, in words or as it would be given; nil for an option that does nothing unless it is given.
  package let standard: String?
  /// What the manual says beyond the help.
  package let details: String
  private let field: MountOptionField

  /// An option of both the command line and `-o`, unless it is said otherwise.
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

  /// What help says: what it does, and its default.
  package var helpText: String { standard.map { "\(help) Default: \($0)." } ?? help }

  /// Whether its value may be `@FILE`, which stands for the lines of a file.
  package var readsFile: Bool { field.readsFile }

  /// Whether the options file has it; otherwise it is for the mount helper alone.
  package var isForServer: Bool { field.encode != nil }

  /// The option of that name.
  package static func named(_ name: String) -> MountOption? { byName[name] }

  private static let byName = Dictionary(uniqueKeysWithValues: all.map { ($0.name, $0) })

  /// Takes what a user wrote into the request; `value` is nil for a flag.
  package func take(_ value: String?, into request: inout MountRequest) throws(MountOptionError) {
    if argument != nil, value == nil { throw .usage("the option \(name) needs a value") }
    if argument == nil, value != nil { throw .usage("the option \(name) takes no value") }
    let value = value ?? ""
    if try field.take(value, &request) { return }
    throw .usage("\(isOnCommandLine ? "--" : "")\(name) takes \(field.rule), not \(value)")
  }

  /// Takes a value of the options file into the request. No message shows it.
  func decode(_ value: String, into request: inout MountRequest) throws(ServerError) {
    guard field.decode(value, &request) else {
      throw .badRequest("the option \(name) has a value that this server cannot read")
    }
  }

  /// Its values in the options file: none when it was not given, more than one only of an option that is repeatable.
  func encoded(_ request: MountRequest) -> [String] { field.encode?(request) ?? [] }

  /// Whether it may be given more than once, each time with a further value.
  package var isRepeatable: Bool { field.isRepeatable }
}

/// Why an option that a user wrote is not taken.
package enum MountOptionError: Error, Equatable {
  /// It is written wrongly.
  case usage(String)
  /// It is written well, and cannot be done on this machine.
  case failed(String)
}
