/// Something that happened in a mount, as `events` tells it.
package struct ControlEvent: Sendable, Equatable {
  /// What happened. The raw values are on the wire (docs/CONTROL.md).
  package enum Kind: String, Codable, Sendable, CaseIterable {
    /// The origin answered for the file for the first time: its size and version are known.
    case new
    /// The origin has another version of the file, or a user changed its copy.
    case changed
    /// The file is complete, verified, and in the library.
    case complete
    /// The download of the file has an error that it did not have before.
    case failing
    /// Stored bytes of the file made room for others.
    case evicted
    /// A program has waited for bytes of the file for some seconds.
    case stalled
    /// A user changed what mediafs does with the file.
    case rule
    /// The client read too slowly: as many events after the one before it are lost.
    case lost
  }

  package var kind: Kind
  /// When it happened, in seconds since 1970.
  package var at: Double
  /// The file's path in the mount; nil for what is of no file.
  package var path: String?
  /// The bytes that it is about: the size of a new or complete file, what was evicted; nil for none.
  package var bytes: Int64?
  /// The reason, without secrets; nil for none.
  package var message: String?
  /// How many events are lost; nil but for ``Kind/lost``.
  package var count: Int?

  package init(
    _ kind: Kind, at: Double, path: String? = nil, bytes: Int64? = nil, message: String? = nil, count: Int? = nil
  ) {
    self.kind = kind
    self.at = at
    self.path = path
    self.bytes = bytes
    self.message = message
    self.count = count
  }
}

extension ControlEvent: Codable {
  private enum CodingKeys: String, CodingKey {
    case kind = "event"
    case at, path, bytes, message, count
  }

  /// Writes every key, with null for what there is none of, so that readers of the JSON find every key.
  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(kind, forKey: .kind)
    try container.encode(at, forKey: .at)
    try container.encode(path, forKey: .path)
    try container.encode(bytes, forKey: .bytes)
    try container.encode(message, forKey: .message)
    try container.encode(count, forKey: .count)
  }

  /// The event as one line of JSON, without a newline.
  package func json() throws(ControlFailure) -> [UInt8] { Array(try encodeLine(self).dropLast()) }
}
