import CSystem
import Glibc

// First of all, and before there is a second thread: header values, signed links and /dev/fuse come into this process.
// It leaves no core file with them, and no other process of the same user can read its memory, its environment or what
// it has open; root can. A server for `user=NAME` still has an effective group that is not its own, by which the helper
// kept it so until here (mount-helper/PROTOCOL.md, "The two processes").
if csystem_become_private() != 0 { exit(ExitCode.failed) }

// A program that is started with 0, 1 or 2 closed would have them taken by the next file it opens.
while true {
  let descriptor = open("/dev/null", O_RDWR)
  if descriptor < 0 { break }
  if descriptor > STDERR_FILENO {
    close(descriptor)
    break
  }
}
exit(Program.run(CommandLine.arguments))
