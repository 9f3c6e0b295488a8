import CSystem
import Glibc

// This comes first, before the process has a second thread. The process will hold header values, signed links and
// /dev/fuse: it must leave no core file, and other processes of its user must not read its memory, its environment or
// its descriptors (root can). The helper starts a server for `user=NAME` with another effective group, which keeps the
// process closed until this call (mount-helper/PROTOCOL.md, "The two processes").
if csystem_become_private() != 0 { exit(ExitCode.failed) }

// If the caller closed descriptor 0, 1 or 2, the next file that this program opens would take its number.
while true {
  let descriptor = open("/dev/null", O_RDWR)
  if descriptor < 0 { break }
  if descriptor > STDERR_FILENO {
    close(descriptor)
    break
  }
}
exit(Program.run(CommandLine.arguments))
