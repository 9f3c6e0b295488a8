/// `mediafs fetch`.
enum FetchCommand {
  static let usage = "Usage: mediafs fetch [--wait] PATH..."

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.complain("fetch: this build does not have the command")
    return ExitCode.failed
  }
}
