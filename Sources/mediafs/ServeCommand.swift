import Base
import CSystem
import Glibc
import Server

/// `mediafs serve`: the server process, which only the mount helper starts.
enum ServeCommand {
  static let usage = """
    Usage: mediafs serve --helper-fd N

    The server process of a mount. The mount helper starts it; use 'mediafs mount'.
    """

  static func run(_ arguments: [String]) -> Int32 {
    StopSignals.block()
    return OptionParser.run("serve", arguments, usage: usage, [.value("helper-fd")]) { parsed throws(CommandError) in
      guard let descriptor = parsed.value("helper-fd").flatMap(Int32.init), descriptor > STDERR_FILENO,
        csystem_fcntl(descriptor, F_GETFD, 0) >= 0
      else { throw .usage("the server is started by the mount helper; use 'mediafs mount'") }
      return MediafsServer.run(link: HelperLink(owning: descriptor))
    }
  }
}
