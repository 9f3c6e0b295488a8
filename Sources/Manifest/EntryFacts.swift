/// What a list tells of a file beside what mediafs needs for it. The store keeps the size and the date.
package struct EntryFacts: Sendable, Equatable {
  /// Bytes.
  package var size: Int64?
  /// The title.
  package var title: String?
  /// When it was published or modified, in seconds since 1970.
  package var date: Int64?
  /// Seconds that it plays.
  package var duration: Double?
  /// The media type.
  package var mediaType: String?

  /// Facts of which none is known.
  package init() {}

  var isEmpty: Bool { self == EntryFacts() }
}
