import Base
import Fetching

/// What each connection of a line brings in a round trip: a flight, as large as the server's congestion window. Pure.
///
/// A window that is larger than its connection's flight takes several round trips, and a reader waits for it while
/// other connections are idle. A connection that has grown brings a hundred times what a new one does, so each request
/// is as long as the flight of the connection that takes it. Some may be longer (``Planner/letsGrow(_:_:)``).
///
/// libcurl takes the connection that was made first of those that are idle. So the next request's is known before it
/// is made, and the response says by its number whether that was right: after redirects it may have come from another
/// host.
struct Flights: Sendable {
  /// What a new connection brings: ten packets (RFC 6928).
  static let first: Int64 = 14_600
  /// In how many round trips after the first a new connection brings `bytes`: each brings twice as much as the one
  /// before.
  static func moreTrips(_ bytes: Int64) -> Double { bytes <= first ? 0 : 1 + moreTrips((bytes - first) / 2) }
  /// A silence of so many round trips ends a flight. What is shorter is the time between packets.
  private static let pause = 0.3
  /// A server halves the window of a connection that is idle for longer than its retransmission timeout, once for each
  /// (RFC 2861): the round trip and at least 0.2 s on Linux.
  private static let leastTimeout = 0.2
  /// After so many of these a window has its first size, however large it was.
  private static let coldTimeouts = 5.0
  /// A connection that was idle for so many seconds is taken as closed: libcurl closes it (CURLOPT_MAXAGE_CONN). Most
  /// servers do so sooner, after 5 to 75 s, which ``responded(_:over:isReused:)`` learns.
  private static let longestIdle = 118.0
  /// After so many seconds the model forgets what it learned: servers are restarted, and links change.
  private static let learnedSeconds = 600.0
  /// Servers close connections for other reasons too, mostly soon after they were in use.
  private static let leastIdle = 4.0
  /// At most so many spare connections are made in so many seconds. They may be made in vain: a server closes them
  /// soon, or refuses them, or requests are redirected elsewhere.
  private static let mostSpare = 12
  private static let spareSeconds = 60.0

  private struct Connection {
    /// nil until a response told it.
    var number: Int?
    var transfer: TransferID?
    var flight = Flights.first
    /// Bytes of the flight that is arriving, and whether all of the response has come in it so far.
    var arriving: Int64 = 0
    var isWhole = true
    /// Whether the transfer is its first.
    var isNew = true
    /// For how many seconds it was idle before the transfer under way.
    var rested = 0.0
    /// Whether that was long enough for its window to have its first size.
    var wasCold = false
    /// When the first byte of the response under way came.
    var firstByte: Instant?
    var lastByte: Instant

    var isConnecting: Bool { transfer != nil && isNew && firstByte == nil }

    func isIdle(_ now: Instant, _ longest: Double) -> Bool {
      transfer == nil && now.seconds(since: lastByte) < longest
    }

    func flight(_ now: Instant, roundTrip: Double) -> Int64 {
      // The server sent its last byte half a round trip before it came, and sends the next one half a round trip after
      // the request.
      var idle = now.seconds(since: lastByte) + roundTrip
      var flight = self.flight
      while idle > Flights.leastTimeout + roundTrip, flight > Flights.first {
        flight = max(Flights.first, flight / 2)
        idle -= Flights.leastTimeout + roundTrip
      }
      return flight
    }
  }

  /// In the order in which they were made.
  private var connections: [Connection] = []
  /// After how many seconds the server closes an idle one, as far as was learned since ``learnsSince``.
  private var longestIdle = Self.longestIdle
  /// For how many seconds one was idle, at most, over which a response came even so.
  private var survived = 0.0
  private var learnsSince: Instant?
  /// Whether the server was seen to forget the windows of connections that rest. Servers with BBR keep them.
  private(set) var forgetsWindows = false
  /// How many spare connections were made since ``sparesSince``.
  private var spares = 0
  private var sparesSince: Instant?

  /// How many connections are idle.
  func idleCount(_ now: Instant) -> Int { connections.count { $0.isIdle(now, longestIdle) } }

  /// A transfer starts, on the first idle connection or, where there is none or it `isFresh`, on a new one.
  mutating func began(_ transfer: TransferID, isFresh: Bool = false, roundTrip: Double, now: Instant) {
    if learnsSince.map({ now.seconds(since: $0) > Self.learnedSeconds }) ?? true {
      (learnsSince, longestIdle, survived) = (now, Self.longestIdle, 0)
    }
    if isFresh {
      if !isCountingSpares(now) { (spares, sparesSince) = (0, now) }
      spares += 1
    }
    let longest = longestIdle
    connections.removeAll { $0.transfer == nil && !$0.isIdle(now, longest) }
    guard !isFresh, let index = connections.firstIndex(where: { $0.transfer == nil }) else {
      return connections.append(Connection(transfer: transfer, lastByte: now))
    }
    connections[index].rested = now.seconds(since: connections[index].lastByte)
    connections[index].wasCold = connections[index].rested > Self.coldRest(roundTrip: roundTrip)
    connections[index].flight = connections[index].flight(now, roundTrip: roundTrip)
    connections[index].transfer = transfer
    connections[index].arriving = 0
    connections[index].isWhole = true
    connections[index].isNew = false
    connections[index].firstByte = nil
    connections[index].lastByte = now
  }

