import Storing

/// `mediafs verify`: reads a store back.
enum VerifyCommand {
  static let usage = """
    Usage: mediafs verify [MOUNTPOINT] [--repair]

    Reads everything that is stored for a mount back, which must not be mounted at the
    moment, and says what is not as it should be: bytes that a partial file lacks,
    copies in the library that were changed or removed, or whose checksum is not the
    manifest's, files that belong to nothing, damage of the catalog.

      MOUNTPOINT   the mount; may be left out when only one is remembered
          --repair make the catalog forget what is wrong, so that it is fetched again;
                   remove partial files that belong to nothing; give damaged copies
                   another name. No file of the library is ever deleted. Look without it
                   first: where the library's disk is not mounted, all copies count as
                   gone and are forgotten.
      -h, --help   show this text

    Exit status: 0 all is well, 1 something was found (also when it was repaired) or
    nothing could be verified, 2 wrong usage.
    """

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("verify", arguments, usage: usage, [.flag("repair")]) { options throws(CommandError) in
      let mount = try choose(options.operands)
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
    guard operands.count <= 1 else { throw .usage("one mount, please: \(operands[1]) is too much") }
    if let mountpoint = operands.first { return try selection.mount(mountpoint) }
    let all = selection.everything
    guard all.count <= 1 else { throw .usage("\(all.count) mounts are remembered: which MOUNTPOINT?") }
    guard let only = all.first else { throw .failed("no mount is remembered") }
    return only.mount
  }
}
