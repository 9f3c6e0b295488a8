import Control
import Storing

/// `mediafs metrics`: the server's numbers, for Prometheus.
enum MetricsCommand {
  static let help = CommandHelp(
    synopsis: ["metrics [MOUNTPOINT]"],
    summary: "Print the server's numbers for Prometheus",
    about: [
      """
      Prints what the server of a mount has counted since it began, and what is so at the moment, in Prometheus' text \
      format. No number names a file, a URL or a host. Counters begin at 0 again with each server, as Prometheus expects.
      """
    ],
    operands: [("MOUNTPOINT", "The mount to ask about. With one mount it may be left out.")],
    notes: [
      """
      For the textfile collector of Prometheus' node exporter, 'mediafs mount --metrics-file FILE' writes the same to \
      a file.
      """
    ],
    status: "0 done, 1 failed, 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("metrics", arguments, help) { options throws(CommandError) in
      let mount = try MountSelection.remembered().one(options.operands)
      let terminal = Terminal()
      do throws(ControlFailure) {
        terminal.raw(try ControlClient.connect(store: mount.store, owner: mount.owner).metrics())
      } catch let failure where failure.kind == .notRunning {
        throw .failed("\(mount.mountpoint) is not mounted: only its server counts")
      } catch {
        throw error.commandError
      }
      try terminal.finish()
      return ExitCode.done
    }
  }
}
