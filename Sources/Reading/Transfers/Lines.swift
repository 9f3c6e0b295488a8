import Base
import Media
import Storing

/// The lines to all origins, and how many downloads wait on each. Owned by the transfer thread.
final class Lines {
  private var lines: [String: Line] = [:]
  /// The user's limits.
  private(set) var limits: ReadingLimits
  private let clock: Clock
  private var notes = HostNotes()
  /// The first turn of those that wait for room, by host.
  private var blocked: [String: Turn] = [:]
  /// The hosts whose players needed something when they were last settled.
  private var played: [String] = []
  /// Whether no file is open.
  var isQuiet = true

  init(limits: ReadingLimits, clock: Clock) {
    self.limits = limits
    self.clock = clock
  }

  /// The line of a host's key; a new one when the host has none.
  subscript(host: String) -> Line { lines[host] ?? new(host) }
  /// The line of a host's key; nil when the host has none.
  func known(_ host: String) -> Line? { lines[host] }
  /// The line of the URL that `download` requests now.
  func line(of download: Download) -> Line { self[download.mirrors.host] }

  /// What is known of the connections to the host of `download` where each is slow, for a reader that has the machine's
  /// lines for itself: beside another, more connections would take from it. nil where one or two do as well.
  func slowConnections(of download: Download, _ now: Instant) -> SlowConnections.Known? {
    let line = line(of: download)
    guard var known = line.estimate.connections.known(now) else { return nil }
    known.count = min(known.count, line.mostAhead)
    let present = lines.values.reduce(0) { $0 + $1.readers.present }
    let isAlone = present <= (download.lineUse.standing == nil ? 0 : 1)
    return isAlone && known.count > LaneControl.least ? known : nil
  }

  /// When a start has its turn: by its rank. Among readers on trial the youngest comes first, among those that share
  /// the line the one whose last start is longest ago. One that starves goes before newcomers.
  struct Turn: Comparable {
    let rank: Int
    let last: UInt64

    static func < (left: Turn, right: Turn) -> Bool { (left.rank, left.last) < (right.rank, right.last) }
  }
  /// Whether a start that goes before those of `turn` waits for room on the host's line.
  func isBlocked(_ host: String, before turn: Turn) -> Bool { blocked[host].map { $0 < turn } ?? false }
  /// Notes that a start waits for room.
  func block(_ host: String, _ turn: Turn) { blocked[host] = min(blocked[host] ?? turn, turn) }
  /// Those that waited are planned anew.
  func unblock() { blocked.removeAll(keepingCapacity: true) }

  private func new(_ host: String) -> Line {
    var line = Line(connections: limits.connections(of: host))
    if let note = notes.believed(host, clock.date) { line.estimate.expect(note) }
    return line
  }

  /// The user changed the limits.
  func limit(_ limits: ReadingLimits) {
    self.limits = limits
    for host in lines.keys { lines[host]?.allow(connections: limits.connections(of: host)) }
  }

  /// Earlier mounts learned this of hosts.
  func remember(_ earlier: [HostNote]) {
    notes.remember(earlier)
    for host in lines.keys {
      if let note = notes.believed(host, clock.date) { lines[host]?.estimate.expect(note) }
    }
  }

  /// What the store should know of hosts, and does not.
  func takeNotes() -> [HostNote] {
    let taken = lines.compactMap { notes.take($0, $1, date: clock.date) }
    for note in taken { lines[note.name]?.estimate.connections.wasNoted() }
    return taken
  }

  /// What a line brings within the user's limit beside players that need `others` bytes a second; nil: not known, or it
  /// brings nothing.
  func supply(_ line: Line, of host: String, besides others: Double) -> FilmSupply? {
    let limit = limits.rates.limit(of: host)
    guard !line.isUnreachable, let rate = line.estimate.pace.rate else { return nil }
    let most = limit.map { min(rate, Double($0)) } ?? rate
    // A reader has two windows in flight.
    let window = max(0.25, Double(Planner.smallestWindow) / most)
    return FilmSupply(
      rate: max(most - others, most * Line.leastSpare), delay: line.estimate.roundTrip, start: 2 * window)
  }

