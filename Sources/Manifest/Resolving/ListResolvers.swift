/// Who gives the links of a list's entries.
package struct ListResolvers: Sendable {
  /// The resolver of the entries that name none; nil: they have their own links.
  private let standard: String?
  /// The resolvers that options define; nil: nobody knows.
  private let defined: Set<String>?
  /// Those that were found to be undefined: a list may name many, and one message for each is enough.
  private var undefined: Set<String> = []

  /// The most resolvers that a list is warned of.
  private static let mostWarned = 16

  package init(standard: String? = nil, defined: Set<String>? = nil) {
    self.standard = standard
    self.defined = defined
  }

  /// Whether each entry has a resolver.
  var isForAll: Bool { standard != nil }

  /// Sets the entry's resolver. The warning, if it is the first that needs one which no option defines.
  mutating func apply(to entry: inout ManifestEntry) -> ManifestProblem? {
    if entry.resolver == nil { entry.resolver = standard }
    guard let name = entry.resolver, let defined, !defined.contains(name), undefined.count < Self.mostWarned,
      undefined.insert(name).inserted
    else { return nil }
    return ManifestProblem(line: entry.line, severity: .warning, message: Self.message(name))
  }

  /// What to do for entries whose links the resolver `name` gives.
  package static func message(_ name: String) -> String {
    let program = name == YtdlpFormat.resolver ? "mediafs-resolve-ytdlp" : "PROGRAM"
    return "a resolver gives the links of entries, the first here: mount with --resolver \(name)=\(program)"
  }
}
