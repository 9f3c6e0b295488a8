import Base

/// The lines to all origins, and how many downloads wait on each. Owned by the transfer thread.
final class Lines {
  private var lines: [String: Line] = [:]
  private let connections: Int
  /// Whether no file is open.
  var isQuiet = true

  /// `connections`: the most to one origin.
  init(connections: Int) { self.connections = connections }

  /// The line of a host's key; a new one when the host has none.
  subscript(host: String) -> Line { lines[host] ?? unknown }
  /// The line of a host's key; nil when the host has none.
  func known(_ host: String) -> Line? { lines[host] }
  /// The line of the URL that `download` requests now.
  func line(of download: Download) -> Line { self[Line.key(of: download.mirrors.target.url)] }

  private var unknown: Line { Line(connections: connections) }

  /// Changes a line.
  func update(_ host: String, _ body: (inout Line) -> Void) { body(&lines[host, default: unknown]) }

  /// The network changed: an unreachable origin may be reachable again.
  func forgetOutages(_ now: Instant) {
    for host in lines.keys { lines[host]?.forgetOutage(now) }
  }

  /// Notes on which line the readers of `download` wait. Background downloads of the same line stand back meanwhile.
  func setWaits(_ download: Download, on host: String?, now: Instant) {
    if let former = download.lineUse.waitsOn {
      update(former) { line in
        line.waiting -= 1
        line.lastWait = now
      }
    }
    if let host { update(host) { $0.waiting += 1 } }
    download.lineUse.waitsOn = host
  }
}
