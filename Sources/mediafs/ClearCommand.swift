/// `mediafs clear`.
enum ClearCommand {
  static let usage = "Usage: mediafs clear PATH...|--all"

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.complain("clear: this build does not have the command")
    return ExitCode.failed
  }
}
