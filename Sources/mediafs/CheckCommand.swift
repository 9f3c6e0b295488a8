/// `mediafs check`.
enum CheckCommand {
  static let usage = "Usage: mediafs check FILE"

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.complain("check: this build does not have the command")
    return ExitCode.failed
  }
}
