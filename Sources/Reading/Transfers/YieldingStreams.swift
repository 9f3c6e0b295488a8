import Base

// A body that an origin can only send whole has its connection until its end. Where the origin's connections are few,
// those of files that nobody reads give way to readers.

extension Scheduler {
  /// A program that reads waits for `start`, and no connection to the host is free: ends such bodies, as many as it
  /// takes. Their files are asked for again later, from the first byte on. For a stat, or one who looks, none ends: a
  /// scan would begin them again and again.
  func makeWay(for start: PendingStart, on host: String, _ now: Instant) {
    let line = lines[host]
    guard start.purpose <= .shared, line.active >= line.limit,
      start.download.hasReader
    else { return }
    var missing = line.active - line.limit + 1
    var streams: [(download: Download, running: Running)] = []
    for download in downloads.inOrder {
      for running in download.transfers where running.host == host {
        if running.isCancelled {
          missing -= 1  // its end is about to be told
        } else if running.active.isStream, download !== start.download, !download.isRead(now) {
          streams.append((download, running))
        }
      }
    }
    // What has brought least costs least when it is fetched again.
    streams.sort { ($0.running.bytes, $0.download.key) < ($1.running.bytes, $1.download.key) }
    for (download, running) in streams.prefix(max(0, missing)) { download.cancel(running.active.id, .yielded) }
  }

  /// Whether `start` is for such a body, for which no reader waits, and it would take the last connection while another
  /// file's reader may ask for bytes at any time.
  func takesLastConnection(_ start: PendingStart, of line: Line) -> Bool {
    start.purpose >= .next && start.download.ranges.wantsWhole && line.active + 1 >= line.limit
      && line.readers.visits > (start.download.lineUse.isVisited ? 1 : 0)
  }
}
