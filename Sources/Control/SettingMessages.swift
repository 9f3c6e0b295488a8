/// One option that can be set under a mount, with its value.
package struct SettingStatus: Codable, Sendable, Equatable {
  /// Where a value comes from.
  package enum Source: String, Codable, Sendable {
    /// The program's default.
    case standard = "default"
    /// The command line, or `-o`, of the mount.
    case option
    /// `mediafs set`.
    case set
  }

  /// The option's name, without dashes.
  package var name: String
  /// Its value, as the option takes it; for a default, maybe in words.
  package var value: String
  /// Where it comes from.
  package var from: Source
  /// The host that it is for; nil: the mount.
  package var host: String?

  package init(name: String, value: String, from: Source, host: String? = nil) {
    self.name = name
    self.value = value
    self.from = from
    self.host = host
  }
}
