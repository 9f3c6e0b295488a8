import Base

/// Rows whose lines are the same and have other numbers, because lines above them came or went.
///
/// A line more at the list's beginning shifts each row. What the numbers are for, messages that name a line, can wait:
/// many rows are written after the import, a few at a time, so that no commit waits for them.
struct LineShifts {
  /// Rows that all shift by `lines`, and between which no other listed file has its row. The ids of two neighbours
  /// differ by at most ``most``, so that a damaged row's id makes no run endless.
  struct Run {
    var first: Int64
    var last: Int64
    var lines: Int
  }

  /// How many rows an import shifts in its own transaction, and one transaction after it.
  static let most = 2000

  private var runs: [Run] = []
  /// How many rows shift.
  private(set) var count = 0

  /// The line of row `id` has a number that is higher by `lines`. `previous`: the listed file whose row lies before it,
  /// as far as that is known.
  mutating func note(_ id: Int64, by lines: Int, after previous: Int64? = nil) {
    if lines == 0 { return }
    count += 1
    if let last = runs.last, last.last == previous, last.lines == lines,
      (1...Int64(Self.most)).contains(id &- last.last)
    {
      runs[runs.count - 1].last = id
    } else {
      runs.append(Run(first: id, last: id, lines: lines))
    }
  }

  /// Rows of which the import writes the line itself: they were unlisted, and a run may go over them.
  mutating func exclude(_ ids: [Int64]) {
    if ids.isEmpty { return }
    let ids = ids.sorted()
    runs = runs.flatMap { run in
      var (parts, rest): ([Run], Run) = ([], run)
      for id in ids[ids.firstPlace { $0 >= run.first }...] {
        if id > run.last { break }
        if id > rest.first { parts.append(Run(first: rest.first, last: id - 1, lines: run.lines)) }
        rest.first = id + 1
      }
      return rest.first <= rest.last ? parts + [rest] : parts
    }
  }

  /// The new number of the line that was `line` of row `id`. Call it after ``sort()``.
  func line(of id: Int64, from line: Int) -> Int {
    let place = runs.firstPlace { $0.last >= id }
    guard place < runs.count, runs[place].first <= id else { return line }
    return line + runs[place].lines
  }

  /// Sorts the runs by their rows.
  mutating func sort() { runs.sort { $0.first < $1.first } }

  private static let shift = SQL(
    "UPDATE entry SET line = line + ?3 WHERE id BETWEEN ?1 AND ?2 AND kind = 0 AND listed = 1")

  /// Shifts them, in the open transaction.
  func write(_ connection: SQLiteConnection) throws(StoreError) {
    for run in runs { try Self.write(run, connection) }
  }

  private static func write(_ run: Run, _ connection: SQLiteConnection) throws(StoreError) {
    let statement = try connection.statement(shift)
    statement.bind(1, run.first)
    statement.bind(2, run.last)
    statement.bind(3, run.lines)
    try statement.run()
  }

  /// Shifts them in short transactions of their own.
  func write(_ connections: CatalogConnections) throws(StoreError) {
    var rest = runs[...]
    while !rest.isEmpty {
      try connections.write(durably: false) { (connection) throws(StoreError) in
        var room = Int64(Self.most)
        while room > 0, var run = rest.popFirst() {
          if run.last - run.first >= room {
            let most = run.first + room - 1
            rest = [Run(first: most + 1, last: run.last, lines: run.lines)] + rest
            run.last = most
          }
          try Self.write(run, connection)
          room -= run.last - run.first + 1
        }
      }
    }
  }
}

extension Array {
  /// The first place whose element, and with it every later one, has the property; the count if none has.
  fileprivate func firstPlace(where has: (Element) -> Bool) -> Int {
    var (low, high) = (0, count)
    while low < high {
      let middle = (low + high) / 2
      if has(self[middle]) { high = middle } else { low = middle + 1 }
    }
    return low
  }
}