  private func isCountingSpares(_ now: Instant) -> Bool {
    sparesSince.map { now.seconds(since: $0) < Self.spareSeconds } ?? false
  }

  /// A transfer's response came over connection `number`; nil: unknown. `isReused`: it was not made for the transfer.
  mutating func responded(_ transfer: TransferID, over number: Int?, isReused: Bool = true) {
    guard let number, let mine = connections.firstIndex(where: { $0.transfer == transfer }) else { return }
    let rested = connections[mine].rested
    if connections[mine].number == number {
      survived = max(survived, rested)
      return
    }
    if let other = connections.firstIndex(where: { $0.number == number }) {
      let displaced = connections[other].transfer
      connections[other].transfer = transfer
      connections[other].arriving = 0
      connections[other].isWhole = true
      connections[other].isNew = false
      connections[other].wasCold = false
      connections[other].firstByte = nil
      connections[mine].transfer = displaced
      // libcurl passed over a connection that was idle: it is closed.
      if displaced == nil { connections.remove(at: mine) }
    } else {
      // It is new, or takes the place of one that was closed.
      if !isReused, connections[mine].number != nil, rested >= max(Self.leastIdle, survived), rested < longestIdle {
        longestIdle = rested
      }
      connections[mine].number = number
      connections[mine].wasCold = false
      connections[mine].flight = Self.first
    }
  }

  /// `count` bytes of a transfer's body arrived. `isHeld`: they waited for a lost packet, and the flight is larger than
  /// what came before that.
  mutating func received(
    _ count: Int, of transfer: TransferID, isHeld: Bool = false, roundTrip: Double, now: Instant
  ) {
    guard let index = connections.firstIndex(where: { $0.transfer == transfer }) else { return }
    if connections[index].arriving > 0, now.seconds(since: connections[index].lastByte) > Self.pause * roundTrip {
      learn(from: connections[index], isHeld: isHeld)
      if !isHeld { connections[index].flight = connections[index].arriving }
      connections[index].arriving = 0
      connections[index].isWhole = false
    }
    if connections[index].firstByte == nil { connections[index].firstByte = now }
    connections[index].arriving += Int64(count)
    connections[index].flight = max(connections[index].flight, connections[index].arriving)
    connections[index].lastByte = now
  }

  /// Whether a background request had better make a spare connection: if it took an idle one, the others would bring
  /// less than `bytes` of what a jump needs in a round trip. One is made at a time, and at most `most` are open.
  func lackSpare(for bytes: Int64, most: Int, _ now: Instant, roundTrip: Double) -> Bool {
    if spares >= Self.mostSpare, isCountingSpares(now) { return false }
    let open = connections.count { $0.transfer != nil || $0.isIdle(now, longestIdle) }
    if open >= most || connections.contains(where: \.isConnecting) { return false }
    return idle(now, roundTrip: roundTrip).dropFirst().reduce(0) { $0 + Planner.idlePiece($1) } < bytes
  }

  /// Whether a transfer's connection is made for it, and has brought nothing yet.
  func isConnecting(_ transfer: TransferID) -> Bool {
    connections.contains { $0.transfer == transfer && $0.isConnecting }
  }

  /// Whether all responses whose bytes come have brought some for `seconds` and longer.
  func haveLasted(_ seconds: Double, _ now: Instant) -> Bool {
    connections.allSatisfy { connection in
      guard connection.transfer != nil, let first = connection.firstByte else { return true }
      return now.seconds(since: first) >= seconds
    }
  }

  /// A transfer ended. `isCut`: before the end of its body, which closes the connection.
  mutating func ended(_ transfer: TransferID, isCut: Bool, now: Instant) {
    guard let index = connections.firstIndex(where: { $0.transfer == transfer }) else { return }
    // A shorter response fits into a window of any size.
    if connections[index].arriving > Self.cold { learn(from: connections[index]) }
    if isCut {
      connections.remove(at: index)
    } else {
      connections[index].transfer = nil
      connections[index].lastByte = now
    }
  }

  /// What came first over a connection that had rested says whether its window had its first size.
  private mutating func learn(from connection: Connection, isHeld: Bool = false) {
    if connection.wasCold, connection.isWhole, !isHeld { forgetsWindows = connection.arriving <= Self.cold }
  }
  /// A first record of TLS that is longer than the first window is complete with the second one, twice as large.
  private static let cold = 4 * first

  /// For how many seconds a connection is idle before its window has its first size.
  static func coldRest(roundTrip: Double) -> Double { coldTimeouts * (leastTimeout + roundTrip) }

