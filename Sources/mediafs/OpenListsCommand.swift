import Base
import CSystem
import Server

/// `mediafs open-lists`: opens the lists of a mount for its server, which only the mount helper starts.
enum OpenListsCommand {
  static let help = CommandHelp(
    synopsis: ["open-lists --helper-fd N --options-fd N --number N"], summary: nil,
    about: [
      "Opens replaced lists for the server of a mount with user=NAME. The mount helper starts it; use 'mediafs reload'."
    ],
    status: "0 the server was answered, 1 failed, 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    csystem_name_thread("mediafs-lists")
    let hidden: [Option] = [.value("helper-fd"), .value("options-fd"), .value("number")]
    return OptionParser.run("open-lists", arguments, help, hidden: hidden) { parsed throws(CommandError) in
      guard let helper = try ServeCommand.inherited(parsed.value("helper-fd")),
        let options = try ServeCommand.inherited(parsed.value("options-fd")),
        let number = parsed.value("number").flatMap({ UInt32($0) })
      else { throw .usage("only the mount helper starts this; use 'mediafs reload'") }
      do throws(ServerError) {
        try ListOpener.run(helper: helper, options: FileDescriptor(owning: options), number: number)
      } catch {
        throw .failed("\(error)")
      }
      return ExitCode.done
    }
  }
}
