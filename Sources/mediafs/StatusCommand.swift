/// `mediafs status`.
enum StatusCommand {
  static let usage = "Usage: mediafs status [MOUNTPOINT] [--json] [PATH...]"

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.complain("status: this build does not have the command")
    return ExitCode.failed
  }
}
