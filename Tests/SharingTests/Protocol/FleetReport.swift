/// What came of a simulation.
struct FleetReport: CustomStringConvertible {
  let nodes: Int
  let seconds: Double
  /// Bytes from the origin for each byte of the list.
  let origin: Double
  /// Requests to the store for each GiB and node.
  let requests: Double
  let hottest: Int
  let hottestKey: String
  let busiest: Int
  /// The longest wait of any read, in seconds.
  let longestWait: Double
  let longestAt: String
  let unfinished: Int
  let wrongBytes: Int
  let doubled, bypassed: Int

  init(_ simulation: FleetSimulation) {
    let list = Double(simulation.listBlocks) * simulation.blockBytes
    nodes = simulation.nodes.count
    seconds = Double(simulation.queue.now) / 1e6
    origin = simulation.origin.bytes / list
    requests = Double(simulation.nodes.map(\.requests).reduce(0, +)) / Double(nodes) / (list / 1_073_741_824)
    hottest = simulation.store.hottest
    hottestKey = simulation.store.hottestKey.map { "\($0)" } ?? "none"
    busiest = simulation.store.busiestSecond
    let worst = simulation.nodes.max { $0.longestWait < $1.longestWait }
    longestWait = Double(worst?.longestWait ?? 0) / 1e6
    longestAt = worst.map { "block \($0.longestAt.block) at \(Double($0.longestAt.time) / 1e6) s" } ?? ""
    unfinished = simulation.nodes.count { !$0.isDone }
    doubled = simulation.doubled
    bypassed = simulation.bypassed
    wrongBytes = simulation.wrongBytes + simulation.store.overwritten
  }

  /// A number with so many digits behind the point at most.
  static func text(_ value: Double, _ digits: Int = 3) -> String {
    let scale = (0..<digits).reduce(1.0) { product, _ in product * 10 }
    return "\((value * scale).rounded() / scale)"
  }

  var description: String {
    let text = Self.text
    return
      "\(nodes) nodes: origin \(text(origin, 3)) x (\(doubled) blocks twice, \(bypassed) bypassed), "
      + "longest wait \(text(longestWait, 2)) s (\(longestAt)), "
      + "\(text(requests, 0)) requests/GiB/node, hottest key \(hottest)/s (\(hottestKey)), store \(busiest)/s, "
      + "\(text(seconds, 1)) s, \(unfinished) unfinished"
  }
}
