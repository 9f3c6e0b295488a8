import Base

/// What was learned of the line to a host.
package struct HostNote: Sendable, Equatable {
  /// `scheme://host`, with `:port` as the URL has it, in lower case and without a user.
  package var name: String
  /// How many requests at once brought more than fewer did, for one reader.
  package var lanes: Int
  /// Bytes a second of one connection, if more connections bring more; nil: not known.
  package var connectionRate: Double?
  /// Bytes a second of the line.
  package var rate: Double
  /// The least seconds from a request to its first byte.
  package var roundTrip: Double
  /// 10, 11, 20 or 30; nil: not known.
  package var httpVersion: Int?
  /// When this was last learned, in seconds since 1970.
  package var at: Int64

  /// Whether a host may be noted under this name. A user, a password, a path or a query would be a secret in the
  /// catalog.
  package static func isName(_ name: String) -> Bool {
    guard name.utf8.count <= 300, let scheme = name.firstRange(of: "://") else { return false }
    let host = name[scheme.upperBound...]
    return !host.isEmpty && !host.utf8.contains { $0 <= 0x20 || $0 == 0x7f || "@/?#\\".utf8.contains($0) }
  }

  /// A note with these values.
  package init(
    name: String, lanes: Int, connectionRate: Double?, rate: Double, roundTrip: Double, httpVersion: Int?, at: Int64
  ) {
    self.name = name
    self.lanes = lanes
    self.connectionRate = connectionRate
    self.rate = rate
    self.roundTrip = roundTrip
    self.httpVersion = httpVersion
    self.at = at
  }
}

/// What programs read of a kind of container when they first open a file.
package struct KindNote: Sendable, Equatable {
  /// The extension of the files' names, in lower case and without a dot.
  package var name: String
  /// The bytes that programs read from the start.
  package var head: Int64
  /// The bytes that programs read up to the end.
  package var tail: Int64
  /// The number of files from which this was learned.
  package var files: Int64
  /// When this was last learned, in seconds since 1970.
  package var at: Int64

  /// A note with these values.
  package init(name: String, head: Int64, tail: Int64, files: Int64, at: Int64) {
    self.name = name
    self.head = head
    self.tail = tail
    self.files = files
    self.at = at
  }
}

private enum Queries {
  static let hosts = SQL("SELECT name, lanes, connection_rate, rate, round_trip, http_version, at FROM host")
  static let kinds = SQL("SELECT name, head, tail, files, at FROM kind")
  static let noteHost = SQL("INSERT OR REPLACE INTO host VALUES(?, ?, ?, ?, ?, ?, ?)")
  static let noteKind = SQL("INSERT OR REPLACE INTO kind VALUES(?, ?, ?, ?, ?)")
  // The oldest rows beyond the bound. A subquery's LIMIT below 0 would mean no limit.
  static let boundHosts = SQL(
    """
    DELETE FROM host WHERE name IN (
      SELECT name FROM host ORDER BY at, name LIMIT max(0, (SELECT count(*) FROM host) - ?))
    """)
  static let boundKinds = SQL(
    """
    DELETE FROM kind WHERE name IN (
      SELECT name FROM kind ORDER BY at, name LIMIT max(0, (SELECT count(*) FROM kind) - ?))
    """)
}

/// The notes on hosts and on kinds of containers, which a catalog of format 1 does not have.
extension CatalogNotes {
  /// The most hosts, and the most kinds, that are remembered.
  static let mostHosts = 1024
  static let mostKinds = 64

  /// What was learned of hosts; nothing from a catalog of format 1.
  package func hosts() throws(StoreError) -> [HostNote] {
    try connections.read { (connection) throws(StoreError) in
      guard try Self.hasLearnedNotes(connection) else { return [] }
      let statement = try connection.statement(Queries.hosts)
      defer { statement.reset() }
      var notes: [HostNote] = []
      while try statement.step() {
        let (connectionRate, version) = (statement.integer(2), statement.integer(5))
        let note = HostNote(
          name: statement.text(0), lanes: Int(clamping: statement.integer(1)),
          connectionRate: connectionRate > 0 ? Double(connectionRate) : nil, rate: Double(statement.integer(3)),
          roundTrip: Double(statement.integer(4)) / 1e6, httpVersion: version > 0 ? Int(clamping: version) : nil,
          at: statement.bounded(6))
        // The catalog may be damaged.
        if Self.isValid(note) { notes.append(note) }
      }
      return notes
    }
  }

  /// What was learned of kinds of containers; nothing from a catalog of format 1.
  package func kinds() throws(StoreError) -> [KindNote] {
    try connections.read { (connection) throws(StoreError) in
      guard try Self.hasLearnedNotes(connection) else { return [] }
      let statement = try connection.statement(Queries.kinds)
      defer { statement.reset() }
      var notes: [KindNote] = []
      while try statement.step() {
        let note = KindNote(
          name: statement.text(0), head: statement.integer(1), tail: statement.integer(2), files: statement.integer(3),
          at: statement.bounded(4))
        if Self.isValid(note) { notes.append(note) }
      }
      return notes
    }
  }

  private static func hasLearnedNotes(_ connection: SQLiteConnection) throws(StoreError) -> Bool {
    try connection.integer("PRAGMA user_version") ?? 0 >= 2
  }

  static func note(_ note: HostNote, on connection: SQLiteConnection) throws(StoreError) {
    // The message does not repeat the name: it may contain what makes it invalid.
    guard isValid(note) else { throw StoreError(.invalid, "catalog: not what can be known of a host") }
    let statement = try connection.statement(Queries.noteHost)
    statement.bind(1, note.name)
    statement.bind(2, note.lanes)
    statement.bind(3, whole(note.connectionRate ?? 0))
    statement.bind(4, whole(note.rate))
    statement.bind(5, whole(note.roundTrip * 1e6))
    statement.bind(6, note.httpVersion ?? 0)
    statement.bind(7, note.at)
    try statement.run()
    let bound = try connection.statement(Queries.boundHosts)
    bound.bind(1, mostHosts)
    try bound.run()
  }

  static func note(_ note: KindNote, on connection: SQLiteConnection) throws(StoreError) {
    guard isValid(note) else { throw StoreError(.invalid, "catalog: not what can be known of a kind of file") }
    let statement = try connection.statement(Queries.noteKind)
    statement.bind(1, note.name)
    statement.bind(2, note.head)
    statement.bind(3, note.tail)
    statement.bind(4, note.files)
    statement.bind(5, note.at)
    try statement.run()
    let bound = try connection.statement(Queries.boundKinds)
    bound.bind(1, mostKinds)
    try bound.run()
  }

  /// Whether a note may be stored and believed.
  private static func isValid(_ note: HostNote) -> Bool {
    let numbers = [note.connectionRate ?? 0, note.rate, note.roundTrip]
    return HostNote.isName(note.name) && (1...4096).contains(note.lanes) && (0...99).contains(note.httpVersion ?? 0)
      && numbers.allSatisfy { $0 >= 0 && $0 < 1e15 }
  }

  private static func isValid(_ note: KindNote) -> Bool {
    (1...16).contains(note.name.utf8.count) && min(note.head, note.tail, note.files) >= 0
  }

  private static func whole(_ value: Double) -> Int64 { Int64(value.rounded()) }
}
