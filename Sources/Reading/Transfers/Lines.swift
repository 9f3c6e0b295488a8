import Base

/// The lines to all origins, and who waits on them. Owned by the transfer thread.
final class Lines {
  private var lines: [String: Line] = [:]
  private let connections: Int
  /// Whether no file is open.
  var isQuiet = true

  /// `connections`: the most to one origin.
  init(connections: Int) { self.connections = connections }

  /// The line of a host's key; a line of which nothing is known yet when there is none.
  subscript(host: String) -> Line { lines[host] ?? unknown }
  /// The line of a host's key; nil when nothing is known of it.
  func known(_ host: String) -> Line? { lines[host] }
  /// The line that `download` asks now.
  func line(of download: Download) -> Line { self[Line.key(of: download.mirrors.target.url)] }

  private var unknown: Line { Line(connections: connections) }

  /// Notes something of a line.
  func update(_ host: String, _ body: (inout Line) -> Void) { body(&lines[host, default: unknown]) }

  /// The network changed: what was unreachable may be there.
  func forgetOutages(_ now: Instant) {
    for host in lines.keys { lines[host]?.forgetOutage(now) }
  }

  /// Notes on which line the readers of `download` wait: background downloads of the same line stand back meanwhile.
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
