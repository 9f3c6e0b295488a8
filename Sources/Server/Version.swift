/// The version of this program, as `mediafs --version` prints it (CHANGELOG.md).
public let mediafsVersion = "0.1.0"
