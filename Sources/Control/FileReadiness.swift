/// Whether a file plays without a stall, given what is stored of it and what its line brings.
package struct FileReadiness: Codable, Sendable, Equatable {
  /// Its path in the mount.
  package var path: String
  /// How much of it is stored.
  package var state: FileStatus.State
  /// Whether it plays through; nil if that is not known, because its length in time is not.
  package var playsThrough: Bool?
  /// The second of the film from which it is played; nil if that is not known.
  package var from: Double?
  /// When it would stall, in seconds of the film; nil if it plays through.
  package var stallsAt: Double?
  /// In how many seconds it will play through, if what is missing arrives meanwhile; nil if that is not known.
  package var readyIn: Double?
  /// How long it plays, in seconds; nil if that is not known.
  package var duration: Double?
  /// Bytes that are stored.
  package var stored: Int64
  /// What it waits for; nil for nothing.
  package var waitsFor: FileWait?
  /// The last error; nil for none.
  package var error: String?

  package init(path: String, state: FileStatus.State, stored: Int64 = 0) {
    self.path = path
    self.state = state
    self.stored = stored
  }
}
