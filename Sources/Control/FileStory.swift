/// What else is known of one file: where it comes from and where it lies, what was fetched of it for whom, what went
/// wrong, and what comes next. A client gets it of the files that it names.
package struct FileStory: Codable, Sendable, Equatable {
  /// One of its URLs.
  package struct Origin: Codable, Sendable, Equatable {
    /// Scheme, host and port, without secrets.
    package var host: String
    /// Whether the next request goes there.
    package var asked: Bool
    /// Why it was given up; nil if it was not.
    package var refusal: String?

    package init(host: String, asked: Bool, refusal: String?) {
      (self.host, self.asked, self.refusal) = (host, asked, refusal)
    }
  }

  /// The bytes that came from one host.
  package struct Source: Codable, Sendable, Equatable {
    package var host: String
    package var bytes: Int64

    package init(host: String, bytes: Int64) { (self.host, self.bytes) = (host, bytes) }
  }

  /// What was fetched since the server began, in bytes. What came twice counts twice.
  package struct Fetched: Codable, Sendable, Equatable {
    /// For programs that read it.
    package var reader: Int64 = 0
    /// For programs that look at many files, and listings.
    package var scan: Int64 = 0
    /// For nobody yet: its rest, or its beginning while the file before it was played.
    package var continuation: Int64 = 0
    /// From which hosts.
    package var sources: [Source] = []

    package init() {}
  }

  /// An error that it had.
  package struct PastError: Codable, Sendable, Equatable {
    /// Without secrets.
    package var message: String
    /// Seconds since it happened last.
    package var age: Int64

    package init(message: String, age: Int64) { (self.message, self.age) = (message, age) }
  }

  /// Why its rest is fetched although nobody waits for it. The raw values are on the wire (docs/CONTROL.md).
  package enum Reason: String, Codable, Sendable, CaseIterable {
    /// A user asked for it by name.
    case fetch
    /// It was played, or the policy says so.
    case played
  }

  /// Its line of the list, from 1.
  package var line: Int64
  package var origins: [Origin] = []
  /// The Content-Type that the origin sent; nil for none.
  package var type: String?
  /// The ETag, with `W/` before a weak one; nil for none.
  package var etag: String?
  /// Last-Modified, in seconds since 1970; nil for none.
  package var lastModified: Int64?
  /// Whether the origin serves ranges; nil if it was not asked for one lately.
  package var servesRanges: Bool?
  /// Seconds since the origin was last heard of this version; nil if that is not known.
  package var checkedAge: Int64?
  /// nil if no server runs.
  package var fetched: Fetched?
  /// The last errors, the newest first, at most ``ControlLimits/errors``.
  package var errors: [PastError] = []
  /// The path of its partial file; nil for none.
  package var partial: String?
  /// The path of its complete copy; nil for none.
  package var copy: String?
  /// Why its rest is fetched; nil if only what programs read is.
  package var goesOn: Reason?
  /// What of it this mount fetches for all that share: pairs of a start and an end; nil for nothing.
  package var leases: [[Int64]]?

  package init(line: Int64) { self.line = line }

  /// Whether a server could have told so much.
  var isBounded: Bool {
    origins.count <= ControlLimits.origins && errors.count <= ControlLimits.errors
      && fetched?.sources.count ?? 0 <= ControlLimits.origins
      && leases?.count ?? 0 <= ControlLimits.origins && leases?.allSatisfy { $0.count == 2 } ?? true
  }
}

extension FileStory {
  private enum CodingKeys: String, CodingKey {
    case line, origins, type, etag, lastModified, servesRanges, checkedAge, fetched, errors, partial, copy, goesOn,
      leases
  }

  /// Writes every key, with null for an unknown value.
  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(line, forKey: .line)
    try container.encode(origins, forKey: .origins)
    try container.encode(type, forKey: .type)
    try container.encode(etag, forKey: .etag)
    try container.encode(lastModified, forKey: .lastModified)
    try container.encode(servesRanges, forKey: .servesRanges)
    try container.encode(checkedAge, forKey: .checkedAge)
    try container.encode(fetched, forKey: .fetched)
    try container.encode(errors, forKey: .errors)
    try container.encode(partial, forKey: .partial)
    try container.encode(copy, forKey: .copy)
    try container.encode(goesOn, forKey: .goesOn)
    try container.encode(leases, forKey: .leases)
  }
}
