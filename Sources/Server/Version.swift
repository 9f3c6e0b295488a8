/// The version of this program, as `mediafs --version` prints it (CHANGELOG.md).
package let mediafsVersion = "0.1.0"
