import Glibc
import Sharing

/// `mediafs share`: what lies in the bucket that a fleet shares, whether it is right, and what may go.
enum ShareCommand {
  static let help = CommandHelp(
    synopsis: [
      "share stat s3://BUCKET/PREFIX [--json]", "share check s3://BUCKET/PREFIX [--repair]",
      "share collect s3://BUCKET/PREFIX [--days N] [--dry-run]",
    ],
    summary: "Look after the bucket that machines share",
    about: [
      """
      Works on the object store of 'mediafs mount --share', with the keys that a mount takes: those of the store from \
      the environment or a profile in ~/.aws, and the fleet's from --share-key or MEDIAFS_FLEET_KEY. No mount is needed, \
      and mounts may share meanwhile. A bucket of another version or another fleet stays untouched.
      """
    ],
    operands: [
      ("stat", "Say what lies there, which files are incomplete, who fetches now, and what the store can do."),
      ("check", "Read all of it, compare it with its checksums, and name what is wrong."),
      ("collect", "Remove what no machine has used for some days."),
    ],
    groups: [
      (
        "Options",
        [
          .value("share-endpoint", of: "URL", help: "Ask the object store at URL."),
          .value("share-region", of: "REGION", help: "Sign requests to the object store for REGION."),
          .value("share-key", of: "FILE", help: "Read the fleet's key from FILE. Default: MEDIAFS_FLEET_KEY."),
          .value("cacert", of: "FILE", help: "Trust the CA certificates in FILE (PEM)."),
          .flag("json", help: "With stat: print one JSON object; mediafs(1) describes its keys."),
          .flag("repair", help: "With check: remove what is wrong, so that the machines store it anew."),
          .value("days", of: "N", help: "With collect: keep what was used in the last N days. Default: 30."),
          .flag("dry-run", "n", help: "With collect: remove nothing; say what would be removed."),
        ]
      )
    ],
    status: """
      0 done, 1 failed, or check found something wrong (even if it was repaired), 2 wrong usage.
      """)

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("share", arguments, help) { options throws(CommandError) in
      guard let action = options.operands.first else { throw .usage("stat, check or collect is missing") }
      guard let takes = taken[action] else { throw .usage("\(action) is not one of stat, check and collect") }
      for (name, of) in [("json", "stat"), ("repair", "check"), ("days", "collect"), ("dry-run", "collect")]
      where options.has(name) && of != action {
        throw .usage("--\(name) goes with share \(of), not with share \(action)")
      }
      guard options.operands.count == 2 else { throw .usage("share \(action) takes one s3://BUCKET/PREFIX") }
      var place = FleetPlace(options.operands[1])
      (place.endpoint, place.region) = (options.value("share-endpoint"), options.value("share-region"))
      (place.keyFile, place.certificateFile) = (options.value("share-key"), options.value("cacert"))
      var environment: [String: String] = [:]
      for name in FleetPlace.variables { environment[name] = getenv(name).map { String(cString: $0) } }
      return try takes(place, environment, options)
    }
  }

  private typealias Action = @Sendable (FleetPlace, [String: String], ParsedOptions) throws(CommandError) -> Int32
  private static let taken: [String: Action] = ["stat": stat, "check": check, "collect": collect]

  /// Lends the bucket.
  private static func withBucket<Result>(
    _ place: FleetPlace, _ environment: [String: String], _ body: (FleetBucket) throws(FleetCareError) -> Result
  ) throws(CommandError) -> Result {
    do throws(FleetCareError) { return try place.withBucket(environment, body) } catch {
      throw .failed(error.description)
    }
  }

  // MARK: stat

  private static func stat(
    _ place: FleetPlace, _ environment: [String: String], _ options: ParsedOptions
  ) throws(CommandError) -> Int32 {
    let report = ShareReport(isSilent: options.has("json"))
    let census: FleetCensus
    do throws(CommandError) {
      census = try withBucket(place, environment) { bucket throws(FleetCareError) in
        var census = try FleetCensus(bucket) { report.note("\(TerminalText.count($0, "object")) so far") }
        census.probe(bucket)
        return census
      }
    } catch {
      try report.end()
      throw error
    }
    try report.end()
    let terminal = Terminal()
    if options.has("json") {
      terminal.raw(try StatusCommand.encode(census))
      terminal.line()
    } else {
      for line in ShareText.lines(of: census) { terminal.line(line) }
    }
    try terminal.finish()
    return ExitCode.done
  }

  // MARK: check

  private static func check(
    _ place: FleetPlace, _ environment: [String: String], _ options: ParsedOptions
  ) throws(CommandError) -> Int32 {
    let report = ShareReport()
    let repairs = options.has("repair")
    let sums: FleetCheck.Sums
    do throws(CommandError) {
      sums = try withBucket(place, environment) { bucket throws(FleetCareError) in
        try FleetCheck(
          bucket, repairs: repairs, found: { report.line(ShareText.line(of: $0, repairs: repairs)) },
          progress: { report.note(ShareText.progress(of: $0)) }
        ).run()
      }
    } catch {
      try report.end()
      throw error
    }
    report.line(
      [
        TerminalText.count(sums.blocks, "block"), TerminalText.count(sums.objects, "other object"),
        TerminalText.size(sums.bytes) + " read",
        sums.findings == 0 ? "no problems" : TerminalText.count(sums.findings, "problem"),
      ].joined(separator: ", "))
    try report.end()
    return sums.findings == 0 ? ExitCode.done : ExitCode.failed
  }

  // MARK: collect

  private static func collect(
    _ place: FleetPlace, _ environment: [String: String], _ options: ParsedOptions
  ) throws(CommandError) -> Int32 {
    let text = options.value("days") ?? "30"
    guard let days = Int(text), (1...36_500).contains(days) else {
      throw .usage("--days takes a number of days from 1 to 36500")
    }
    let isDryRun = options.has("dry-run")
    let report = ShareReport()
    let result: FleetCollection.Result
    do throws(CommandError) {
      result = try withBucket(place, environment) { bucket throws(FleetCareError) in
        try FleetCollection(bucket, days: days, isDryRun: isDryRun) {
          report.note(ShareText.progress(of: $0, isDryRun))
        }.run()
      }
    } catch {
      try report.end()
      throw error
    }
    for line in ShareText.lines(of: result, days: days, isDryRun) { report.line(line) }
    try report.end()
    return ExitCode.done
  }
}
