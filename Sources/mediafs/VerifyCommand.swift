import Storing

/// `mediafs verify`: checks all stored data of a mount.
enum VerifyCommand {
  static let help = CommandHelp(
    synopsis: ["verify [MOUNTPOINT] [--repair]"],
    summary: "Check stored data for damage, and repair it",
    about: [
      """
      Reads all stored data of a mount and reports damage: partial files that lack data, copies in the library that \
      were changed or removed or do not match the checksum in the list, files that belong to nothing, a damaged \
      catalog. The mount must not be mounted while verify runs.
      """
    ],
    operands: [("MOUNTPOINT", "The mount; needed only if there are several.")],
    groups: [
      (
        "Options",
        [
          .flag(
            "repair",
            help: """
              Mark damaged data as not stored, so that it is downloaded again; delete partial files that belong to \
              nothing; rename damaged copies. No file of the library is ever deleted. Run verify without --repair \
              first: if the library's disk is not mounted, every copy counts as removed.
              """)
        ]
      )
    ],
    status: "0 no damage, 1 damage was found (even if it was repaired) or verify failed, 2 wrong usage.")

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("verify", arguments, help) { options throws(CommandError) in
      let mount = try choose(options.operands)
      if let owner = mount.owner {
        throw .failed("\(mount.mountpoint) belongs to the user \(owner): unmount it, and run verify as that user")
      }
      // Between two servers nobody holds the lock of the store, and programs have files of the mount open.
      if NextServer.isMounted(mount) {
        throw .failed("\(mount.mountpoint) is mounted: unmount it first (mediafs unmount \(mount.mountpoint))")
      }
      let report: StoreVerificationReport
      do throws(StoreError) {
        report = try StoreVerification.run(
          store: mount.store, mountpoint: mount.mountpoint, library: mount.library, repairs: options.has("repair"))
      } catch {
        throw .failed(error.message)
      }
      let terminal = Terminal()
      for finding in report.findings {
        terminal.line("\(TerminalText.plain(finding.subject)): \(TerminalText.plain(finding.message))")
        if let repair = finding.repair { terminal.line("  \(TerminalText.plain(repair))") }
      }
      let problems = Int64(report.findings.count)
      terminal.line(
        [
          TerminalText.count(report.partials, "partial file"), TerminalText.count(report.copies, "complete file"),
          TerminalText.count(report.digests, "checksum") + " compared", TerminalText.size(report.bytes) + " read",
          problems == 0 ? "no problems" : TerminalText.count(problems, "problem"),
        ].joined(separator: ", "))
      try terminal.finish()
      return problems == 0 ? ExitCode.done : ExitCode.failed
    }
  }

  private static func choose(_ operands: [String]) throws(CommandError) -> MountRecord {
    let selection = try MountSelection.remembered()
    guard operands.count <= 1 else { throw .usage("verify takes one MOUNTPOINT, not also \(operands[1])") }
    if let mountpoint = operands.first { return try selection.mount(mountpoint) }
    let all = selection.everything
    guard all.count <= 1 else {
      throw .usage("there are \(all.count) mounts: name the MOUNTPOINT (mediafs status lists them)")
    }
    guard let only = all.first else { throw .failed(MountSelection.none) }
    return only.mount
  }
}
