import Sharing

/// What `mediafs share` says, in words.
enum ShareText {
  /// So many incomplete generations and leases are printed; --json has more.
  private static let shown = 10

  private static let titles: [(ObjectName.Kind, String)] = [
    (.blocks, "blocks"), (.heads, "heads"), (.pointers, "pointers"), (.probes, "probe sets"), (.done, "digests"),
    (.leases, "leases"), (.claims, "claims"), (.seen, "seen marks"), (.nodes, "node marks"),
    (.conditions, "probes of the store"), (.format, "format"), (.foreign, "other objects"),
  ]

  static func lines(of census: FleetCensus) -> [String] {
    var lines = [
      "\(TerminalText.plain(census.place)): version 1, blocks of \(TerminalText.size(Int64(census.block))), "
        + "\(census.segment) in a segment; the fleet's key matches",
      "",
    ]
    for (kind, title) in titles where census[kind].objects > 0 {
      lines.append(row(title, census[kind]))
    }
    let generations = count(census.generations, "generation with blocks", "generations with blocks")
    lines += ["", "\(generations), \(census.incompleteGenerations) incomplete"]
    for generation in census.incomplete.prefix(shown) {
      let size = generation.size.map { "of \(TerminalText.size($0))" } ?? "of a size that no head tells"
      let stored = "\(count(generation.blocks, "block")), \(TerminalText.size(generation.bytes))"
      lines.append("  \(generation.generation)  \(stored) \(size)")
    }
    lines += more(census.incompleteGenerations)
    lines.append(count(census.leasesHeld, "lease held now", "leases held now"))
    for lease in census.leases.prefix(shown) {
      let rate = lease.rate > 0 ? ", \(TerminalText.rate(Double(lease.rate) * 1024))" : ""
      lines.append(
        "  \(lease.generation)  segment \(lease.segment): node \(lease.node), block \(lease.at), "
          + "\(lease.blocks) stored\(rate)")
    }
    lines += more(census.leasesHeld)
    lines.append(count(census.nodesToday, "node today", "nodes today"))
    let reasons = census.conditions.map(TerminalText.plain).joined(separator: "; ")
    switch census.keepsConditions {
    case true?: lines.append("conditions of writes: kept" + (reasons.isEmpty ? "" : " (\(reasons))"))
    case false?: lines.append("conditions of writes: not kept, so machines share without leases (\(reasons))")
    case nil: lines.append("conditions of writes: not known (\(reasons))")
    }
    return lines
  }

  static func line(of finding: FleetCheck.Finding, repairs: Bool) -> String {
    let end: String
    switch finding.isRemoved {
    case true?: end = ": removed"
    case false? where repairs: end = ": it stays, because it changed meanwhile"
    case nil where repairs: end = ": it stays, because no mediafs of this version wrote it"
    default: end = ""
    }
    return "\(TerminalText.plain(finding.key)): \(TerminalText.plain(finding.reason))\(end)"
  }

  static func progress(of sums: FleetCheck.Sums) -> String {
    "\(count(sums.blocks, "block")), \(TerminalText.size(sums.bytes)) read so far"
  }

  static func progress(of result: FleetCollection.Result, _ isDryRun: Bool) -> String {
    let sum = result.sum
    let seen = count(result.kept + result.generations, "generation")
    return "\(seen) looked at, \(isDryRun ? "would remove" : "removed") "
      + "\(count(sum.objects, "object")), \(TerminalText.size(sum.bytes)) so far"
  }

  static func lines(of result: FleetCollection.Result, days: Int, _ isDryRun: Bool) -> [String] {
    var lines = titles.compactMap { kind, title in result.removed[kind.rawValue].map { row(title, $0) } }
    let sum = result.sum
    lines.append(
      "\(isDryRun ? "would remove" : "removed") \(count(result.generations, "generation")) and "
        + "\(count(sum.objects, "object")) in all, \(TerminalText.size(sum.bytes)); kept "
        + "\(count(result.kept, "generation")), \(result.marked) noted as used in \(count(Int64(days), "day"))")
    if result.spared > 0 {
      lines.append("\(count(result.spared, "generation")) came into use meanwhile: the rest of them stays")
    }
    return lines
  }

  private static func row(_ title: String, _ tally: FleetTally) -> String {
    TerminalText.padded(title, 20) + TerminalText.padded("\(tally.objects)", 12, right: true)
      + TerminalText.padded(TerminalText.size(tally.bytes), 12, right: true)
  }

  private static func more(_ number: Int64) -> [String] {
    number > Int64(shown) ? ["  and \(number - Int64(shown)) more (--json)"] : []
  }

  private static func count(_ number: Int64, _ one: String, _ many: String? = nil) -> String {
    TerminalText.count(number, one, many)
  }
}
