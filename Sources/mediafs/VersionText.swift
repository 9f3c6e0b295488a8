import CBuild
import Screen
import Server

/// What `mediafs --version` prints. Scripts read the first line; the others are for reports of faults.
enum VersionText {
  static var lines: [String] {
    let commit = String(cString: cbuild_commit())
    let facts =
      [("commit", commit.isEmpty ? "unknown (not built by make release)" : commit)] + LinkedLibraries.all
      + [("ncurses", Ncurses.version.split(separator: " ").last.map(String.init) ?? "?")] + KernelFeatures.find().lines
    return ["mediafs \(Program.version)"] + facts.map { "\($0.0): \($0.1)" }
  }
}
