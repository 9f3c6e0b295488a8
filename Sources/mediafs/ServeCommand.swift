import Base
import CSystem
import Glibc
import Server

/// `mediafs serve`: the server process, which only the mount helper starts.
enum ServeCommand {
  static let help = CommandHelp(
    synopsis: ["serve --helper-fd N"], summary: nil,
    about: ["Runs the server process of a mount. The mount helper starts it; use 'mediafs mount'."],
    status: "0 unmounted, 1 failed, 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    StopSignals.block()
    csystem_name_thread("mediafs")  // the helper runs an open file, and older kernels name the process by its number
    csystem_report_deaths()
    // No read of stored bytes allocates. An arena for each thread would only cost memory (0.4 MiB).
    if csystem_limit_malloc_arenas(2) == 0 { Log.debug("malloc keeps an arena for each thread") }
    let hidden: [Option] = [.value("helper-fd"), .value("launcher-fd")]
    return OptionParser.run("serve", arguments, help, hidden: hidden) { parsed throws(CommandError) in
      guard let link = try inherited(parsed.value("helper-fd")) else { throw wrong }
      let launcher = try inherited(parsed.value("launcher-fd"))
      return MediafsServer.run(
        link: HelperLink(owning: link), launcher: launcher.map { LauncherLink(owning: $0) })
    }
  }

  private static let wrong = CommandError.usage("only the mount helper starts the server; use 'mediafs mount'")

  /// A descriptor that the mount helper left open; nil without a value.
  static func inherited(_ value: String?) throws(CommandError) -> Int32? {
    guard let value else { return nil }
    guard let descriptor = Int32(value), descriptor > STDERR_FILENO, csystem_fcntl(descriptor, F_GETFD, 0) >= 0 else {
      throw wrong
    }
    return descriptor
  }
}
