/// A program that reads a file.
package struct ReaderStatus: Sendable, Equatable {
  /// Its process; nil if that is in another PID namespace.
  package var pid: Int32?
  /// The name of the process; nil if the system does not tell.
  package var process: String?
  /// Up to where its reads have been answered, in bytes.
  package var position: Int64
  /// Bytes a second that it reads, over its last seconds.
  package var pace: Double
  /// For how many seconds its read waits; nil if none waits.
  package var waited: Double?
  /// What the read waits for; nil if none waits, or if its bytes are on the way.
  package var waitsFor: FileWait?

  package init(
    pid: Int32?, process: String?, position: Int64, pace: Double = 0, waited: Double? = nil, waitsFor: FileWait? = nil
  ) {
    self.pid = pid
    self.process = process
    self.position = position
    self.pace = pace
    self.waited = waited
    self.waitsFor = waitsFor
  }
}

extension ReaderStatus: Codable {
  private enum CodingKeys: String, CodingKey { case pid, process, position, pace, waited, waitsFor }

  /// Writes every key, as ``FileStatus`` does.
  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(pid, forKey: .pid)
    try container.encode(process, forKey: .process)
    try container.encode(position, forKey: .position)
    try container.encode(pace.isFinite ? pace : 0, forKey: .pace)
    try container.encode(waited, forKey: .waited)
    try container.encode(waitsFor, forKey: .waitsFor)
  }
}