  /// What all lines leave for one more player, by the hosts' keys.
  var supplies: [String: FilmSupply] {
    var supplies: [String: FilmSupply] = [:]
    for (host, line) in lines { supplies[host] = supply(line, of: host, besides: line.readers.need) }
    return supplies
  }

  /// What `status` shows of them.
  func reports(_ now: Instant) -> [LineReport] {
    lines.map { LineReport(host: $0.key, $0.value, now: now) }
  }

  /// Changes a line.
  func update(_ host: String, _ body: (inout Line) -> Void) { body(&lines[host, default: new(host)]) }

  /// Writes to the log what is known of the lines in use.
  func describe() {
    for (host, line) in lines where line.active > 0 {
      let estimate = line.estimate
      Log.debug(
        "line of \(Log.redacted(url: host)): \(Int(estimate.rate)) bytes/s, mean \(Int(estimate.pace.rate ?? 0)), "
          + "first byte after \(estimate.roundTrip) s, \(line.active) transfers, "
          + "\(line.continued) bytes of background windows in flight")
    }
  }

  /// The network changed.
  func reconnect(_ now: Instant) {
    for host in lines.keys { lines[host]?.reconnect(now) }
  }

  /// Forgets unused lines where there are many: links and redirects may lead to another host each time.
  func prune(_ now: Instant) {
    if lines.count <= Self.kept { return }
    lines = lines.filter { _, line in
      line.active > 0 || line.readers.present > 0 || line.readers.visits > 0 || line.silence.holds(now)
        || line.isUnreachable && line.outage.due(readerWaits: false).map { $0 > now } ?? false
        || line.estimate.lastArrival.map { now.seconds(since: $0) < Self.longestUnused } ?? false
    }
  }
  private static let kept = 256
  private static let longestUnused = 600.0

  /// Notes what the readers of `download` count for, and on which line. Others stand back meanwhile.
  func setStanding(_ download: Download, _ standing: LineStanding?, now: Instant) {
    if let former = download.lineUse.standing {
      update(former.host) { $0.readers.leave(former, for: standing, now: now) }
    }
    if let standing { update(standing.host) { $0.readers.join(standing, now: now) } }
    download.lineUse.standing = standing
  }

  /// Counts the files of each line whose readers may jump at any time.
  func countVisits(_ downloads: [Download]) {
    var visits: [String: Int] = [:]
    for download in downloads where download.lineUse.isVisited {
      visits[download.mirrors.host, default: 0] += 1
    }
    for (host, line) in lines where line.readers.visits != visits[host] ?? 0 {
      lines[host]?.readers.visits = visits[host] ?? 0
    }
  }

  /// Decides which players their lines have room for. Where a player has waited and the line is too slow for what all
  /// need, the newest gives way, not all at once.
  func settlePlayers(_ downloads: [Download], _ now: Instant) {
    var room: [String: Double] = [:]
    var need: [String: Double] = [:]
    // A complete file needs nothing of its line.
    let players = downloads.filter { $0.lineUse.playouts.playsSince != nil && !$0.isWhole }
    for download in players {
      download.lineUse.fits = true
      let host = download.mirrors.host
      need[host, default: 0] += download.lineUse.playouts.need
      if download.lineUse.playouts.isShort(now) { room[host] = self[host].estimate.rate }
    }
    for host in played where need[host] == nil { lines[host]?.readers.need = 0 }
    for (host, need) in need { update(host) { $0.readers.need = need } }
    played = Array(need.keys)
    let byAge = players.sorted {
      ($0.lineUse.playouts.playsSince ?? .never, $0.key) < ($1.lineUse.playouts.playsSince ?? .never, $1.key)
    }
    var elders: [String: Double] = [:]
    for download in byAge {
      let host = download.mirrors.host
      download.lineUse.elders = elders[host] ?? 0
      elders[host, default: 0] += download.lineUse.playouts.need
    }
    if room.isEmpty { return }
    var isFirst: Set<String> = []
    for download in byAge {
      let need = download.lineUse.playouts.need
      let host = download.mirrors.host
      guard need > 0, let left = room[host] else { continue }
      download.lineUse.fits = isFirst.insert(host).inserted || need <= left
      if download.lineUse.fits {
        room[host] = left - need
      } else {
        // It lives on what the others leave.
        update(host) { $0.readers.need -= need }
      }
    }
  }
}

