import Base
import Storing

/// What earlier mounts learned of hosts, and what of this mount is worth a note. Pure.
struct HostNotes {
  /// For how many seconds a note is believed: tomorrow another network, or another server, may be there.
  static let believed: Int64 = 24 * 3600
  /// By what factor a rate must differ to be noted again, and after how many seconds it is noted although it does not.
  private static let leastChange = 1.5
  private static let renewed: Int64 = 3600

  /// What the store has, by the hosts' keys.
  private var noted: [String: HostNote] = [:]

  /// The store has these notes.
  mutating func remember(_ notes: [HostNote]) { for note in notes { noted[note.name] = note } }

  /// What is known of `host`. `date`: seconds since 1970. A clock that was wrong may have dated a note in the future.
  func believed(_ host: String, _ date: Int64) -> HostNote? {
    noted[host].flatMap { $0.at <= date && date - $0.at < Self.believed ? $0 : nil }
  }

  /// What the store should know of `host`; nil if it knows that, or nothing was found out.
  mutating func take(_ host: String, _ line: Line, date: Int64) -> HostNote? {
    let estimate = line.estimate
    guard estimate.isMeasured, HostNote.isName(host) else { return nil }
    let known = estimate.connections.noted
    let note = HostNote(
      name: host, lanes: max(known?.count ?? 0, LaneControl.least), connectionRate: known?.rate, rate: estimate.rate,
      roundTrip: estimate.roundTrip, httpVersion: line.httpVersion, at: date)
    if let old = believed(host, date) {
      // A note that nothing confirmed keeps its date.
      guard estimate.connections.hasFound, Self.differ(note, old) else { return nil }
    }
    if noted.count >= Self.most, noted[host] == nil {
      let kept = noted.sorted { ($0.value.at, $0.key) > ($1.value.at, $1.key) }.prefix(Self.most / 2)
      noted = Dictionary(uniqueKeysWithValues: Array(kept))
    }
    noted[host] = note
    return note
  }
  /// The most hosts, several times what the store keeps. At this number the older half is dropped: links and redirects
  /// may lead to another host each time.
  private static let most = 4096

  private static func differ(_ new: HostNote, _ old: HostNote) -> Bool {
    let (rate, former) = (new.connectionRate ?? 0, old.connectionRate ?? 0)
    return new.lanes != old.lanes || max(rate, former) > leastChange * min(rate, former) || new.at - old.at >= renewed
  }
}
