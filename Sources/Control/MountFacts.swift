/// Where a mount keeps what, and which limits it has.
package struct MountFacts: Codable, Sendable, Equatable {
  /// A limit, or another choice of what is downloaded and kept.
  package struct Setting: Codable, Sendable, Equatable {
    /// Where its value comes from. The raw values are on the wire (docs/CONTROL.md).
    package enum Source: String, Codable, Sendable {
      /// The user gave the option.
      case option
      /// The program's default, or one that the store noted when it was created.
      case `default`
      /// A user changed it on the live mount.
      case set
    }

    /// The option's name, without dashes.
    package var name: String
    /// As the option is written, sizes in bytes; nil for no limit.
    package var value: String?
    package var source: Source
    /// Scheme, host and port if it is for that host alone.
    package var host: String?

    package init(name: String, value: String?, source: Source, host: String? = nil) {
      (self.name, self.value, self.source, self.host) = (name, value, source, host)
    }
  }

  /// Absolute paths.
  package var store: String
  package var library: String
  /// The list; nil if it came from standard input.
  package var list: String?
  /// Why the tree is not as the list; nil: it is, or the server does not tell.
  package var listProblem: String?
  /// The log; nil if it goes to standard error.
  package var log: String?
  /// The file of `--metrics-file`; nil for none.
  package var metrics: String?
  package var settings: [Setting]
  /// What the store has on disk, and how much of that is in complete copies, in bytes; nil from a server that does not
  /// tell.
  package var held: Int64?
  package var copies: Int64?
  /// Why the store takes no more, and what would help; nil while it does.
  package var full: String?
  /// Through what it shares, and how that goes; nil: it shares with nobody, or the server does not tell.
  package var share: String?

  package init(
    store: String, library: String, list: String?, log: String?, metrics: String? = nil, settings: [Setting] = []
  ) {
    (self.store, self.library, self.list, self.log) = (store, library, list, log)
    (self.metrics, self.settings) = (metrics, settings)
  }
}