  /// What the idle connections bring in a round trip, in the order in which requests take them.
  ///
  /// `grows`: those whose last response came in one flight are taken to bring twice that. A server's window grows only
  /// while it holds something back, so requests that never ask for more keep it as small as it is.
  func idle(_ now: Instant, roundTrip: Double, grows: Bool = false) -> [Int64] {
    connections.filter { $0.isIdle(now, longestIdle) }.map { connection in
      let flight = connection.flight(now, roundTrip: roundTrip)
      return grows && connection.isWhole ? max(flight, 2 * min(flight, connection.arriving)) : flight
    }
  }
}

extension Planner {
  /// The shortest window of a reader where congestion windows are small, and the longest piece of what it needs behind
  /// a jump, in bytes: two TLS records.
  static let pieceLength: Int64 = 32 << 10

  /// What a response has beside its body in a flight, at most, in bytes: its header, and what TLS adds.
  static let overhead: Int64 = 1 << 10

  /// The longest piece of a jump over an idle connection that brings `flight` bytes in a round trip.
  static func idlePiece(_ flight: Int64) -> Int64 { min(max(flight, Flights.first) - overhead, pieceLength) }

  /// Requests what `range` lacks, for a reader that has jumped there, in pieces side by side: each comes in one flight
  /// of the idle connection that takes it. Those for which no connection is idle have ``pieceLength``. So do all where
  /// the idle connections bring less than `range`, and the file has no transfer whose connection is soon idle: a longer
  /// response over an idle connection comes sooner than one over a new connection. The last piece goes on for up to
  /// `more` bytes, but not where it might then take a second flight: a record of TLS is of use only as a whole.
  static func spread(_ range: ByteRange, more: Int64, _ draft: inout PlanDraft) {
    let bodies = draft.input.line.flights.map { $0 - overhead }
    let fits = !draft.transfers.isEmpty || bodies.reduce(0, +) >= range.count
    while let gap = draft.covered.firstGap(in: range), gap.start < draft.input.size {
      let isIdle = fits && draft.requests < bodies.count
      let piece = isIdle ? idlePiece(draft.input.line.flights[draft.requests]) : pieceLength
      let sure = piece < pieceLength ? Flights.first - overhead : piece
      draft.ask(from: gap.start, length: min(max(gap.count, min(gap.count + more, sure)), piece), .demand)
    }
  }

  /// Whether `reader` gets what it waits for and what follows in one request: the kernel waits for `needed` bytes at
  /// once, as for one that reads on, and of the idle connections the next brings less than half of what the first one
  /// does. A second request would take longer over that one. A router's queue of one round trip also drops its packets
  /// behind those of the first. The planner makes two where each connection is slow, beside other readers, and where
  /// the line needs more than a second for both.
  static func goesOnOverOne(_ reader: ReaderView?, needs needed: Int64, _ draft: PlanDraft) -> Bool {
    let (input, line) = (draft.input, draft.input.line)
    guard let reader, !reader.isLooker, reader.takes == nil, reader.length < provenLength, needed >= lookAhead,
      line.hasHandshakes, !line.hasSmallWindows, !line.isLimited, !line.hasOthers, input.slowConnections == nil,
      Double(2 * lookAhead) <= line.rate
    else { return false }
    let idle = line.flights.dropFirst(draft.requests)
    guard let first = idle.first else { return false }
    return idle.dropFirst().first.map { $0 < first / 2 } ?? true
  }

  /// Whether `reader` lets windows grow, and waits for some responses of two round trips: packets are lost, and it has
  /// read on; or it takes all that comes, has shown no pace for long, and nobody else reads. Where packets are lost,
  /// what a queue drops of a burst is little beside that, and a server may keep its rate all the same (BBR).
  static func letsGrow(_ reader: ReaderView, _ input: PlanInput) -> Bool {
    if input.line.losesPackets { return reader.length >= provenLength }
    return reader.claim.shares && !reader.isPaced
      && Double(reader.length) >= max(2 * Double(Playout.creditBytes), shownSeconds * reader.rate)
      && !input.line.hasOthers && !input.line.hasVisits
      && !input.readers.contains { $0 != reader && !$0.isElsewhere }
  }
  private static let shownSeconds = 4.0

  /// The next request's length where congestion windows are small: what its connection brings in a round trip, and at
  /// most half of what the line does: more would come in one burst, of which a router's queue of one round trip drops a
  /// part. `grows`: for one who waits for a response of two round trips now and then.
  static func flight(_ draft: PlanDraft, grows: Bool = false) -> Int64 {
    let line = draft.input.line
    let flights = grows ? line.grownFlights : line.flights
    let flight = draft.requests < flights.count ? flights[draft.requests] : Flights.first
    let most = grows || line.staysSmall ? inRoundTrip(line) : inRoundTrip(line) / 2
    return max(pieceLength, min(flight, most) / jumpStep * jumpStep)
  }
}
