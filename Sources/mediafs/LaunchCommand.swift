import Base
import CSystem
import Glibc
import Server

/// `mediafs launch`: the launcher of a server, which only the mount helper starts.
enum LaunchCommand {
  static let help = CommandHelp(
    synopsis: ["launch --server-fd N --options-fd N"], summary: nil,
    about: ["Starts the programs of 'mount --on' for a server. The mount helper starts it; use 'mediafs mount'."],
    status: "0 the server ended, 1 failed, 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    csystem_name_thread("mediafs-launch")
    let hidden: [Option] = [.value("server-fd"), .value("options-fd")]
    return OptionParser.run("launch", arguments, help, hidden: hidden) { parsed throws(CommandError) in
      guard let server = try ServeCommand.inherited(parsed.value("server-fd")),
        let options = try ServeCommand.inherited(parsed.value("options-fd"))
      else { throw .usage("only the mount helper starts the launcher; use 'mediafs mount'") }
      do throws(ServerError) {
        try Launcher(server: FileDescriptor(owning: server), options: FileDescriptor(owning: options)).run()
      } catch {
        throw .failed("\(error)")
      }
      return ExitCode.done
    }
  }
}
