import Base

extension ControlClient {
  /// Asks the server to delete stored data.
  package func clear(_ order: ClearOrder) throws(ControlFailure) -> ClearReport {
    var request = ControlRequest(.clear)
    switch order.files {
    case .at(let paths): request.paths = paths
    case .all: request.all = true
    case .unlisted: request.unlisted = true
    }
    if order.isForced { request.force = true }
    if order.isDryRun { request.dryRun = true }
    var allowance = self.allowance(limits.clear)
    try send(request)
    let reply = try next(.cleared, &allowance)
    guard let cleared = reply.cleared else { throw unexpected(reply) }
    _ = try next(.done, &allowance)
    return cleared
  }

  /// Asks for the server's numbers, in Prometheus' text format: printable ASCII in lines.
  package func metrics() throws(ControlFailure) -> String {
    try send(ControlRequest(.metrics))
    let reply = try next(.metrics)
    guard let text = reply.metrics else { throw unexpected(reply) }
    // A terminal obeys other bytes.
    guard text.utf8.allSatisfy({ 0x20..<0x7F ~= $0 || $0 == 0x0A }) else {
      throw malformed("answers with numbers that are no text of Prometheus")
    }
    return text
  }

  /// Listens to what happens from now on, for as long as `visit` returns true and the server tells. `isReady` is called
  /// once the server tells every event. Returns false if the server said that it ends, true after `visit` did not want
  /// more. The connection is of no other use then.
  package func events(isReady: () -> Void, _ visit: (ControlEvent) -> Bool) throws(ControlFailure) -> Bool {
    try send(ControlRequest(.events))
    _ = try next(.listening)
    isReady()
    while true {
      // However long nothing happens; each line has a bounded length.
      guard let line = try lines.next(until: .never) else {
        throw ControlFailure(.gone, "the server of the store \(store) ended")
      }
      let reply = try accepted(line)
      switch (reply.reply, reply.event) {
      case (.event, let event?): if !visit(event) { return true }
      case (.done, _): return false
      default: throw unexpected(reply)
      }
    }
  }

  /// Says `word` of paths and patterns.
  package func rule(_ word: RuleWord, _ paths: [String]) throws(ControlFailure) -> RuleReport {
    var request = ControlRequest(.rule)
    request.rule = word
    request.paths = paths
    var allowance = self.allowance(limits.clear)
    try send(request)
    let reply = try next(.ruled, &allowance)
    guard let ruled = reply.ruled else { throw unexpected(reply) }
    _ = try next(.done, &allowance)
    return ruled
  }

  /// Ends the background downloads of the files that paths and patterns name.
  package func cancel(_ paths: [String]) throws(ControlFailure) -> ClearReport {
    var request = ControlRequest(.cancel)
    request.paths = paths
    var allowance = self.allowance(limits.clear)
    try send(request)
    let reply = try next(.cancelled, &allowance)
    guard let cancelled = reply.cleared else { throw unexpected(reply) }
    _ = try next(.done, &allowance)
    return cancelled
  }

  /// Sets values of the mount, or of a host, and asks for all of them.
  package func set(_ values: [String: String], host: String? = nil) throws(ControlFailure) -> [SettingStatus] {
    var request = ControlRequest(.set)
    request.values = values
    request.host = host
    var allowance = self.allowance(limits.answer)
    try send(request)
    let reply = try next(.settings, &allowance)
    guard let settings = reply.settings, settings.count <= ControlLimits.settings else { throw unexpected(reply) }
    _ = try next(.done, &allowance)
    return settings
  }

  /// Has the server read its list again, and waits for that.
  package func reload() throws(ControlFailure) -> ReloadReport {
    var allowance = self.allowance(limits.clear)
    try send(ControlRequest(.reload))
    let reply = try next(.reloaded, &allowance)
    guard let reloaded = reply.reloaded else { throw unexpected(reply) }
    _ = try next(.done, &allowance)
    return reloaded
  }
}