/// What the readers of one download count for on its line.
struct LineStanding: Equatable {
  /// The key of the line.
  let host: String
  /// Whether a reader waits, or is about to run out of bytes.
  var waits = false
  /// Whether one that has just come waits, and whether only for the file's size.
  var isNew = false
  var wantsSize = false
  /// Whether a player is near its deadline.
  var isUrgent = false
  /// Whether a player has less than its lead, or a reader on trial waits or is behind.
  var leads = false
  /// Whether somebody plays.
  var plays = false
  /// Whether one that shows no pace takes all that comes.
  var shares = false
}

/// The readers of a line, counted by resource.
struct LineReaders {
  /// How many resources have readers that count.
  private(set) var present = 0
  /// How many of them have a waiting reader.
  private(set) var waiting = 0
  /// How many have one that waits and has just come, and how many of these only for the file's size.
  private(set) var new = 0
  private(set) var newSizes = 0
  /// How many have a player near its deadline.
  private(set) var urgent = 0
  /// Since when one has been, without a pause of a second, or when such a player jumped last.
  private(set) var urgentSince: Instant?
  /// Until when the last one was; nil while one is.
  private var urgentUntil: Instant?
  /// How many have a player with less than its lead, or a reader on trial that waits or is behind.
  private(set) var leading = 0
  /// How many are played.
  private(set) var playing = 0
  /// How many have a reader that shares the line.
  private(set) var sharing = 0
  /// When a reader waited last. A reader is likely to ask for the following bytes next, so background downloads stand
  /// back for a little longer than the wait itself.
  private(set) var lastWait: Instant?
  /// When one waited last that goes before others. It will ask for the following bytes next.
  private var lastPress: Instant?
  /// When a reader came, or jumped, last.
  private(set) var lastArrival: Instant?
  /// When a file was closed last whose reader showed no pace: it came, took what it wanted, and went.
  var lastPassing: Instant?
  /// How many are open and were read of late, whether or not somebody waits.
  var visits = 0
  /// Bytes a second that the players need together for whom the line has room.
  var need = 0.0

  /// Whether a reader that goes before others waits, or did within the last `seconds`, or is near its deadline.
  func isPressed(within seconds: Double, _ now: Instant) -> Bool {
    urgent > 0 || new > 0 || lastPress.map { now.seconds(since: $0) < seconds } ?? false
  }

  /// A resource's readers count from now on.
  mutating func join(_ standing: LineStanding, now: Instant) {
    count(standing, 1)
    guard urgent > 0 else { return }
    if urgentUntil.map({ now.seconds(since: $0) > Self.shortPause }) ?? (urgentSince == nil) { urgentSince = now }
    urgentUntil = nil
  }

  /// They do not any more. `next`: what they count for from now on.
  mutating func leave(_ standing: LineStanding, for next: LineStanding? = nil, now: Instant) {
    count(standing, -1)
    if standing.isUrgent, urgent == 0 { urgentUntil = now }
    if standing.waits { lastWait = now }
    // One that shares the line from now on does not stand back for itself.
    let isOver = next?.shares == true && !standing.shares
    if standing.isNew || standing.isUrgent, !isOver { lastPress = now }
  }

  /// A reader with `claim` has come, or jumped: its request is made.
  mutating func arrived(_ claim: ReaderView.Claim, _ now: Instant) {
    lastArrival = now
    if claim == .urgent { urgentSince = now }
  }

  /// A shorter pause, in seconds, does not end urgency.
  private static let shortPause = 1.0

  private mutating func count(_ standing: LineStanding, _ one: Int) {
    present += one
    if standing.waits { waiting += one }
    if standing.isNew { new += one }
    if standing.isNew, standing.wantsSize { newSizes += one }
    if standing.isUrgent { urgent += one }
    if standing.leads { leading += one }
    if standing.plays { playing += one }
    if standing.shares { sharing += one }
  }
}
